"""Every readable record of a damaged or unfinished stream, and what is lost.

Nothing is needed but the blocks themselves: HEAD, the index and END help if they are
there.  After damage the next piece is searched for by its magic, its tag and its
crc32c; a damaged zstd frame is decoded as far as it goes, and its records are judged
one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptfmt.errors import CorruptError, DataError, Location, UnsupportedError
from ckptfmt.stream.block import cut_lines, is_large, open_block
from ckptfmt.stream.codec import decompress_leniently
from ckptfmt.stream.framing import (
    END_BYTES,
    PREFIX_BYTES,
    BlockHeader,
    End,
    Head,
    Prefix,
    open_piece,
)
from ckptfmt.stream.long_line import LongLine, verify_long
from ckptfmt.stream.records import StoredLine
from ckptfmt.stream.source import RangeSource
from ckptfmt.wire import (
    EMPTY_ZSTD_FRAME,
    SKIPPABLE_MAGIC,
    TAG_BLOCK,
    TAG_BYTES,
    TAG_DIGESTS,
    TAG_END,
    TAG_HEAD,
    TAG_PAGE,
)

__all__ = ["Loss", "salvage", "salvage_or_long"]

_MAGIC: Final = SKIPPABLE_MAGIC.to_bytes(4, "little")
_CHUNK_BYTES: Final = 4 << 20
# What is searched for.  INDX is not: a hostile file could have each of its bytes begin
# one that claims 64 MiB, all to be read before they are found to be none.
_LANDMARKS: Final = frozenset({TAG_BLOCK, TAG_PAGE, TAG_DIGESTS, TAG_END})


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that could not be read.

    ``location`` has the file offset where it begins, block and first ordinal as far as
    they are known, ``end_offset`` where it ends.  ``records`` is how many records are
    lost with it; None where that cannot be told, or is told by another loss.
    """

    message: str
    location: Location
    end_offset: int | None = None
    records: int | None = None

    @property
    def error(self) -> CorruptError:
        """The same as an error, which says how many records are lost."""
        lost = f"; {self.records} of the records are lost" if self.records else ""
        return CorruptError(self.message + lost, self.location)


def salvage(source: RangeSource) -> Iterator[StoredLine | Loss]:
    """All records that are whole, as they lie in the file, and every loss.

    Never raises for what is stored, and only reads.  Memory does not grow with the
    number of records.

    Raises:
        StorageError: the store failed.
    """
    for found in salvage_or_long(source):
        yield found.held() if isinstance(found, LongLine) else found


def salvage_or_long(source: RangeSource) -> Iterator[StoredLine | LongLine | Loss]:
    """As :func:`salvage`, in memory that does not grow with the longest line.

    A line of more than :data:`~ckptfmt.stream.block.LARGE_BYTES` was verified as well, but is
    read again where it is used.
    """
    return _Salvage(source).run()


class _Window:
    """Range reads, a chunk at a time."""

    def __init__(self, source: RangeSource) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """What there is of this range."""
        size_bytes = min(size_bytes, self._source.size_bytes - offset)
        if size_bytes <= 0:
            return b""
        if not self._start <= offset <= offset + size_bytes <= self._start + len(self._data):
            wanted = max(size_bytes, _CHUNK_BYTES)
            self._data = self._source.read_at(offset, min(wanted, self._source.size_bytes - offset))
            self._start = offset
        start = offset - self._start
        return self._data[start : start + size_bytes]


class _Missing:
    """Which ordinals no block has brought so far."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.next_ordinal = 0

    def take(self, first: int, end: int) -> bool:
        """Note that a block brings these ordinals; False if one of them was there before."""
        if first >= self.next_ordinal:
            self.reach(first)
            self.next_ordinal = end
            return True
        for number, (gap_first, gap_end) in enumerate(self.gaps):
            if gap_first <= first and end <= gap_end:
                rest = [(gap_first, first), (end, gap_end)]
                self.gaps[number : number + 1] = [gap for gap in rest if gap[0] < gap[1]]
                return True
        return False

    def reach(self, end: int) -> None:
        """Note that the ordinals go on to ``end`` at least."""
        if end > self.next_ordinal:
            self.gaps.append((self.next_ordinal, end))
            self.next_ordinal = end


@dataclass(frozen=True, slots=True)
class _Piece:
    """An intact piece; ``content`` is decoded for the tags that matter here."""

    tag: bytes
    size_bytes: int
    content: BlockHeader | End | None


class _Salvage:
    def __init__(self, source: RangeSource) -> None:
        self._source = source
        self._window = _Window(source)
        self._missing = _Missing()
        self._uuid: bytes | None = None
        self._end: End | None = None
        self._offset = 0

    def run(self) -> Iterator[StoredLine | LongLine | Loss]:
        try:
            yield from self._front()
        except UnsupportedError as error:
            yield self._loss(error.message, 0, self._source.size_bytes)
            return
        while self._offset < self._source.size_bytes:
            yield from self._next()
        yield from self._conclude()

    def _front(self) -> Iterator[Loss]:
        start = len(EMPTY_ZSTD_FRAME)
        head = self._head(start)
        whole = self._window.read(0, start) == EMPTY_ZSTD_FRAME
        if head is not None:
            self._uuid, self._offset = head
        elif whole:
            self._offset = start
        if not whole and self._offset:
            yield self._loss("the file does not begin as a stream does", 0, start)
        if self._uuid is None:
            end = self._piece(max(self._source.size_bytes - END_BYTES, 0))
            if end is not None and isinstance(end.content, End):
                self._uuid = end.content.uuid

    def _head(self, offset: int) -> tuple[bytes, int] | None:
        piece = self._piece(offset)
        if piece is None or piece.tag != TAG_HEAD:
            return None
        try:
            head = Head.decode(self._window.read(offset, piece.size_bytes))
        except CorruptError:
            return None
        return head.uuid, offset + piece.size_bytes

    def _next(self) -> Iterator[StoredLine | LongLine | Loss]:
        offset = self._offset
        piece = self._piece(offset)
        if piece is None or self._end is not None:
            self._offset = self._search(offset + 1)
            yield self._loss("these bytes are no piece of the stream", offset, self._offset)
        elif isinstance(piece.content, BlockHeader):
            yield from self._block(piece.content, offset, offset + piece.size_bytes)
        else:
            self._offset += piece.size_bytes
            if isinstance(piece.content, End):
                self._end = piece.content
                self._missing.reach(piece.content.records)

    def _block(
        self, header: BlockHeader, offset: int, start: int
    ) -> Iterator[StoredLine | LongLine | Loss]:
        end = start + header.stored_bytes
        self._offset = end
        if self._uuid not in (None, header.uuid):
            yield self._loss(f"a block of stream {header.uuid.hex()}", offset, end)
        elif not self._missing.take(header.first_ordinal, header.next_ordinal):
            yield self._loss("records that were there before", offset, end, header.number)
        else:
            self._uuid = header.uuid
            lines, whole = self._decode(header, start)
            yield from self._sorted_out(header, lines, offset, end)
            if whole:
                return
        # Bytes may be missing or too many here: then the next piece is not where it should be.
        if end != self._source.size_bytes and self._piece(end) is None:
            self._offset = self._search(start)

    def _decode(
        self, header: BlockHeader, start: int
    ) -> tuple[list[bytes | LongLine | CorruptError], bool]:
        """What there is of each record, and whether the frame was whole."""
        if is_large(header):
            line, whole = self._long(header, start)
            return [line], whole
        frame = self._window.read(start, header.stored_bytes)
        try:
            return list(cut_lines(header, open_block(header, frame))), True
        except CorruptError as error:
            raw = decompress_leniently(frame, header.raw_bytes)
            if raw is None:
                return [error] * len(header.lengths), False
            return list(cut_lines(header, raw)), False

    def _long(self, header: BlockHeader, start: int) -> tuple[LongLine | CorruptError, bool]:
        """The one record of a large block; the frame's own checksum may be wrong."""
        try:
            return verify_long(header, self._source, start), True
        except CorruptError as error:
            first = error
        try:
            return verify_long(header, self._source, start, checksum=False), False
        except CorruptError:
            return first, False

    def _sorted_out(
        self,
        header: BlockHeader,
        lines: list[bytes | LongLine | CorruptError],
        offset: int,
        end: int,
    ) -> Iterator[StoredLine | LongLine | Loss]:
        start = lost = 0
        why = ""
        for ordinal, line in enumerate(lines, header.first_ordinal):
            if isinstance(line, CorruptError):
                why = why if lost else line.message
                lost += 1
            else:
                if lost:
                    yield self._loss(why, offset, end, header.number, ordinal - lost, lost)
                    lost = 0
                if isinstance(line, LongLine):
                    yield line
                else:
                    yield StoredLine(ordinal, header.number, start, line)
            start += header.lengths[ordinal - header.first_ordinal] + 1
        if lost:
            yield self._loss(why, offset, end, header.number, header.next_ordinal - lost, lost)

    def _conclude(self) -> Iterator[Loss]:
        for first, end in self._missing.gaps:
            where = Location(file=self._source.name, ordinal=first)
            yield Loss(f"{end - first} records are not in the file", where, None, end - first)
        if self._end is None:
            size = self._source.size_bytes
            yield self._loss("no END: whether more records followed cannot be told", size, size)

    def _piece(self, offset: int) -> _Piece | None:
        """The piece that begins here, if it is intact."""
        try:
            prefix = Prefix.decode(self._window.read(offset, PREFIX_BYTES))
            data = self._window.read(offset, prefix.size_bytes)
            content: BlockHeader | End | None = None
            if prefix.tag == TAG_BLOCK:
                content = BlockHeader.decode(data)
            elif prefix.tag == TAG_END:
                content = End.decode(data)
            else:
                open_piece(data, prefix.tag)
        except DataError:
            return None
        return _Piece(prefix.tag, prefix.size_bytes, content)

    def _search(self, offset: int) -> int:
        """Where the next intact piece begins; the end of the file if none does."""
        while offset < self._source.size_bytes:
            data = self._window.read(offset, _CHUNK_BYTES)
            at = data.find(_MAGIC)
            while at >= 0:
                if self._is_landmark(offset + at):
                    return offset + at
                at = data.find(_MAGIC, at + 1)
            # The magic may lie across the border.
            offset += max(len(data) - len(_MAGIC) + 1, 1)
        return self._source.size_bytes

    def _is_landmark(self, offset: int) -> bool:
        prefix = self._window.read(offset, PREFIX_BYTES)
        return prefix[-TAG_BYTES:] in _LANDMARKS and self._piece(offset) is not None

    def _loss(
        self,
        message: str,
        offset: int,
        end_offset: int,
        block: int | None = None,
        ordinal: int | None = None,
        records: int | None = None,
    ) -> Loss:
        place = Location(file=self._source.name, block=block, offset=offset, ordinal=ordinal)
        return Loss(message, place, min(end_offset, self._source.size_bytes), records)
