"""Judging a checkpoint: everything that is wrong with it, as findings; bad data never raises.

Three levels.  *Quick* reads manifests and sizes.  *Full* reads every byte: checksums, digests,
keys, episodes.  *Deep* decodes every record besides, encodes it again and compares bytes.
"""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ckptfmt.agreement import Agreement
from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.duplicates import duplicate_members
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CorruptError,
    DataError,
    DepthError,
    IncompleteError,
    IntegerError,
    Location,
    RefusedError,
    RoundTripError,
    SizeError,
    UnsupportedError,
)
from ckptfmt.exact.pointer import join as join_pointer
from ckptfmt.exact.restore import verbatim
from ckptfmt.identity import EpisodeId
from ckptfmt.layout import MANIFEST_NAME, Folder, is_own
from ckptfmt.layouts import open_checkpoint, open_participant, participants_in
from ckptfmt.ledger import LedgerReader, verify_pins
from ckptfmt.manifest import CheckpointManifest, DataObject, ParticipantManifest, Sealed
from ckptfmt.outline import outline
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.rules import RULES, Finding
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import Store
from ckptfmt.store.names import join_name
from ckptfmt.stream import Entry, LongLine, Loss, RecordStream, StoredLine
from ckptfmt.wire import FORMAT_MINOR

__all__ = ["Level", "Progress", "round_trip", "verify"]


_PIECE_BYTES: Final = 1 << 20


class Level(StrEnum):
    """How deep to look."""

    QUICK = "quick"
    FULL = "full"
    DEEP = "deep"


@dataclass(slots=True)
class Progress:
    """What was looked at so far.

    ``report`` is called after every record; what it raises, other than a :class:`CkptError`,
    ends the verification.
    """

    participants: int = 0
    records: int = 0
    raw_bytes: int = 0
    report: Callable[[Progress], None] | None = field(default=None, repr=False)

    def count(self, size_bytes: int) -> None:
        """Note one more record."""
        self.records += 1
        self.raw_bytes += size_bytes
        if self.report is not None:
            self.report(self)


@dataclass(frozen=True, slots=True)
class _Task:
    """What :func:`verify` was asked for."""

    level: Level
    progress: Progress
    ledgers: str | os.PathLike[str] | None
    memory_bytes: int | None
    sample: Callable[[], bool] | None


def verify(
    store: Store,
    folder: Folder = Folder(),
    *,
    level: Level = Level.FULL,
    progress: Progress | None = None,
    ledgers: str | os.PathLike[str] | None = None,
    memory_bytes: int | None = None,
    sample: Callable[[], bool] | None = None,
) -> Iterator[Finding]:
    """Everything that is wrong with a checkpoint; nothing where it is whole.

    With ``ledgers``, the directory of capture ledgers, those that manifests pin are read too.
    Memory does not grow with the number of records, nor with their size but where one has to
    be decoded; a long one that could take more than ``memory_bytes`` for that is not, and told.
    ``sample`` is asked of every record, in the order of the indexes, whether to read it; of the
    others, and of what all records together must agree in, nothing is said then.
    Never raises on bad data.
    """
    task = _Task(level, progress or Progress(), ledgers, memory_bytes, sample)
    try:
        checkpoint = open_checkpoint(store, folder)
    except CkptError as error:
        yield Finding.of(_rule_of(error, "aggregate"), error)
        yield from _verify_unpublished(store, folder, task)
        return
    yield from _later(checkpoint.sealed, Location(file=folder.aggregate))
    for participant in checkpoint.participants:
        try:
            reader = checkpoint.participant(participant)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "participant"), error)
            continue
        yield from _verify_pins(reader, task.ledgers)
        yield from _verify_participant(reader, task)
    yield from _strangers(checkpoint)


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


def _later(
    sealed: Sealed[CheckpointManifest] | Sealed[ParticipantManifest], place: Location
) -> Iterator[Finding]:
    """What a later release put into a manifest; it is kept, and means nothing here."""
    minor = sealed.body.minor
    parts = [f"minor version {minor}"] if minor > FORMAT_MINOR else []
    if names := sorted(sealed.unknown):
        parts.append(f"members {', '.join(ascii(name[:40]) for name in names[:10])}")
    if parts:
        text = f"a manifest of a later release, with {' and '.join(parts)}"
        yield Finding(RULES["later-release"], text, place)


def _verify_unpublished(store: Store, folder: Folder, task: _Task) -> Iterator[Finding]:
    try:
        participants = participants_in(store, folder)
    except CkptError as error:
        yield Finding.of(_rule_of(error, "aggregate"), error)
        return
    for participant in participants:
        try:
            reader = open_participant(store, folder, participant)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "participant"), error)
            continue
        yield from _verify_pins(reader, task.ledgers)
        yield from _verify_participant(reader, task)


def _verify_pins(
    reader: ParticipantReader, ledgers: str | os.PathLike[str] | None
) -> Iterator[Finding]:
    if ledgers is not None:
        place = Location(reader.manifest.checkpoint_id, str(reader.participant))
        for finding in verify_pins(LedgerReader(ledgers), reader.manifest.ledger_pins):
            yield replace(finding, location=finding.location.merged(place))


def _verify_participant(reader: ParticipantReader, task: _Task) -> Iterator[Finding]:
    task.progress.participants += 1
    name = reader.folder.manifest(reader.participant)
    yield from _later(
        reader.sealed, Location(reader.manifest.checkpoint_id, str(reader.participant), name)
    )
    whole: list[DataObject] = []
    for item in reader.manifest.objects:
        try:
            reader.check_size(item)
            whole.append(item)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "data"), error)
    scope: Collection[EpisodeId] | None = None
    try:
        reader.check_schema()
    except UnsupportedError as error:
        yield Finding.of("unsupported", error)
        scope = ()  # Of records of another schema no more than the episode can be read.
    if task.level is Level.QUICK:
        return
    audit = _Audit(reader, task, scope)
    if task.sample is not None:
        if scope is None:
            yield from audit.read_sample(task.sample)
        return
    for item in reader.manifest.objects:
        yield from audit.read(item, whole=item in whole)
    if not audit.damaged:
        yield from audit.conclude()


class _Audit:
    """Reads all records of one participant and keeps what must agree in the end.

    ``scope``: see :class:`Agreement`.

    """

    def __init__(
        self, reader: ParticipantReader, task: _Task, scope: Collection[EpisodeId] | None
    ) -> None:
        self.damaged = False
        self._reader = reader
        self._task = task
        self._agreement = Agreement(scope)

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

    def _read_records(self, item: DataObject, stream: RecordStream) -> Iterator[Finding]:
        for stored in self._agreement.lines_or_long(stream):
            try:
                for error in self._read_record(stored):
                    yield Finding.of("duplicate-member", error.at(**self._reader.place()))
            except (CkptError, UnicodeDecodeError) as error:
                yield self._record_finding(item, error, stored.ordinal, stored.block)
            self._task.progress.count(stored.size_bytes)
        try:
            self._agreement.check_index(stream)
        except CkptError as error:
            error.at(file=self._reader.data_name(item), **self._reader.place())
            yield Finding.of(_rule_of(error, "key"), error)

    def _read_record(self, stored: StoredLine | LongLine) -> Iterator[CkptError]:
        """Check a record, and tell what a dict would lose of it."""
        line = stored if isinstance(stored, LongLine) else stored.line
        shown = _shown(line)
        if self._agreement.concerns(shown):
            record = self._reader.read(shown)
            self._agreement.add(stored.ordinal, record)
            if self._task.level is Level.DEEP:
                yield from self._decoded(record, line)

    def _decoded(self, record: TypedRecord | Record, line: bytes | LongLine) -> Iterator[CkptError]:
        if isinstance(line, LongLine):
            limit, needed = self._task.memory_bytes, _decoding_bytes(line)
            if limit is not None and needed > limit:
                raise SizeError(
                    f"a record of {line.size_bytes:,} bytes was not decoded, which could take "
                    f"{needed:,} bytes of memory; its checksums and its JSON are right",
                ).at(key=record.key)
            line = line.held().line
            record = self._reader.read(line)
        for member, payload in round_trip(record, line).items():
            for pointer in duplicate_members(payload.json_bytes()):
                place = Location(key=record.key, pointer=f"{join_pointer([member])}{pointer}")
                yield CorruptError("an object names this member more than once", place)

    def _record_finding(
        self,
        item: DataObject,
        error: CkptError | UnicodeDecodeError,
        ordinal: int,
        block: int | None = None,
    ) -> Finding:
        if isinstance(error, UnicodeDecodeError):
            error = CorruptError(f"the record line is not UTF-8: {error.reason}")
        error.at(
            file=self._reader.data_name(item),
            block=block,
            ordinal=ordinal,
            **self._reader.place(),
        )
        too_large = isinstance(error, SizeError)
        return Finding.of("undecoded" if too_large else _rule_of(error, "record"), error)

    def _losses(self, item: DataObject, first: CkptError) -> Iterator[Finding]:
        """All damages of an object, where the strict reader stopped at the first."""
        try:
            stream = self._reader.stream(item)
        except CkptError:
            return
        with stream:
            for found in stream.salvage_or_long():
                if isinstance(found, Loss) and not first.location.covers(found.location):
                    yield Finding.of("stream", found.error.at(**self._reader.place()))

    def read_sample(self, chosen: Callable[[], bool]) -> Iterator[Finding]:
        """Read single records through the indexes."""
        for item in self._reader.manifest.objects:
            try:
                with self._reader.stream(item) as stream:
                    for entry in stream.entries():
                        if chosen():
                            yield from self._read_entry(item, stream, entry)
                            self._task.progress.count(entry.length)
            except CkptError as error:
                error.at(file=self._reader.data_name(item), **self._reader.place())
                yield Finding.of(_rule_of(error, "stream"), error)

    def _read_entry(
        self, item: DataObject, stream: RecordStream, entry: Entry
    ) -> Iterator[Finding]:
        place = {"file": self._reader.data_name(item), **self._reader.place()}
        try:
            line = stream.get_or_long(entry.key)
        except CkptError as error:
            yield Finding.of(_rule_of(error, "stream"), error.at(**place))
            return
        try:
            record = self._reader.read(_shown(line))
            if record.key != entry.key:
                text = f"the index leads to record {record.key!a}"
                yield Finding.of("key", CorruptError(text).at(key=entry.key, **place))
            elif self._task.level is Level.DEEP:
                for twice in self._decoded(record, line):
                    yield Finding.of("duplicate-member", twice.at(**self._reader.place()))
        except (CkptError, UnicodeDecodeError) as error:
            yield self._record_finding(item, error, entry.ordinal)

    def conclude(self) -> Iterator[Finding]:
        """What only all objects together show."""
        reader = self._reader
        try:
            for rule_id, error in self._agreement.faults(
                reader.content_digest, reader.episode_ids, reader.index_keys()
            ):
                yield Finding.of(rule_id, error.at(**reader.place()))
        except CkptError as error:
            yield Finding.of(_rule_of(error, "stream"), error)


def _shown(line: bytes | LongLine) -> bytes:
    """The line, or the outline of a long one, as it is judged."""
    if isinstance(line, LongLine):
        return outline(line)
    _check_utf8(line)
    return line


def _check_utf8(line: bytes) -> None:
    # In pieces: a line of a gigabyte would become a string of several.
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(line), _PIECE_BYTES):
        decoder.decode(line[start : start + _PIECE_BYTES])
    decoder.decode(b"", final=True)


def _decoding_bytes(line: LongLine) -> int:
    """About the memory that decoding and encoding it again take at most.

    Measured: five times the text, and for each element what its object takes.
    """
    elements = containers = 0
    for piece in line.pieces():
        elements += piece.count(b",")
        containers += piece.count(b"[") + piece.count(b"{")
    return 5 * line.size_bytes + 64 * elements + 160 * containers


def round_trip(record: TypedRecord | Record, line: bytes) -> dict[str, JsonPayload]:
    """Decode every payload of a record, encode it again, and compare.

    A payload without annotations may have come as JSON bytes; then it is those that must
    be taken and stored the same way.  These payloads are the answer, by member: their value
    is spelt otherwise, for its white space, escapes, digits or duplicate members.

    Raises:
        RoundTripError: the bytes differ; the pointer names the first member that does.
        CorruptError: a payload cannot be decoded.
    """
    generic = record if isinstance(record, Record) else record.to_record()
    as_bytes: dict[str, JsonPayload] = {}
    for name, payload in generic.members.items():
        own = verbatim(payload.text, payload.annotations)
        if _is_spelt_anew(payload, bytes_too=own is not None):
            continue
        if own is None or JsonPayload.from_json(own) != payload:
            raise RoundTripError("decoded and encoded again, it is another one").at(
                key=record.key, pointer=f"/{name}"
            )
        as_bytes[name] = payload
    if join_line(replace(generic).line()) != line:
        raise RoundTripError("the line is not the one that its members make").at(key=record.key)
    return as_bytes


def _is_spelt_anew(payload: JsonPayload, *, bytes_too: bool) -> bool:
    # What no value can have may still stand in JSON bytes.
    beyond_values = (IntegerError, DepthError) if bytes_too else ()
    with contextlib.suppress(*beyond_values):
        return JsonPayload.from_value(payload.value()) == payload
    return False


def _strangers(checkpoint: Checkpoint) -> Iterator[Finding]:
    store, folder, participants = checkpoint.store, checkpoint.folder, checkpoint.participants
    kinds = {participant.kind for participant in participants}
    yield from _unknown_in(store, folder.prefix, checkpoint.files, kinds)
    for kind in sorted(kinds):
        instances = {item.instance for item in participants if item.kind == kind}
        yield from _unknown_in(store, folder.kind(kind), set(), instances)
    for participant in participants:
        try:
            reader = checkpoint.participant(participant)
        except CkptError:
            continue
        named = {reader.data_name(item) for item in reader.manifest.objects}
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
