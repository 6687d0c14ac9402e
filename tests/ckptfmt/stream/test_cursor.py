from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError
from ckptfmt.stream.cursor import MAX_VARINT_BYTES, Cursor, read_varint, varint


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_varint_comes_back_and_leaves_what_follows(value: int, rest: bytes) -> None:
    data = varint(value)
    assert len(data) <= MAX_VARINT_BYTES
    assert read_varint(data + rest, 0) == (value, len(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x00",  # 0 in two bytes
        b"\xff\x80\x00",
        b"\xff" * 9 + b"\x02",  # 2**64 and more
        b"\x80" * 10 + b"\x01",
        b"\xff" * 11,
    ],
)
def test_a_varint_that_is_cut_off_or_not_in_shortest_form_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        read_varint(data, 0)


@given(st.binary(max_size=12))
def test_any_bytes_are_a_varint_in_its_one_form_or_corrupt(data: bytes) -> None:
    try:
        value, end = read_varint(data, 0)
    except CorruptError:
        return
    assert varint(value) == data[:end]


def test_a_cursor_never_passes_the_end() -> None:
    cursor = Cursor(b"\x01\x02\x03", "a piece")
    assert cursor.fields(Struct("<H")) == (0x0201,)
    with pytest.raises(CorruptError, match="a piece has 3 bytes, and a field of it needs 6"):
        cursor.take(4)


def test_a_cursor_reports_what_is_left_over() -> None:
    cursor = Cursor(b"abc", "a piece")
    cursor.take(2)
    with pytest.raises(CorruptError, match="has 3 bytes, and its fields end at 2"):
        cursor.end()
    assert cursor.rest() == b"c"
    cursor.end()


@pytest.mark.parametrize("data", [b"\x00", b"\x05abcde", b"\x02a", b"\x01\xff", b"\x02\xc0\x80"])
def test_a_text_that_is_empty_too_long_cut_off_or_no_utf8_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        Cursor(data, "a page").text(4)
