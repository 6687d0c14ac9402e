"""Single records through the index: the directory, one page, one block."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

from ckptfmt.errors import CorruptError, DataError, MissingError
from ckptfmt.stream.block import LARGE_BYTES, cut_line, is_large, open_block, single_line
from ckptfmt.stream.diagnosis import check_size, diagnose, past_end
from ckptfmt.stream.framing import END_BYTES, PREFIX_BYTES, BlockHeader, End, Prefix
from ckptfmt.stream.index import DigestSection, Entry, Index, Page, duplicate
from ckptfmt.stream.long_line import LongLine, verify_long
from ckptfmt.stream.records import StreamFacts
from ckptfmt.stream.source import RangeSource
from ckptfmt.wire import DIGEST_BYTES

__all__ = ["Lookup"]


class Lookup:
    """Range reads of one stream.  With ``facts`` the directory is found without END.

    Every method raises :class:`DataError` for what is damaged where it has to look,
    and :class:`StorageError` where the store failed.
    """

    def __init__(self, source: RangeSource, facts: StreamFacts | None) -> None:
        self._source = source
        self._facts = facts
        self._index: Index | None = None

    def index(self) -> Index:
        """The directory; read once."""
        if self._index is None:
            check_size(self._source, self._facts)
            offset, size_bytes = self._directory()
            try:
                index = Index.decode(self._read(offset, size_bytes))
                _check_index(index, offset, self._facts)
            except DataError as error:
                error.at(offset=offset)
                raise
            self._index = index
        return self._index

    def entry(self, key: str) -> Entry:
        """The index entry of the record with this key; one range is read.

        Raises:
            MissingError: no record has it.
            CorruptError: more than one has it.
        """
        pages = self.index().pages
        last = bisect_right(pages, key, key=lambda page: page.first_key) - 1
        first = last
        # Only a damaged file has the key in the page before as well; they lie side by side.
        while first > 0 and pages[first].first_key == key:
            first -= 1
        found = [entry for entry in self._entries(first, last + 1) if entry.key == key]
        if not found:
            raise MissingError("there is no record with this key").at(key=key)
        if len(found) > 1:
            raise duplicate(key)
        return found[0]

    def entry_at(self, ordinal: int) -> Entry:
        """The index entry of a record; one range is read if the keys ascend with the ordinals.

        Raises:
            MissingError: the stream has no such record.
        """
        index = self.index()
        if not 0 <= ordinal < index.records:
            raise MissingError(f"the stream has {index.records} records").at(ordinal=ordinal)
        for number in self._likely_pages(ordinal):
            for entry in self._entries(number, number + 1):
                if entry.ordinal == ordinal:
                    return entry
        raise CorruptError("the index does not list the record").at(ordinal=ordinal)

    def _likely_pages(self, ordinal: int) -> list[int]:
        # Writers sort records by key; then the n-th entry is the n-th record.
        pages = self.index().pages
        ends = list(accumulate(page.records for page in pages))
        likely = bisect_right(ends, ordinal)
        return [likely, *(number for number in range(len(pages)) if number != likely)]

    def entries(self) -> Iterator[Entry]:
        """All entries in the order of their keys, page by page.

        Raises:
            CorruptError: while iterating; also where two entries have the same key.
        """
        last_key = ""
        for number in range(len(self.index().pages)):
            for entry in self._entries(number, number + 1):
                if entry.key <= last_key:
                    raise duplicate(entry.key)
                last_key = entry.key
                yield entry

    def digests(self) -> Iterator[bytes]:
        """All record digests in the order of the ordinals, section by section."""
        records = 0
        for ref in self.index().sections:
            try:
                section = DigestSection.decode(self._read(ref.offset, ref.size_bytes))
                self._check_uuid(section.uuid)
                if (section.first_ordinal, section.count) != (records, ref.records):
                    raise CorruptError("a section of digests is not the one of the directory")
            except DataError as error:
                error.at(offset=ref.offset)
                raise
            records += section.count
            for start in range(0, len(section.digests), DIGEST_BYTES):
                yield section.digests[start : start + DIGEST_BYTES]

    def line(self, entry: Entry) -> bytes:
        """The record line of an entry; one range is read.

        Raises:
            CorruptError: the block is damaged, the line is, or it is not where the entry says.
        """
        with _placed(entry):
            data = self._read(entry.block_offset, entry.block_length)
            header, piece_bytes = self._header(data, entry)
            with _placed(entry, header):
                line = _line_of(header, data[piece_bytes:], entry)
                if isinstance(line, CorruptError):
                    raise line
        return line

    def line_or_long(self, entry: Entry) -> bytes | LongLine:
        """As :meth:`line`; a large line is verified, but not held.

        Raises:
            CorruptError: as :meth:`line`.
        """
        if entry.length < LARGE_BYTES:
            return self.line(entry)
        with _placed(entry):
            prefix = Prefix.decode(self._read(entry.block_offset, PREFIX_BYTES))
            data = self._read(entry.block_offset, prefix.size_bytes)
            header, piece_bytes = self._header(data, entry)
            if not is_large(header):
                return self.line(entry)
            with _placed(entry, header):
                _check_place(header, entry.block_length - piece_bytes, entry)
                self._require(entry.block_offset, entry.block_length)
                return verify_long(header, self._source, entry.block_offset + piece_bytes)

    def _header(self, data: bytes, entry: Entry) -> tuple[BlockHeader, int]:
        piece_bytes = Prefix.decode(data[:PREFIX_BYTES]).size_bytes
        header = BlockHeader.decode(data[:piece_bytes])
        with _placed(entry, header):
            self._check_uuid(header.uuid)
        return header, piece_bytes

    def _directory(self) -> tuple[int, int]:
        """Where INDX begins and how long it is."""
        if self._facts is not None:
            return self._facts.index_offset, self._facts.index_length
        offset = self._source.size_bytes - END_BYTES
        try:
            end = End.decode(self._read(max(offset, 0), END_BYTES))
        except DataError:
            raise diagnose(self._source) from None
        if end.size_bytes != self._source.size_bytes:
            raise diagnose(self._source)
        return end.index_offset, end.index_length

    def _entries(self, first: int, stop: int) -> Iterator[Entry]:
        refs = self.index().pages[first:stop] if first >= 0 else ()
        if not refs:
            return
        start = refs[0].offset
        data = self._read(start, sum(ref.size_bytes for ref in refs))
        for number, ref in enumerate(refs, first):
            try:
                page = Page.decode(data[ref.offset - start :][: ref.size_bytes])
                self._check_uuid(page.uuid)
                if (page.number, len(page.entries), page.entries[0].key) != (
                    number,
                    ref.records,
                    ref.first_key,
                ):
                    raise CorruptError("a page of the index is not the one of the directory")
            except DataError as error:
                error.at(offset=ref.offset)
                raise
            yield from page.entries

    def _check_uuid(self, uuid: bytes) -> None:
        if uuid != self.index().uuid:
            raise CorruptError(f"a piece of stream {uuid.hex()} in {self.index().uuid.hex()}")

    def _read(self, offset: int, size_bytes: int) -> bytes:
        self._require(offset, size_bytes)
        return self._source.read_at(offset, size_bytes)

    def _require(self, offset: int, size_bytes: int) -> None:
        end = offset + size_bytes
        if end > self._source.size_bytes:
            # The size was judged before, so it is the range that is wrong.
            raise past_end(self._source, offset, end, whole=True)


def _check_index(index: Index, offset: int, facts: StreamFacts | None) -> None:
    if index.sections:
        last = index.sections[-1]
        if last.offset + last.size_bytes != offset:
            raise CorruptError(f"the directory ends at {last.offset + last.size_bytes}")
    if facts is None:
        return
    found = (index.records, index.blocks, index.raw_bytes)
    stated = (facts.records, facts.blocks, facts.raw_bytes)
    if found != stated:
        raise CorruptError(
            f"INDX counts records, blocks and raw bytes as {found}, and the manifest as {stated}"
        )


@contextmanager
def _placed(entry: Entry, header: BlockHeader | None = None) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        block = None if header is None else header.number
        error.at(block=block, ordinal=entry.ordinal, offset=entry.block_offset, key=entry.key)
        raise


def _check_place(header: BlockHeader, frame_bytes: int, entry: Entry) -> int:
    """Which of the block's lines the entry is about."""
    index = entry.ordinal - header.first_ordinal
    if not 0 <= index < len(header.lengths) or (
        sum(header.lengths[:index]) + index,
        header.lengths[index],
    ) != (entry.offset, entry.length):
        raise CorruptError("the record is not where the index says")
    if frame_bytes != header.stored_bytes:
        raise CorruptError(
            f"a zstd frame of {frame_bytes} bytes in the index, and {header.stored_bytes} in BLCK"
        )
    return index


def _line_of(header: BlockHeader, frame: bytes, entry: Entry) -> bytes | CorruptError:
    index = _check_place(header, len(frame), entry)
    if is_large(header):
        return single_line(header, io.BytesIO(frame).read)
    return cut_line(header, open_block(header, frame), index)
