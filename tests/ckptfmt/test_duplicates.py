"""Members that stand twice, by pointer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.duplicates import duplicate_members
from tests.support.deep import at_depth


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        (b"{}", []),
        (b'{"a":1,"a":2,"b":{},"a":{"c":[],"c":[]}}', ["/a", "/a/c"]),
        (b'[{"":0,"":1},[{"/~":0,"/~":0}]]', ["/0/", "/1/0/~1~0"]),
        (b'{"\\u0061":1,"a":1e400,"n":' + b"9" * 5000 + b"}", ["/a"]),
        (b'{"a":{"b":1},"a":{"b":2}}', ["/a"]),
        (b'{"pairs":[["a",1],["a",2]]}', []),
    ],
)
def test_each_is_named_once_an_object_in_the_order_of_the_text(
    text: bytes, pointers: list[str]
) -> None:
    """I4."""
    assert list(duplicate_members(text)) == pointers


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_what_a_dict_can_hold_has_none(value: object) -> None:
    assert list(duplicate_members(json.dumps(value).encode())) == []


@pytest.mark.parametrize("frames", [0, 600, 900])
def test_the_deepest_document_has_them_too(frames: int) -> None:
    text = b'{"a":' * 498 + b'{"b":1,"b":2}' + b"}" * 498
    assert at_depth(frames, lambda: list(duplicate_members(text))) == ["/a" * 498 + "/b"]
