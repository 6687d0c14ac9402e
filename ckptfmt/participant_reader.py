"""Reading what one participant wrote: its manifest, then its records, each verified first."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Self

from ckptfmt.agreement import Agreement
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CorruptError,
    MissingError,
    TornError,
    UnsupportedError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.manifest import (
    DataObject,
    Expected,
    ParticipantManifest,
    Sealed,
    Tombstone,
    decode_manifest,
)
from ckptfmt.outline import outline
from ckptfmt.record import Record
from ckptfmt.schema import GENERIC_SCHEMA, SCHEMAS, TypedRecord, read_record
from ckptfmt.store.base import Store
from ckptfmt.stream import LongLine, RecordStream, StoredLine, StreamFacts, StreamReader
from ckptfmt.wire import DIGEST_BYTES, MAX_MANIFEST_BYTES

__all__ = ["ParticipantReader"]


@dataclass(frozen=True, slots=True)
class ParticipantReader:
    """The records of one participant, in order."""

    store: Store
    folder: Folder
    sealed: Sealed[ParticipantManifest]

    @classmethod
    def open(
        cls,
        store: Store,
        folder: Folder,
        participant: ParticipantId,
        checkpoint_id: str | None = None,
        expected: Expected | None = None,
    ) -> Self:
        """Read and verify a participant's manifest.

        ``expected`` is what ``checkpoint.json`` says of it; without it (an incomplete
        checkpoint) the manifest vouches for itself.

        Raises:
            MissingError: the manifest is not there.
            AbortedError: the participant's commit was given up.
            TornError, CorruptError, UnsupportedError: as :func:`decode_manifest`, and where
                the manifest is another one than was published, or lies in a folder that
                is not its own.
        """
        name = folder.manifest(participant)
        try:
            data = store.read_small(name, MAX_MANIFEST_BYTES)
            _check_expected(data, expected)
            sealed = decode_manifest(data, ParticipantManifest)
            if isinstance(sealed.body, Tombstone):
                raise AbortedError("the participant's commit was given up")
            _check_owner(sealed.body, participant, checkpoint_id)
        except CkptError as error:
            error.at(checkpoint=checkpoint_id, participant=str(participant), file=name)
            raise
        return cls(store, folder, sealed)

    @property
    def manifest(self) -> ParticipantManifest:
        """What the participant's manifest says."""
        return self.sealed.body

    @property
    def participant(self) -> ParticipantId:
        """Whose records these are."""
        return self.manifest.participant

    @property
    def episode_ids(self) -> list[str]:
        """The capture keys of the episodes that the records belong to, sorted."""
        return self.manifest.episode_ids

    @property
    def content_digest(self) -> str:
        """What tells equal records at any compression; see :class:`ParticipantManifest`."""
        return self.manifest.content_digest

    @property
    def raw_bytes(self) -> int:
        """Bytes of all record lines, each with its LF."""
        return sum(item.raw_bytes for item in self.manifest.objects)

    def check_sizes(self) -> None:
        """Whether every data object is there in its full size.

        Raises:
            MissingError: one is not there.
            TornError, CorruptError: one is shorter or longer than the manifest says.
        """
        for item in self.manifest.objects:
            self.check_size(item)

    def check_size(self, item: DataObject) -> None:
        """As :meth:`check_sizes`, for one data object."""
        name = self.data_name(item)
        try:
            size = self.store.size(name)
            says = f"the file has {size} bytes, the manifest says {item.size_bytes}"
            if size < item.size_bytes:
                raise TornError(says).at(offset=size)
            if size > item.size_bytes:
                raise CorruptError(says).at(offset=item.size_bytes)
        except CkptError as error:
            error.at(file=name, **self.place())
            raise

    def records(
        self, *, digest: bool = True, episodes: Collection[EpisodeId] | None = None
    ) -> Iterator[TypedRecord | Record]:
        """The records in order; payloads are not decoded.

        All checksums are verified on the way, and at the end of each object the SHA-256 of
        the file; ``digest=False`` leaves that last one out.  In the end the records are held
        against the index and the manifest.  So nothing is to be believed before the iterator
        has ended: to hand records over, use :meth:`load`.

        With ``episodes`` only their records are read and given; of the others no more than
        the bytes is verified.  The schema need be known only if there are such records.

        Raises:
            DataError: at the first damage, naming block, ordinal and offset.
        """
        if episodes is None:
            self.check_schema()
        elif met := {item.capture_key for item in episodes}.intersection(self.episode_ids):
            self._check_schema_of(sorted(met))
        agreement = Agreement(episodes)
        for item in self.manifest.objects:
            with self._located(item), self.stream(item) as stream:
                # Of a file with the right SHA-256 the record digests are right too.
                for stored in agreement.lines(stream, digests=not digest):
                    record = self._in_scope(stored, agreement)
                    if record is not None:
                        yield record
                if digest and stream.sha256 != item.sha256:
                    raise CorruptError("the file's SHA-256 is not the one in the manifest")
                agreement.check_index(stream)
        for _, error in agreement.faults(self.content_digest, self.episode_ids, self.index_keys()):
            raise error.at(**self.place())

    def _in_scope(self, stored: StoredLine, agreement: Agreement) -> TypedRecord | Record | None:
        try:
            if not agreement.concerns(stored.line):
                return None
            record = self.read(stored.line)
        except CkptError as error:
            error.at(ordinal=stored.ordinal, block=stored.block)
            raise
        agreement.add(stored.ordinal, record)
        return record

    def load(
        self, *, digest: bool = True, episodes: Collection[EpisodeId] | None = None
    ) -> list[TypedRecord | Record]:
        """All records, or those of ``episodes``, once everything is verified.

        Raises:
            DataError: as :meth:`records`; nothing is handed over then.
        """
        return list(self.records(digest=digest, episodes=episodes))

    def get(self, key: str) -> TypedRecord | Record:
        """The record with this key.

        Of each data object the directory and one page are read, and of the one that has the
        record one block.

        Raises:
            MissingError: no record has it.
            CorruptError: what was read is damaged, or the key stands there twice.
        """
        with self.find(key) as (record, line):
            return self.read(line.held().line) if isinstance(line, LongLine) else record

    @contextlib.contextmanager
    def find(self, key: str) -> Iterator[tuple[TypedRecord | Record, bytes | LongLine]]:
        """As :meth:`get`, with the line; of one that is large the record is but an outline.

        Raises:
            MissingError, CorruptError: as :meth:`get`.
        """
        self.check_schema()
        with contextlib.ExitStack() as streams:
            found: tuple[TypedRecord | Record, bytes | LongLine] | None = None
            for item in self.manifest.objects:
                with self._located(item):
                    stream = streams.enter_context(self.stream(item))
                    try:
                        line = stream.get_or_long(key)
                    except MissingError:
                        continue
                    record = self.read(outline(line) if isinstance(line, LongLine) else line)
                    if record.key != key:
                        # A block does not hold keys: only the record can contradict the index.
                        raise CorruptError(f"the index leads to record {record.key!a}").at(key=key)
                    if found is not None:
                        raise CorruptError("two records have the same key").at(key=key)
                    found = record, line
            if found is None:
                raise MissingError("there is no record with this key").at(key=key, **self.place())
            yield found

    def index_keys(self) -> list[Iterator[str]]:
        """Of each data object, the keys of its records, ascending; no record is read.

        Raises:
            DataError: while iterating: an index cannot be read.
        """
        return [self._keys(item) for item in self.manifest.objects]

    def _keys(self, item: DataObject) -> Iterator[str]:
        with self._located(item), self.stream(item) as stream:
            for entry in stream.entries():
                yield entry.key

    def indexes(self) -> list[Iterator[tuple[str, bytes]]]:
        """Of each data object, key and digest of its records in key order; no record is read.

        Raises:
            DataError: while iterating: an index cannot be read.
        """
        return [self._index(item) for item in self.manifest.objects]

    def _index(self, item: DataObject) -> Iterator[tuple[str, bytes]]:
        with self._located(item), self.stream(item) as stream:
            digests = b"".join(stream.digests())
            for entry in stream.entries():
                digest = digests[entry.ordinal * DIGEST_BYTES : (entry.ordinal + 1) * DIGEST_BYTES]
                if len(digest) != DIGEST_BYTES:
                    raise CorruptError("the index has no digest of the record").at(key=entry.key)
                yield entry.key, digest

    def data_name(self, item: DataObject) -> str:
        """The name of a data object in the store."""
        return self.folder.data(self.participant, item.name)

    def stream(self, item: DataObject) -> RecordStream:
        """The reader of one data object."""
        facts = StreamFacts(
            size_bytes=item.size_bytes,
            sha256=item.sha256,
            records=item.records,
            blocks=item.blocks,
            raw_bytes=item.raw_bytes,
            index_offset=item.index_offset,
            index_length=item.index_length,
        )
        return StreamReader(self.store.open_source(self.data_name(item)), facts)

    def place(self) -> dict[str, str]:
        """Where errors about these records are."""
        return {"checkpoint": self.manifest.checkpoint_id, "participant": str(self.participant)}

    def check_schema(self) -> None:
        """Whether this release knows the schema of the records.

        Raises:
            UnsupportedError: it does not; some of the episodes are named.
        """
        self._check_schema_of(self.manifest.episode_ids)

    def _check_schema_of(self, episodes: list[str]) -> None:
        manifest = self.manifest
        schema = SCHEMAS.get(manifest.kind)
        known = (GENERIC_SCHEMA, 1) if schema is None else (manifest.kind, schema.schema_version)
        if (manifest.schema, manifest.schema_version) != known:
            raise UnsupportedError(
                f"records of schema {manifest.schema[:40]!a} version "
                f"{manifest.schema_version} are not known here, for kind {manifest.kind} only "
                f"{known[0]} version {known[1]}; episodes {', '.join(episodes[:3])}",
                advice=f"read them with {manifest.provenance.library!a} or newer",
            ).at(**self.place())

    def read(self, line: bytes) -> TypedRecord | Record:
        """Read a line of this participant; payloads are not decoded.

        Raises:
            CorruptError: it is no record of the participant's schema.
        """
        return read_record(self.manifest.kind, line)

    @contextlib.contextmanager
    def _located(self, item: DataObject) -> Iterator[None]:
        try:
            yield
        except CkptError as error:
            error.at(file=self.data_name(item), **self.place())
            raise


def _check_expected(data: bytes, expected: Expected | None) -> None:
    if expected is None:
        return
    if len(data) < expected.manifest_bytes:
        raise TornError(
            f"the manifest has {len(data)} bytes, checkpoint.json says {expected.manifest_bytes}"
        ).at(offset=len(data))
    digest = hashlib.sha256(data).hexdigest()
    if len(data) > expected.manifest_bytes or digest != expected.manifest_sha256:
        raise CorruptError("the manifest is not the one that checkpoint.json names")


def _check_owner(
    manifest: ParticipantManifest, participant: ParticipantId, checkpoint_id: str | None
) -> None:
    if manifest.participant != participant:
        raise CorruptError(f"the manifest belongs to {manifest.participant}")
    if checkpoint_id is not None and manifest.checkpoint_id != checkpoint_id:
        raise CorruptError(f"the manifest belongs to checkpoint {manifest.checkpoint_id}")
