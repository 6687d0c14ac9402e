"""One block of records: encoded for the writer, cut into lines for the readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ckptfmt.errors import CorruptError, RefusedError
from ckptfmt.stream.checksum import LineChecks, crc32c
from ckptfmt.stream.codec import Compressor, decompress, decompress_large
from ckptfmt.stream.framing import BlockHeader
from ckptfmt.stream.records import Line

__all__ = [
    "LARGE_BYTES",
    "EncodedBlock",
    "cut_line",
    "cut_lines",
    "encode_block",
    "is_large",
    "line_length",
    "open_block",
    "single_line",
]

# A block above this is compressed in pieces, and never held twice by a reader.
LARGE_BYTES: Final = 4 << 20

_LF: Final = b"\n"


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block ready to be written: the BLCK piece, the zstd frame, and what the index needs."""

    header: BlockHeader
    piece: bytes
    frame: Sequence[bytes]
    digests: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """BLCK piece and zstd frame together."""
        return len(self.piece) + self.header.stored_bytes


def line_length(line: Line) -> int:
    """The length in bytes of a line that lies in pieces."""
    return sum(map(len, line))


def encode_block(
    compressor: Compressor,
    uuid: bytes,
    number: int,
    first_ordinal: int,
    lines: Sequence[Line],
    checks: Sequence[LineChecks],
) -> EncodedBlock:
    """Compress the lines of a block, whose checks are known.

    Raises:
        RefusedError: a line holds a line break.
    """
    lengths = tuple(map(line_length, lines))
    raw_bytes = sum(lengths) + len(lengths)
    if raw_bytes > LARGE_BYTES:
        frame = compressor.compress_pieces(_checked(lines, first_ordinal), raw_bytes)
    else:
        raw = b"".join(piece for line in lines for piece in (*line, _LF))
        _refuse_breaks(raw, lengths, first_ordinal)
        frame = [compressor.compress(raw)]
    header = BlockHeader(
        uuid,
        number,
        first_ordinal,
        raw_bytes,
        sum(map(len, frame)),
        lengths,
        tuple(check.crc for check in checks),
    )
    return EncodedBlock(header, header.encode(), frame, tuple(check.digest for check in checks))


def _checked(lines: Sequence[Line], first_ordinal: int) -> Iterator[bytes]:
    for ordinal, line in enumerate(lines, first_ordinal):
        for part in _parts(line):
            if _has_break(part):
                raise _line_break(ordinal)
            yield part
        yield _LF


def _parts(line: Line) -> Iterator[bytes]:
    # In parts, so that what the compressor puts out at once stays small.
    for piece in line:
        view = memoryview(piece)
        for start in range(0, len(view), LARGE_BYTES):
            yield bytes(view[start : start + LARGE_BYTES])


def _refuse_breaks(raw: bytes, lengths: Sequence[int], first_ordinal: int) -> None:
    start = 0
    for ordinal, length in enumerate(lengths, first_ordinal):
        end = start + length
        if raw.find(b"\n", start, end) >= 0 or raw.find(b"\r", start, end) >= 0:
            raise _line_break(ordinal)
        start = end + 1


def _has_break(data: bytes) -> bool:
    return b"\n" in data or b"\r" in data


def _line_break(ordinal: int) -> RefusedError:
    return RefusedError("a record line holds a line break").at(ordinal=ordinal)


def is_large(header: BlockHeader) -> bool:
    """Whether the block is one record that is to be decoded straight into its line."""
    return len(header.lengths) == 1 and header.raw_bytes > LARGE_BYTES


def open_block(header: BlockHeader, frame: bytes) -> bytes:
    """The raw bytes of a block.

    Raises:
        CorruptError: the zstd frame is not what the header says, or does not decode.
    """
    try:
        return decompress(frame, header.raw_bytes)
    except CorruptError as error:
        _placed(error, header)
        raise


def _placed(error: CorruptError, header: BlockHeader) -> None:
    alone = len(header.lengths) == 1
    error.at(block=header.number, ordinal=header.first_ordinal if alone else None)


def single_line(header: BlockHeader, read: Callable[[int], bytes]) -> bytes | CorruptError:
    """The line of a block for which :func:`is_large` holds; ``read(n)`` gives the frame's bytes.

    Raises:
        CorruptError: as :func:`open_block`.
    """
    try:
        line, last = decompress_large(read, header.stored_bytes, header.raw_bytes)
    except CorruptError as error:
        _placed(error, header)
        raise
    return _judged(header, 0, line, last)


def cut_lines(header: BlockHeader, raw: bytes) -> Iterator[bytes | CorruptError]:
    """The lines of a decoded block, each an object of its own, or what is wrong with them."""
    start = 0
    for index, length in enumerate(header.lengths):
        end = start + length
        yield _judged(header, index, raw[start:end], raw[end : end + 1])
        start = end + 1


def cut_line(header: BlockHeader, raw: bytes, index: int) -> bytes | CorruptError:
    """The line of one record of a decoded block, ``index`` counted within it."""
    start = sum(header.lengths[:index]) + index
    end = start + header.lengths[index]
    return _judged(header, index, raw[start:end], raw[end : end + 1])


def _judged(header: BlockHeader, index: int, line: bytes, last: bytes) -> bytes | CorruptError:
    found = crc32c(line)
    if found == header.crcs[index] and last == _LF and not _has_break(line):
        return line
    if found != header.crcs[index]:
        what = f"crc32c of the record line is {found:08x} instead of {header.crcs[index]:08x}"
    else:
        what = "the record line holds a line break, or is not ended by one"
    return CorruptError(what).at(block=header.number, ordinal=header.first_ordinal + index)
