"""zstd, bounded: frames of a declared size, with a checksum and a limited window.

The only importer of ``zstandard``.  Its errors are judged here by where they
occur, never by their text.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import zstandard

from ckptfmt.errors import CorruptError, RefusedError
from ckptfmt.wire import CRC_BYTES, MAX_LEVEL, MAX_WINDOW_BYTES, MIN_LEVEL

__all__ = [
    "Compressor",
    "decompress",
    "decompress_large",
    "decompress_leniently",
    "decompress_pieces",
]

# RFC 8878 section 3.1.1.1: the longest frame header.
_MAX_FRAME_HEADER_BYTES: Final = 18
# A zstd block of four bytes can become 128 KiB, so this much input at most 64 MiB.
_PIECE_BYTES: Final = 2048
# A whole block of the usual size.  Conversations repeat themselves over more than the
# 512 KiB of level 1: measured on real ones, a seventh faster and a tenth smaller.
_WINDOW_LOG: Final = 21

_local = threading.local()


class Compressor:
    """Compresses at one level, on any thread; a context per thread is kept.

    Raises:
        RefusedError: the level is outside -7 .. 19.
    """

    __slots__ = ("_contexts", "level")

    def __init__(self, level: int) -> None:
        if not MIN_LEVEL <= level <= MAX_LEVEL:
            raise RefusedError(f"zstd level {level} is outside {MIN_LEVEL} to {MAX_LEVEL}")
        self.level = level
        self._contexts = threading.local()

    def _context(self) -> zstandard.ZstdCompressor:
        context: zstandard.ZstdCompressor | None = getattr(self._contexts, "context", None)
        if context is None:
            context = self._contexts.context = zstandard.ZstdCompressor(
                compression_params=zstandard.ZstdCompressionParameters.from_level(
                    self.level,
                    window_log=_WINDOW_LOG,
                    write_checksum=True,
                    write_content_size=True,
                )
            )
        return context

    def compress(self, raw: bytes) -> bytes:
        """``raw`` as one frame."""
        return self._context().compress(raw)

    def compress_pieces(self, pieces: Iterable[bytes], raw_bytes: int) -> list[bytes]:
        """``raw_bytes`` bytes that come in pieces, as one frame in pieces."""
        stream = self._context().compressobj(size=raw_bytes)
        frame = [stream.compress(piece) for piece in pieces]
        frame.append(stream.flush())
        return frame


def decompress(frame: bytes, raw_bytes: int) -> bytes:
    """The content of ``frame``, which has to be one whole frame of ``raw_bytes`` bytes.

    Raises:
        CorruptError: it is not, or states another size before anything is allocated.
    """
    _check_header(frame, raw_bytes)
    try:
        raw = _decompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _undecodable(len(frame)) from error
    if len(raw) != raw_bytes:
        raise CorruptError(f"a zstd frame held {len(raw)} bytes instead of {raw_bytes}")
    return raw


def decompress_large(
    read: Callable[[int], bytes], stored_bytes: int, raw_bytes: int
) -> tuple[bytes, bytes]:
    """As :func:`decompress`, all but the last byte and the last byte, in one copy.

    ``read(n)`` gives the next ``n`` bytes of the frame, which is never held whole.

    Raises:
        CorruptError: as :func:`decompress`.
    """
    out = io.BytesIO()
    for piece in decompress_pieces(read, stored_bytes, raw_bytes):
        out.write(piece)
    out.seek(-1, io.SEEK_END)
    last = out.read(1)
    out.truncate(raw_bytes - 1)
    # The buffer itself, cut to size: BytesIO copies only if it is written to again.
    return out.getvalue(), last


def decompress_pieces(
    read: Callable[[int], bytes], stored_bytes: int, raw_bytes: int, *, checksum: bool = True
) -> Iterator[bytes]:
    """As :func:`decompress_large`, in pieces of any size; what is wrong may show after the last.

    ``checksum=False`` leaves the frame's own checksum out, as :func:`decompress_leniently` does.
    """
    left = stored_bytes if checksum else max(stored_bytes - CRC_BYTES, 0)
    # Not the thread's own, which another frame may need before this one has ended.
    stream = _new_decompressor().decompressobj()
    given, piece = 0, read(min(_PIECE_BYTES, left))
    _check_header(piece, raw_bytes)
    while True:
        left -= len(piece)
        try:
            raw = stream.decompress(piece)
        except zstandard.ZstdError as error:
            raise _undecodable(stored_bytes) from error
        given += len(raw)
        if raw:
            yield raw
        if not left or stream.eof or given > raw_bytes:
            break
        piece = read(min(_PIECE_BYTES, left))
    if left or stream.eof is not checksum or stream.unused_data or given != raw_bytes:
        raise CorruptError(
            f"a zstd frame of {stored_bytes} bytes does not hold exactly {raw_bytes} bytes"
        )


def decompress_leniently(frame: bytes, raw_bytes: int) -> bytes | None:
    """What a damaged frame still gives, zeros in place of the rest; None if its header is lost.

    The frame's own checksum is left out, so that the damage costs no more than
    the zstd blocks that it hits; the caller judges every record by its crc32c.
    """
    try:
        _check_header(frame, raw_bytes)
        raw = bytearray(raw_bytes)
        with _decompressor().stream_reader(frame[:-CRC_BYTES]) as reader:
            _fill(reader, raw)
    except (CorruptError, zstandard.ZstdError):
        return None
    return bytes(raw)


def _fill(reader: zstandard.ZstdDecompressionReader, raw: bytearray) -> None:
    try:
        reader.readinto(raw)
    except zstandard.ZstdError:
        # What came before the damage stands in the buffer already.
        return


def _decompressor() -> zstandard.ZstdDecompressor:
    context: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if context is None:
        context = _local.decompressor = _new_decompressor()
    return context


def _new_decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)


def _check_header(frame: bytes, raw_bytes: int) -> None:
    """Judge the frame header before the decoder allocates what it states."""
    try:
        header = zstandard.get_frame_parameters(frame[:_MAX_FRAME_HEADER_BYTES])
    except zstandard.ZstdError as error:
        raise CorruptError("no zstd frame begins where one belongs") from error
    if header.content_size != raw_bytes:
        raise CorruptError(
            f"a zstd frame states {header.content_size} bytes of content instead of {raw_bytes}"
        )
    if header.window_size > MAX_WINDOW_BYTES:
        raise CorruptError(
            f"a zstd window of {header.window_size} bytes; {MAX_WINDOW_BYTES} are permitted"
        )
    if not header.has_checksum or header.dict_id:
        raise CorruptError("a zstd frame without content checksum, or with a dictionary")


def _undecodable(stored_bytes: int) -> CorruptError:
    return CorruptError(f"a zstd frame of {stored_bytes} bytes does not decode")
