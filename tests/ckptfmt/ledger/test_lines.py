"""Lines: cut at 0x0A only, bounded, whatever the pieces in which they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.ledger import lines as module
from ckptfmt.ledger.lines import Line, lines


@given(
    data=st.binary(max_size=200).map(lambda raw: raw.replace(b"\x01", b"\n")),
    start=st.integers(0, 3),
    chunk=st.integers(1, 50),
)
def test_lines_are_the_bytes_between_newlines(data: bytes, start: int, chunk: int) -> None:
    start = min(start, len(data))

    def read(size: int, offset: int) -> bytes:
        return data[offset : offset + min(size, chunk)]

    found = list(lines(read, start, len(data)))
    assert b"".join(data[line.offset : line.end] for line in found) == data[start:]
    for line in found:
        assert line.text is not None
        assert b"\n" not in line.text
        assert line.end - line.offset == len(line.text) + line.is_ended
    assert all(line.is_ended for line in found[:-1])


def test_a_file_that_shrinks_while_it_is_read_ends() -> None:
    assert list(lines(lambda size, offset: b"", 0, 100)) == []


def test_a_line_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 10)
    data = b"a" * 10 + b"\n" + b"b" * 11 + b"\nc\n" + b"d" * 35

    def read(size: int, offset: int) -> bytes:
        return data[offset : offset + min(size, 4)]

    assert list(lines(read, 0, len(data))) == [
        Line(b"a" * 10, 0, 11),
        Line(None, 11, 23),
        Line(b"c", 23, 25),
        Line(None, 25, 60, is_ended=False),
    ]
