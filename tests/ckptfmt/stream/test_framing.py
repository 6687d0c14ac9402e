from __future__ import annotations

from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt import wire
from ckptfmt.errors import CorruptError, UnsupportedError
from ckptfmt.stream.framing import (
    END_BYTES,
    PREFIX_BYTES,
    BlockHeader,
    End,
    Head,
    Prefix,
    compress_bound,
    encode_piece,
    open_piece,
)
from tests.support.streams import UUID

HEAD = Head(UUID, "model", "vllm-0", "step-12", level=1)
BLOCK = BlockHeader(UUID, 3, 70, 300, 60, (199, 99), (1, 2))
END = End(UUID, 1000, 200, 1200 + END_BYTES, 7)


def test_head_is_these_bytes() -> None:
    body = (
        b"\x01\x00\x00\x00" + UUID + b"\x01\x17\x01\x00" + b"\x05model" + b"\x06vllm-0\x07step-12"
    )
    piece = HEAD.encode()
    assert piece[:12] == b"\x5c\x2a\x4d\x18" + (len(body) + 8).to_bytes(4, "little") + b"HEAD"
    assert piece[12:-4] == body


def test_pieces_come_back() -> None:
    assert Head.decode(HEAD.encode()) == HEAD
    assert BlockHeader.decode(BLOCK.encode()) == BLOCK
    assert End.decode(END.encode()) == END
    assert BLOCK.next_ordinal == 72


def test_end_has_a_constant_size() -> None:
    assert len(END.encode()) == len(End(UUID, 0, 0, END_BYTES, 0).encode()) == END_BYTES == 64


@given(st.integers(0, 8 * len(BLOCK.encode()) - 1))
def test_any_flipped_bit_of_a_piece_is_corrupt(bit: int) -> None:
    data = bytearray(BLOCK.encode())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptError):
        BlockHeader.decode(bytes(data))


def test_a_piece_of_another_tag_is_corrupt() -> None:
    with pytest.raises(CorruptError, match=r"END\. stands where BLCK belongs"):
        open_piece(END.encode(), wire.TAG_BLOCK)


@pytest.mark.parametrize(
    ("tag", "content_bytes"),
    [
        (wire.TAG_HEAD, wire.MAX_HEAD_BYTES + 9),
        (wire.TAG_BLOCK, 1 << 20),
        (wire.TAG_PAGE, 5 << 20),
        (wire.TAG_DIGESTS, 2 << 20),
        (wire.TAG_INDEX, wire.MAX_DIRECTORY_BYTES + 9),
        (wire.TAG_END, END_BYTES),
        (wire.TAG_END, END_BYTES - 9),
        (wire.TAG_HEAD, 7),
        (wire.TAG_HEAD, 0),
        (b"HEAP", 8),
    ],
)
def test_a_size_is_bounded_by_its_tag_before_it_is_read(tag: bytes, content_bytes: int) -> None:
    magic = wire.SKIPPABLE_MAGIC.to_bytes(4, "little")
    with pytest.raises(CorruptError):
        Prefix.decode(magic + content_bytes.to_bytes(4, "little") + tag)


def test_the_largest_pieces_are_within_their_bounds() -> None:
    lines = wire.MAX_BLOCK_RECORDS
    largest = BlockHeader(UUID, 0, 0, 2 * lines, 99, (1,) * lines, (2**32 - 1,) * lines)
    single = BlockHeader(UUID, 0, 0, 2**30 + 1, 2**20, (2**30,), (0,))
    for header in (largest, single):
        assert BlockHeader.decode(header.encode()) == header
    names = ("a" * wire.MAX_NAME_CHARS,) * 3
    assert Head.decode(Head(UUID, *names, level=-7).encode()).kind == names[0]


def test_a_later_major_is_unsupported_whatever_follows() -> None:
    later = encode_piece(wire.TAG_HEAD, b"\x02\x00\x00\x00of another shape")
    with pytest.raises(UnsupportedError, match="major 2, and this release reads 1"):
        Head.decode(later)


def test_fields_of_a_later_minor_are_skipped() -> None:
    later = replace(HEAD, minor=wire.FORMAT_MINOR + 1)
    body = open_piece(later.encode(), wire.TAG_HEAD)
    assert Head.decode(encode_piece(wire.TAG_HEAD, body + b"more")) == later


def _head_with(position: int, value: int) -> bytes:
    body = bytearray(open_piece(HEAD.encode(), wire.TAG_HEAD))
    body[position] = value
    return encode_piece(wire.TAG_HEAD, bytes(body))


@pytest.mark.parametrize(("position", "value"), [(20, 2), (21, 24)])
def test_another_codec_or_a_larger_window_is_unsupported(position: int, value: int) -> None:
    with pytest.raises(UnsupportedError):
        Head.decode(_head_with(position, value))


@pytest.mark.parametrize(
    ("position", "value"),
    [(23, 1), (24, 4), (24, 200), (25, 0x2F), (25, 0xE4)],
    ids=["reserved", "name too short", "name past the end", "slash", "not ascii"],
)
def test_a_malformed_head_is_corrupt(position: int, value: int) -> None:
    with pytest.raises(CorruptError):
        Head.decode(_head_with(position, value))


def test_bytes_after_the_fields_of_this_minor_are_corrupt() -> None:
    body = open_piece(HEAD.encode(), wire.TAG_HEAD)
    with pytest.raises(CorruptError, match="its fields end at"):
        Head.decode(encode_piece(wire.TAG_HEAD, body + b"more"))


@pytest.mark.parametrize(
    "lying",
    [
        replace(BLOCK, raw_bytes=301),
        replace(BLOCK, raw_bytes=2**60),
        replace(BLOCK, stored_bytes=12),
        replace(BLOCK, stored_bytes=compress_bound(300) + 1),
        replace(BLOCK, stored_bytes=2**60),
        replace(BLOCK, lengths=(298, 0), raw_bytes=300),
        replace(BLOCK, lengths=(2**23, 2**23), raw_bytes=2**24 + 2, stored_bytes=2**20),
        replace(BLOCK, lengths=(2**30 + 1,), crcs=(1,), raw_bytes=2**30 + 2, stored_bytes=2**20),
        replace(BLOCK, lengths=(2**60,), crcs=(1,), raw_bytes=2**60 + 1, stored_bytes=2**20),
        replace(BLOCK, lengths=(2**28,), crcs=(1,), raw_bytes=2**28 + 1, stored_bytes=4096),
        replace(BLOCK, lengths=(), crcs=(), raw_bytes=0),
    ],
)
def test_sizes_that_cannot_be_are_corrupt_though_the_crc_is_right(lying: BlockHeader) -> None:
    """F29."""
    with pytest.raises(CorruptError):
        BlockHeader.decode(lying.encode())


def test_a_record_count_is_bounded_before_its_rows_are_read() -> None:
    body = bytearray(open_piece(BLOCK.encode(), wire.TAG_BLOCK))
    body[28:32] = (wire.MAX_BLOCK_RECORDS + 1).to_bytes(4, "little")
    with pytest.raises(CorruptError, match="65537 records"):
        BlockHeader.decode(encode_piece(wire.TAG_BLOCK, bytes(body)))


def test_an_end_that_does_not_follow_its_index_is_corrupt() -> None:
    with pytest.raises(CorruptError, match="INDX ends at 1200"):
        End.decode(replace(END, size_bytes=1265).encode())


def test_a_prefix_is_twelve_bytes() -> None:
    assert Prefix.decode(END.encode()[:PREFIX_BYTES]) == Prefix(wire.TAG_END, END_BYTES)
    with pytest.raises(CorruptError):
        Prefix.decode(END.encode()[: PREFIX_BYTES - 1])


@pytest.mark.parametrize("size", [1, 100, 1 << 17, (1 << 17) + 1, 1 << 20])
def test_no_frame_is_larger_than_the_bound(size: int) -> None:
    noise = bytes((number * number >> 3) & 0xFF for number in range(size))
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    assert len(compressor.compress(noise)) <= compress_bound(size)
