"""The records of one file of Gym's, as any other stream gives them, and the index that it lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import Final, NamedTuple, Self

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    DataError,
    Location,
    MissingError,
    StateError,
    TornError,
)
from ckptfmt.nemo_gym.lines import GymRecord, Order, read_gym_line
from ckptfmt.stream import Entry, LongLine, Loss, RangeSource, StoredLine
from ckptfmt.wire import DIGEST_BYTES, MAX_RECORD_BYTES

__all__ = ["GymFacts", "GymIndex", "GymStream", "build_index"]

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GymFacts:
    """What is stated of a file of records, as far as it is, and the kind that they are of."""

    kind: str
    records: int | None = None
    sha256: str | None = None


class _RawLine(NamedTuple):
    ordinal: int
    offset: int
    text: bytes


class _Row(NamedTuple):
    """Where a record lies in Gym's file, and what its line is in this format."""

    key: str
    ordinal: int
    offset: int
    length: int
    line_length: int
    digest: bytes


@dataclass(slots=True)
class GymIndex:
    """What one reading of a file told.

    ``fault`` is the first line that is no record, or that there are fewer or more than the
    manifest says; ``digest_fault`` that the digest is another one, where nothing tells which
    record that is about; ``key_fault`` that two records have one key.
    ``orders`` are of those records only whose members were not in the order of this format.
    """

    rows: list[_Row] = field(default_factory=list)
    orders: dict[int, Order] = field(default_factory=dict)
    episode_ids: list[str] = field(default_factory=list)
    content_digest: str = ""
    raw_bytes: int = 0
    fault: CkptError | None = None
    digest_fault: CkptError | None = None
    key_fault: CkptError | None = None

    def check_bytes(self) -> None:
        """The file is what was written.

        Raises:
            CkptError: it is not.
        """
        if (fault := self.fault or self.digest_fault) is not None:
            raise fault

    def check_keys(self) -> None:
        """Every record can be told by its key.

        Raises:
            CkptError: one is no record, or has the key of another.
        """
        if (fault := self.fault or self.key_fault) is not None:
            raise fault


class _Lines:
    """The lines of a file, whatever they hold; afterwards the digest of all its bytes."""

    def __init__(self, source: RangeSource) -> None:
        self._source = source
        self._hash = hashlib.sha256()
        self.count = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def read(self) -> Iterator[_RawLine]:
        """All of them.

        Raises:
            CorruptError: one is longer than a record may be.
            TornError, StorageError: as :meth:`RangeSource.read_at`.
        """
        pieces: list[bytes] = []
        begin = at = 0
        while at < self._source.size_bytes:
            chunk = self._source.read_at(at, min(_CHUNK_BYTES, self._source.size_bytes - at))
            self._hash.update(chunk)
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                pieces.append(chunk[start:end])
                yield self._made(begin, pieces)
                start = end + 1
                begin = at + start
            pieces.append(chunk[start:])
            at += len(chunk)
            if at - begin > MAX_RECORD_BYTES:
                raise CorruptError(f"a line of more than {MAX_RECORD_BYTES:,} bytes").at(
                    ordinal=self.count, offset=begin
                )
        if begin < at:
            yield self._made(begin, pieces)

    def _made(self, begin: int, pieces: list[bytes]) -> _RawLine:
        line = _RawLine(self.count, begin, b"".join(pieces))
        pieces.clear()
        self.count += 1
        return line


class GymStream:
    """A :class:`ckptfmt.stream.RecordStream` over Gym's file; each line is one of this format.

    ``index`` is asked only where it is needed, since it costs a reading of the whole file.
    An ``offset`` is that of Gym's line in the file.
    """

    def __init__(self, source: RangeSource, facts: GymFacts, index: Callable[[], GymIndex]) -> None:
        self._source = source
        self._facts = facts
        self._index = index
        self._sha256: str | None = None

    def gym_records(self) -> Iterator[tuple[_RawLine, GymRecord | CkptError]]:
        """Every line and the record that it is, or what is wrong with it; then the digest is known.

        Raises:
            DataError, StorageError: the file cannot be read on.
        """
        lines = _Lines(self._source)
        for raw in lines.read():
            try:
                yield raw, read_gym_line(self._facts.kind, raw.text)
            except DataError as error:
                yield raw, error.at(file=self._source.name, ordinal=raw.ordinal, offset=raw.offset)
        self._sha256 = lines.sha256

    def count_fault(self, records: int) -> CkptError | None:
        """What is wrong if there are so many lines."""
        wanted = self._facts.records
        if wanted is None or records == wanted:
            return None
        if records < wanted:
            return TornError(f"the file ends after {records:,} of {wanted:,} records").at(
                file=self._source.name, offset=self._source.size_bytes
            )
        return CorruptError(f"the file has {records:,} records, the manifest says {wanted:,}").at(
            file=self._source.name
        )

    def digest_fault(self) -> CkptError | None:
        """What is wrong with the digest, once all was read."""
        if self._facts.sha256 in (None, self.sha256):
            return None
        return CorruptError("the file's SHA-256 is not the one in the manifest").at(
            file=self._source.name
        )

    @property
    def sha256(self) -> str:
        """As :attr:`ckptfmt.stream.RecordStream.sha256`."""
        if self._sha256 is None:
            raise StateError("the SHA-256 is known once all lines have been read")
        return self._sha256

    def lines(self, *, digests: bool = True) -> Iterator[StoredLine]:
        """All records in order.

        Raises:
            TornError, CorruptError: a line is no record, or there are fewer or more of them
                than the manifest says; the digest is left to the caller.
        """
        records = 0
        for raw, found in self.gym_records():
            if isinstance(found, CkptError):
                raise found
            records += 1
            yield StoredLine(raw.ordinal, 0, raw.offset, found.line)
        fault = self.count_fault(records)
        if fault is not None:
            raise fault

    def lines_or_long(self, *, digests: bool = True) -> Iterator[StoredLine | LongLine]:
        """As :meth:`lines`: a line of Gym's has to be held to become one of this format."""
        return self.lines(digests=digests)

    def get(self, key: str) -> bytes:
        """The line of the record with this key; nothing is believed of a damaged file.

        Raises:
            MissingError: no record has it.
            DataError: the file is damaged anywhere, or two records have the key.
        """
        index = self._index()
        index.check_bytes()
        index.check_keys()
        row = next((row for row in index.rows if row.key == key), None)
        if row is None:
            raise MissingError("there is no record with this key").at(key=key)
        text = self._source.read_at(row.offset, row.length)
        return read_gym_line(self._facts.kind, text).line

    def get_or_long(self, key: str) -> bytes | LongLine:
        """As :meth:`get`; see :meth:`lines_or_long`."""
        return self.get(key)

    def entries(self) -> Iterator[Entry]:
        """Every readable record in the order of the keys, and then what is wrong with the others.

        Raises:
            DataError: after the last one, the first line that is no record, or two of one
                key, or a number of records that the manifest does not say.
        """
        index = self._index()
        for row in sorted(index.rows):
            yield Entry(row.key, row.ordinal, row.offset, row.length, 0, row.line_length)
        index.check_keys()

    def digests(self) -> Iterator[bytes]:
        """The record digests in order."""
        for row in self._index().rows:
            yield row.digest

    def salvage(self) -> Iterator[StoredLine | Loss]:
        """Every record that can be read, and every loss; never raises for what is stored."""
        records = 0
        told = False
        try:
            for raw, found in self.gym_records():
                if isinstance(found, CkptError):
                    told = True
                    end = raw.offset + len(raw.text)
                    yield Loss(found.message, found.location, end_offset=end, records=1)
                else:
                    yield StoredLine(raw.ordinal, 0, raw.offset, found.line)
                records += 1
        except DataError as error:
            yield Loss(error.message, error.location)
            return
        # Another digest is no news where something is lost already.
        fault = self.count_fault(records) or (None if told else self.digest_fault())
        if fault is not None:
            yield Loss(fault.message, fault.location)

    def salvage_or_long(self) -> Iterator[StoredLine | LongLine | Loss]:
        """As :meth:`salvage`; see :meth:`lines_or_long`."""
        return self.salvage()

    def close(self) -> None:
        """Close the file; may be repeated."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def build_index(stream: GymStream) -> GymIndex:
    """Read a file once; what is wrong with it is kept in :attr:`GymIndex.fault`."""
    index = GymIndex()
    content = hashlib.sha256()
    episodes: set[str] = set()
    records = 0
    try:
        for raw, found in stream.gym_records():
            records += 1
            if isinstance(found, CkptError):
                index.fault = index.fault or found
                continue
            row = _row(raw, found)
            content.update(row.line_length.to_bytes(8, "little") + row.digest)
            episodes.add(found.record.episode_id.capture_key)
            index.rows.append(row)
            index.raw_bytes += row.line_length + 1
            if found.order is not None:
                index.orders[raw.ordinal] = found.order
        index.fault = index.fault or stream.count_fault(records)
        index.digest_fault = stream.digest_fault()
    except CkptError as error:
        index.fault = index.fault or error
    index.content_digest = content.hexdigest()
    index.episode_ids = sorted(episodes)
    index.key_fault = _twin(index.rows)
    return index


def _row(raw: _RawLine, found: GymRecord) -> _Row:
    return _Row(
        key=found.record.key,
        ordinal=raw.ordinal,
        offset=raw.offset,
        length=len(raw.text),
        line_length=len(found.line),
        digest=hashlib.sha256(found.line).digest()[:DIGEST_BYTES],
    )


def _twin(rows: list[_Row]) -> CkptError | None:
    keys = sorted(row.key for row in rows)
    for key, group in groupby(keys):
        if len(list(group)) > 1:
            return CorruptError("two records have the same key", Location(key=key))
    return None
