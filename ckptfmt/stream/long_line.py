"""A record line that is too long to be held: verified once, then read again in pieces."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ckptfmt.errors import CorruptError
from ckptfmt.stream.checksum import crc32c
from ckptfmt.stream.codec import decompress_pieces
from ckptfmt.stream.framing import BlockHeader
from ckptfmt.stream.records import StoredLine
from ckptfmt.stream.source import RangeSource
from ckptfmt.wire import DIGEST_BYTES

__all__ = ["LongLine", "verify_long"]

# What a consumer has to hold; the decoder may give far more at once.
_PIECE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that was verified and is not held; ``size_bytes`` without the LF.

    It can be read as often as needed, while its stream is open.
    """

    ordinal: int
    block: int
    size_bytes: int
    digest: bytes
    _open: Callable[[], Iterator[bytes]]

    def pieces(self) -> Iterator[bytes]:
        """The line in pieces of about a mebibyte, cut between characters.

        Raises:
            CorruptError: after the last piece: the file is not any more what was verified.
            StorageError: the store failed.
        """
        return self._open()

    def held(self) -> StoredLine:
        """The line after all, in one copy."""
        out = io.BytesIO()
        for piece in self.pieces():
            out.write(piece)
        return StoredLine(self.ordinal, self.block, 0, out.getvalue())


def verify_long(
    header: BlockHeader,
    source: RangeSource,
    offset: int,
    *,
    read: Callable[[int], bytes] | None = None,
    checksum: bool = True,
) -> LongLine:
    """Read the frame at ``offset`` of a block of one line; ``read(n)`` gives its bytes at first.

    ``checksum=False`` leaves out the frame's own checksum, not that of the line.

    Raises:
        CorruptError: the frame does not decode, or the line is not what was written.
        TornError, StorageError: as :meth:`RangeSource.read_at`.
    """

    def opened() -> Iterator[bytes]:
        return _whole_characters(_line(header, _reader(source, offset), checksum=checksum))

    digest = hashlib.sha256()
    for piece in _line(header, read or _reader(source, offset), checksum=checksum):
        digest.update(piece)
    return LongLine(
        header.first_ordinal,
        header.number,
        header.lengths[0],
        digest.digest()[:DIGEST_BYTES],
        opened,
    )


def _line(header: BlockHeader, read: Callable[[int], bytes], *, checksum: bool) -> Iterator[bytes]:
    """The line without its LF; what is wrong with it shows after the last piece at the latest."""
    crc, left = 0, header.lengths[0]
    last = b""
    try:
        for raw in decompress_pieces(
            read, header.stored_bytes, header.raw_bytes, checksum=checksum
        ):
            for start in range(0, len(raw), _PIECE_BYTES):
                piece = raw[start : start + _PIECE_BYTES]
                piece, last = piece[:left], last + piece[left:]
                left -= len(piece)
                crc = crc32c(piece, crc)
                if b"\n" in piece or b"\r" in piece:
                    raise CorruptError("the record line holds a line break")
                if piece:
                    yield piece
        if crc != header.crcs[0]:
            raise CorruptError(
                f"crc32c of the record line is {crc:08x} instead of {header.crcs[0]:08x}"
            )
        if last != b"\n":
            raise CorruptError("the record line is not ended by a line break")
    except CorruptError as error:
        error.at(block=header.number, ordinal=header.first_ordinal)
        raise


def _reader(source: RangeSource, offset: int) -> Callable[[int], bytes]:
    """Reads on from ``offset``; large ranges, of which little is taken at a time."""
    held, at = b"", 0

    def read(size_bytes: int) -> bytes:
        nonlocal held, at, offset
        if at + size_bytes > len(held):
            wanted = max(size_bytes, _READ_BYTES)
            fetched = len(held) - at
            more = source.read_at(
                offset + fetched, max(min(wanted, source.size_bytes - offset - fetched), 0)
            )
            held, at = held[at:] + more, 0
        data = held[at : at + size_bytes]
        if len(data) < size_bytes:
            raise CorruptError("the zstd frame is cut off")
        at += size_bytes
        offset += size_bytes
        return data

    return read


def _whole_characters(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        piece = rest + piece
        cut = len(piece) - _open_bytes(piece)
        rest = piece[cut:]
        yield piece[:cut]
    if rest:
        yield rest


def _open_bytes(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 that is not whole."""
    for back in range(1, min(len(data), 3) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            wanted = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return back if back < wanted else 0
        if byte < 0x80:
            return 0
    return 0
