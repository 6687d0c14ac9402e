"""Judging a checkpoint: everything that is wrong with it, as findings; bad data never raises.

Three levels.  *Quick* reads manifests and sizes.  *Full* reads every byte: checksums, digests,
keys, episodes.  *Deep* decodes every record besides, encodes it again and compares bytes.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from typing import Final

from ckptfmt.checkpoint_reader import Checkpoint, ParticipantReader, participants_in
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CorruptError,
    DataError,
    IncompleteError,
    IntegerError,
    RefusedError,
    RoundTripError,
    UnsupportedError,
)
from ckptfmt.exact.restore import verbatim
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import MANIFEST_NAME, Folder, is_own
from ckptfmt.manifest import DataObject
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.rules import RULES, Finding
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import Store
from ckptfmt.store.names import join_name
from ckptfmt.stream import Loss, StoredLine, StreamReader

__all__ = ["Level", "Progress", "round_trip", "verify"]


_PIECE_BYTES: Final = 1 << 20


class Level(StrEnum):
    """How deep to look."""

    QUICK = "quick"
    FULL = "full"
    DEEP = "deep"


@dataclass(slots=True)
class Progress:
    """What was looked at so far; ``report`` is called after every record."""

    participants: int = 0
    records: int = 0
    raw_bytes: int = 0
    report: Callable[[Progress], None] | None = field(default=None, repr=False)

    def count(self, line: bytes) -> None:
        """Note one more record."""
        self.records += 1
        self.raw_bytes += len(line)
        if self.report is not None:
            self.report(self)


def verify(
    store: Store,
    folder: Folder = Folder(),
    *,
    level: Level = Level.FULL,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Everything that is wrong with a checkpoint; nothing where it is whole.

    Memory does not grow with the number of records, but for their keys where the index
    disagrees with them.  Never raises on bad data.
    """
    progress = progress or Progress()
    try:
        checkpoint = Checkpoint.open(store, folder)
    except CkptError as error:
        yield Finding.of(_rule_of(error, "aggregate"), error)
        yield from _verify_unpublished(store, folder, level, progress)
        return
    for participant in checkpoint.participants:
        try:
            reader = checkpoint.participant(participant)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "participant"), error)
            continue
        yield from _verify_participant(reader, level, progress)
    yield from _strangers(store, folder, set(checkpoint.participants))


def _rule_of(error: CkptError, otherwise: str) -> str:
    match error:
        case UnsupportedError():
            return "unsupported"
        case IncompleteError():
            return "incomplete"
        case AbortedError():
            return "aborted"
        case RoundTripError():
            return "round-trip"
        case DataError() | RefusedError():
            return otherwise
        case _:
            return "unreadable"


def _verify_unpublished(
    store: Store, folder: Folder, level: Level, progress: Progress
) -> Iterator[Finding]:
    for participant in participants_in(store, folder):
        try:
            reader = ParticipantReader.open(store, folder, participant)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "participant"), error)
            continue
        yield from _verify_participant(reader, level, progress)


def _verify_participant(
    reader: ParticipantReader, level: Level, progress: Progress
) -> Iterator[Finding]:
    progress.participants += 1
    whole: list[DataObject] = []
    for item in reader.manifest.objects:
        try:
            reader.check_size(item)
            whole.append(item)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "data"), error)
    if level is Level.QUICK:
        return
    audit = _Audit(reader, deep=level is Level.DEEP, progress=progress)
    for item in reader.manifest.objects:
        yield from audit.read(item, whole=item in whole)
    if not audit.damaged:
        yield from audit.conclude()


class _Audit:
    """Reads all records of one participant and keeps what must agree in the end."""

    def __init__(self, reader: ParticipantReader, *, deep: bool, progress: Progress) -> None:
        self.damaged = False
        self._reader = reader
        self._deep = deep
        self._progress = progress
        self._content = hashlib.sha256()
        self._episodes: set[str] = set()

    def read(self, item: DataObject, *, whole: bool) -> Iterator[Finding]:
        """Read one data object; where it is damaged, every damage is told."""
        name = self._reader.data_name(item)
        try:
            with self._reader.stream(item) as stream:
                yield from self._read_records(item, stream)
                if stream.sha256 != item.sha256:
                    raise CorruptError("the file's SHA-256 is not the one in the manifest")
        except CkptError as error:
            self.damaged = True
            error.at(file=name, **self._reader.place())
            if whole or not isinstance(error, DataError):
                yield Finding.of(_rule_of(error, "stream"), error)
            if isinstance(error, DataError):
                yield from self._losses(item, error)

    def _read_records(self, item: DataObject, stream: StreamReader) -> Iterator[Finding]:
        seen = found = 0
        for stored, digest in zip(stream.lines(), stream.digests(), strict=True):
            self._content.update(len(stored.line).to_bytes(8, "little") + digest)
            try:
                _check_utf8(stored.line)
                record = self._reader.read(stored.line)
                seen = (seen + _mark(record.key, stored.ordinal)) % (1 << 128)
                self._episodes.add(record.episode_id.capture_key)
                if self._deep:
                    round_trip(record, stored.line)
            except (CkptError, UnicodeDecodeError) as error:
                yield self._record_finding(item, stored, error)
            self._progress.count(stored.line)
        for entry in stream.entries():
            found = (found + _mark(entry.key, entry.ordinal)) % (1 << 128)
        if seen != found:
            fault = CorruptError("the index does not list the keys that the records have")
            yield Finding.of("key", fault.at(**self._reader.place()))

    def _record_finding(
        self, item: DataObject, stored: StoredLine, error: CkptError | UnicodeDecodeError
    ) -> Finding:
        if isinstance(error, UnicodeDecodeError):
            error = CorruptError(f"the record line is not UTF-8: {error.reason}")
        error.at(
            file=self._reader.data_name(item),
            block=stored.block,
            ordinal=stored.ordinal,
            **self._reader.place(),
        )
        return Finding.of(_rule_of(error, "record"), error)

    def _losses(self, item: DataObject, first: CkptError) -> Iterator[Finding]:
        """All damages of an object, where the strict reader stopped at the first."""
        try:
            stream = self._reader.stream(item)
        except CkptError:
            return
        with stream:
            for found in stream.salvage():
                if isinstance(found, Loss) and found.location != first.location:
                    yield Finding.of("stream", found.error.at(**self._reader.place()))

    def conclude(self) -> Iterator[Finding]:
        """What only all objects together show."""
        manifest, place = self._reader.manifest, self._reader.place()
        if self._content.hexdigest() != manifest.content_digest:
            error = CorruptError("the records are not those of the manifest's content_digest")
            yield Finding.of("digest", error.at(**place))
        if sorted(self._episodes) != manifest.episode_ids:
            odd = sorted(self._episodes.symmetric_difference(manifest.episode_ids))[:3]
            error = CorruptError(f"episode_ids do not agree with the records: {', '.join(odd)}")
            yield Finding.of("episodes", error.at(**place))
        yield from self._duplicates()

    def _duplicates(self) -> Iterator[Finding]:
        previous = None
        for key, _ in heapq.merge(*self._reader.indexes(), key=itemgetter(0)):
            if key == previous:
                error = CorruptError("two records have the same key").at(key=key)
                yield Finding.of("key", error.at(**self._reader.place()))
            previous = key


def _check_utf8(line: bytes) -> None:
    # In pieces: a line of a gigabyte would become a string of several.
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(line), _PIECE_BYTES):
        decoder.decode(line[start : start + _PIECE_BYTES])
    decoder.decode(b"", final=True)


def _mark(key: str, ordinal: int) -> int:
    """A number whose sum over all records does not depend on their order."""
    text = f"{ordinal}/{key}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def round_trip(record: TypedRecord | Record, line: bytes) -> None:
    """Decode every payload of a record, encode it again, and compare.

    A payload without annotations may have come as JSON bytes; then it is those that must
    be taken and stored the same way.

    Raises:
        RoundTripError: the bytes differ; the pointer names the first member that does.
        CorruptError: a payload cannot be decoded.
    """
    generic = record if isinstance(record, Record) else record.to_record()
    for name, payload in generic.members.items():
        if not _comes_back(payload):
            raise RoundTripError("decoded and encoded again, it is another one").at(
                key=record.key, pointer=f"/{name}"
            )
    if join_line(replace(generic).line()) != line:
        raise RoundTripError("the line is not the one that its members make").at(key=record.key)


def _comes_back(payload: JsonPayload) -> bool:
    own = verbatim(payload.text, payload.annotations)
    if own is None:
        return JsonPayload.from_value(payload.value()) == payload
    with contextlib.suppress(IntegerError):
        if JsonPayload.from_value(payload.value()) == payload:
            return True
    return JsonPayload.from_json(own) == payload


def _strangers(store: Store, folder: Folder, participants: set[ParticipantId]) -> Iterator[Finding]:
    kinds = {participant.kind for participant in participants}
    yield from _unknown_in(store, folder.prefix, {folder.aggregate}, kinds)
    for kind in sorted(kinds):
        instances = {item.instance for item in participants if item.kind == kind}
        yield from _unknown_in(store, folder.kind(kind), set(), instances)
    for participant in sorted(participants):
        try:
            manifest = ParticipantReader.open(store, folder, participant).manifest
        except CkptError:
            continue
        named = {folder.data(participant, item.name) for item in manifest.objects}
        named.add(folder.manifest(participant))
        yield from _unknown_in(store, folder.participant(participant), named, set())


def _unknown_in(store: Store, prefix: str, files: set[str], folders: set[str]) -> Iterator[Finding]:
    try:
        entries = store.entries(prefix)
    except CkptError as error:
        yield Finding.of(_rule_of(error, "stranger"), error)
        return
    for entry in entries:
        name = join_name(prefix, entry.name)
        if (entry.kind == "file" and name in files) or (
            entry.kind == "dir" and entry.name in folders
        ):
            continue
        leftover = entry.kind == "file" and entry.name != MANIFEST_NAME and is_own(entry.name)
        rule = RULES["leftover" if leftover else "stranger"]
        yield Finding(rule, rule.explanation, CkptError("").at(file=name).location)
