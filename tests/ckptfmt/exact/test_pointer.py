"""JSON pointers by RFC 6901."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.exact import pointer


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ([], ""),
        ([""], "/"),
        (["", ""], "//"),
        (["a", 0, "b"], "/a/0/b"),
        (["a/b"], "/a~1b"),
        (["m~n"], "/m~0n"),
        (["~1"], "/~01"),
        (["/~"], "/~1~0"),
        ([" ", 'k"l', "c%d"], '/ /k"l/c%d'),
    ],
)
def test_tokens_are_escaped_and_come_back(tokens: list[str | int], text: str) -> None:
    assert pointer.join(tokens) == text
    assert pointer.split(text) == [str(token) for token in tokens]


@given(st.lists(st.text() | st.sampled_from(["~", "/", "~0", "~1", "~01", ""])))
def test_any_tokens_come_back(tokens: list[str]) -> None:
    assert pointer.split(pointer.join(tokens)) == tokens


@pytest.mark.parametrize("text", ["a", "a/b", " /", "/~", "/~2", "/a~/b", "~1"])
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pointer"):
        pointer.split(text)


@pytest.mark.parametrize(
    ("token", "index"), [("0", 0), ("7", 7), ("10", 10), ("9" * 18, 10**18 - 1)]
)
def test_an_index_is_read(token: str, index: int) -> None:
    assert pointer.array_index(token) == index


@pytest.mark.parametrize(
    "token",
    ["", "-", "-1", "+1", "00", "01", " 1", "1 ", "1\n", "1.0", "1e0", "0x1", "1_0", "\u0661",
     "\u00b2",
     "9" * 19, "9" * 5000],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_index_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="index"):
        pointer.array_index(token)
