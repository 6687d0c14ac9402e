"""Reads a stream: all of it in order, or single records through the index."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self, TypeVar

from ckptfmt.errors import CkptError, StateError
from ckptfmt.stream.diagnosis import check_size
from ckptfmt.stream.feed import Feed
from ckptfmt.stream.framing import Head
from ckptfmt.stream.index import Entry
from ckptfmt.stream.long_line import LongLine
from ckptfmt.stream.lookup import Lookup
from ckptfmt.stream.records import StoredLine, StreamFacts
from ckptfmt.stream.salvage import Loss, salvage, salvage_or_long
from ckptfmt.stream.scan import Scan, read_head
from ckptfmt.stream.source import RangeSource
from ckptfmt.wire import MAX_HEAD_BYTES

__all__ = ["RecordStream", "StreamReader"]

_T = TypeVar("_T")


class RecordStream(Protocol):
    """The records of one data object, whatever the layout; closed by its context manager.

    :class:`StreamReader` says what each method gives and raises.
    """

    @property
    def sha256(self) -> str:
        """SHA-256 of the file, once all lines have been read."""

    def lines(self, *, digests: bool = True) -> Iterator[StoredLine]:
        """All records in order; strict."""

    def lines_or_long(self, *, digests: bool = True) -> Iterator[StoredLine | LongLine]:
        """The same, without holding what is large."""

    def get(self, key: str) -> bytes:
        """The line of the record with this key."""

    def get_or_long(self, key: str) -> bytes | LongLine:
        """The same, without holding what is large."""

    def entries(self) -> Iterator[Entry]:
        """The index in the order of the keys."""

    def digests(self) -> Iterator[bytes]:
        """The record digests in the order of the ordinals."""

    def salvage(self) -> Iterator[StoredLine | Loss]:
        """Every record that can be read, and every loss."""

    def salvage_or_long(self) -> Iterator[StoredLine | LongLine | Loss]:
        """The same, without holding what is large."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class StreamReader:
    """One stream; as a context manager it closes its source.

    Nothing is read before a method is called.  With ``facts``, what a manifest states of
    the stream, sizes are judged before anything is read, and single records need one
    request less.  Every method raises, with file, block, offset, ordinal and key as far
    as they are known:

    Raises:
        TornError: the file ends before its content does.
        CorruptError: it is not what was written.
        UnsupportedError: it was written by a later major version.
        StorageError: the store failed.
    """

    def __init__(self, source: RangeSource, facts: StreamFacts | None = None) -> None:
        self._source = source
        self._facts = facts
        self._lookup = Lookup(source, facts)
        self._sha256: str | None = None

    def head(self) -> Head:
        """Whose stream it is; one range is read."""
        with self._located():
            check_size(self._source, self._facts)
            whole = self._facts is not None
            return read_head(Feed(self._source, whole=whole, chunk_bytes=MAX_HEAD_BYTES))

    def lines(self, *, digests: bool = True) -> Generator[StoredLine, None, None]:
        """All records in order; each line is a bytes object of its own.

        Strict: every checksum is verified, the index is held against the records, and the
        file against its size and ``facts``, except for their SHA-256, which the caller
        compares with :attr:`sha256`.  What is wrong with the index shows after the last
        record only.  Blocks are decoded ahead on two threads, which end with the
        generator: exhaust it or close it.

        ``digests=False`` does not compute the record digests anew.  For a caller that
        compares :attr:`sha256` they could only show that the writer was wrong, and they
        are two fifths of the work.
        """
        scan = Scan(self._source, self._facts, digests=digests)
        return self._strictly(scan, scan.lines())

    def lines_or_long(
        self, *, digests: bool = True
    ) -> Generator[StoredLine | LongLine, None, None]:
        """As :meth:`lines`, in memory that does not grow with the longest line.

        A line of more than :data:`~ckptfmt.stream.block.LARGE_BYTES` was verified as well,
        but is read again where it is used, while the reader is open.
        """
        scan = Scan(self._source, self._facts, digests=digests)
        return self._strictly(scan, scan.lines_or_long())

    def _strictly(self, scan: Scan, lines: Iterator[_T]) -> Generator[_T, None, None]:
        with self._located():
            try:
                yield from lines
            except CkptError as error:
                self._add_key(error)
                raise
        self._sha256 = scan.sha256

    @property
    def sha256(self) -> str:
        """SHA-256 of the file in lower-case hex.

        Raises:
            StateError: :meth:`lines` has not been exhausted.
        """
        if self._sha256 is None:
            raise StateError("the SHA-256 is known once all lines have been read")
        return self._sha256

    def get(self, key: str) -> bytes:
        """The line of the record with this key: of the directory, one page and one block.

        Raises:
            MissingError: no record has it.
            CorruptError: more than one has it, or what was read is damaged.
        """
        with self._located():
            return self._lookup.line(self._lookup.entry(key))

    def get_or_long(self, key: str) -> bytes | LongLine:
        """As :meth:`get`; what is large is given as by :meth:`lines_or_long`."""
        with self._located():
            return self._lookup.line_or_long(self._lookup.entry(key))

    def at(self, ordinal: int) -> bytes:
        """As :meth:`get`, by ordinal; more pages are read if keys do not ascend with ordinals.

        Raises:
            MissingError: the stream has no such record.
        """
        with self._located():
            return self._lookup.line(self._lookup.entry_at(ordinal))

    def key_at(self, ordinal: int) -> str:
        """The key of a record, from the index alone.

        Raises:
            MissingError: the stream has no such record.
        """
        with self._located():
            return self._lookup.entry_at(ordinal).key

    def entries(self) -> Iterator[Entry]:
        """The index in the order of the keys, page by page.

        Raises:
            CorruptError: while iterating; also where a key stands twice.
        """
        with self._located():
            yield from self._lookup.entries()

    def digests(self) -> Iterator[bytes]:
        """The record digests in the order of the ordinals, section by section."""
        with self._located():
            yield from self._lookup.digests()

    def salvage(self) -> Iterator[StoredLine | Loss]:
        """As :func:`ckptfmt.stream.salvage`, with keys as far as the index still tells them."""
        return map(self._keyed, salvage(self._source))

    def salvage_or_long(self) -> Iterator[StoredLine | LongLine | Loss]:
        """As :meth:`salvage`; what is large is given as by :meth:`lines_or_long`."""
        return map(self._keyed, salvage_or_long(self._source))

    def _keyed(self, found: _T) -> _T:
        if isinstance(found, Loss) and found.location.ordinal is not None:
            with suppress(CkptError):
                key = self.key_at(found.location.ordinal)
                return replace(found, location=replace(found.location, key=key))
        return found

    def close(self) -> None:
        """Close the source; may be repeated."""
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

    @contextmanager
    def _located(self) -> Iterator[None]:
        try:
            yield
        except CkptError as error:
            error.at(file=self._source.name)
            raise

    def _add_key(self, error: CkptError) -> None:
        # A block does not hold the keys of its records; the index does, if it is whole.
        ordinal = error.location.ordinal
        if ordinal is None:
            return
        try:
            error.at(key=self.key_at(ordinal))
        except CkptError:
            return
