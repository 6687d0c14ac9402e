from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable

import pytest
import zstandard

from ckptfmt.errors import CorruptError, RefusedError
from ckptfmt.stream.codec import Compressor, decompress, decompress_large, decompress_leniently

Decode = Callable[[bytes, int], bytes]

TEXT = b"\n".join(b'{"number":%d,"square":%d}' % (n, n * n) for n in range(40_000))


def _large(frame: bytes, raw_bytes: int) -> bytes:
    line, last = decompress_large(io.BytesIO(frame).read, len(frame), raw_bytes)
    return line + last


def _frame(raw: bytes, *, checksum: bool = True, size: bool = True) -> bytes:
    compressor = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size)
    return compressor.compress(raw)


@pytest.mark.parametrize("level", [-7, 1, 19])
@pytest.mark.parametrize("decode", [decompress, _large])
def test_one_shot_and_pieces_come_back_both_ways(level: int, decode: Decode) -> None:
    compressor = Compressor(level)
    cut = [TEXT[start : start + 70_001] for start in range(0, len(TEXT), 70_001)]
    for frame in (compressor.compress(TEXT), b"".join(compressor.compress_pieces(cut, len(TEXT)))):
        assert decode(frame, len(TEXT)) == TEXT


@pytest.mark.parametrize("level", [-8, 20])
def test_a_level_with_another_window_is_refused(level: int) -> None:
    with pytest.raises(RefusedError):
        Compressor(level)


def test_a_compressor_serves_many_threads() -> None:
    compressor, frames = Compressor(1), []
    threads = [
        threading.Thread(target=lambda: frames.append(compressor.compress(TEXT))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert frames == [compressor.compress(TEXT)] * 4


BAD_FRAMES = {
    "empty": b"",
    "no frame": b"no zstd frame at all",
    "cut": _frame(TEXT)[:-1],
    "cut in half": _frame(TEXT)[: len(_frame(TEXT)) // 2],
    "a byte more": _frame(TEXT) + b"\0",
    "a skippable frame more": _frame(TEXT) + b"\x5c\x2a\x4d\x18\0\0\0\0",
    "a frame more": _frame(TEXT) + _frame(b""),
    "wrong checksum": _frame(TEXT)[:-1] + bytes([_frame(TEXT)[-1] ^ 1]),
    "no checksum": _frame(TEXT, checksum=False),
    "no content size": _frame(TEXT, size=False),
    "another content size": _frame(TEXT + b"!"),
    "a bomb": _frame(bytes(256 << 20)),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
@pytest.mark.parametrize("decode", [decompress, _large])
def test_anything_but_the_frame_that_belongs_there_is_corrupt(name: str, decode: Decode) -> None:
    """F30."""
    with pytest.raises(CorruptError):
        decode(BAD_FRAMES[name], len(TEXT))


def test_a_window_over_the_limit_is_corrupt() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        1, window_log=24, write_checksum=True
    )
    raw = bytes(20 << 20)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compress(raw)
    with pytest.raises(CorruptError, match="window"):
        decompress(frame, len(raw))


def test_a_dictionary_is_refused() -> None:
    samples: list[bytes | bytearray | memoryview] = [
        b'{"number":%d,"text":"sample %d"}' % (n, n * n) for n in range(2000)
    ]
    trained = zstandard.train_dictionary(4096, samples)
    frame = zstandard.ZstdCompressor(dict_data=trained, write_checksum=True).compress(samples[5])
    with pytest.raises(CorruptError, match="dictionary"):
        decompress(frame, len(samples[5]))


def test_a_damaged_frame_gives_what_comes_before_the_damage() -> None:
    noise = random.Random(3).randbytes(3 * (128 << 10))
    frame = bytearray(_frame(noise))
    # The header of the third zstd block: a reserved block type.
    frame[9 + 2 * ((128 << 10) + 3)] |= 0b110
    raw = decompress_leniently(bytes(frame), len(noise))
    assert raw is not None
    assert len(raw) == len(noise)
    assert raw[: 256 << 10] == noise[: 256 << 10]


def test_a_frame_with_a_wrong_checksum_only_gives_all() -> None:
    frame = BAD_FRAMES["wrong checksum"]
    assert decompress_leniently(frame, len(TEXT)) == TEXT


@pytest.mark.parametrize("name", ["empty", "no frame", "another content size", "a bomb"])
def test_a_frame_without_its_header_gives_nothing(name: str) -> None:
    assert decompress_leniently(BAD_FRAMES[name], len(TEXT)) is None
