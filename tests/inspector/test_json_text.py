"""Values cut out of JSON text by pointer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.json_text import children, find, replace_nulls

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


def places(value: Any, path: tuple[str, ...] = ()) -> Any:
    yield path, value
    members = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        members = enumerate(value)
    for name, member in members:
        yield from places(member, (*path, str(name)))


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_every_value_is_found_where_its_pointer_says(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    for path, expected in places(value):
        found = find(text, path)
        assert found is not None
        assert json.loads(found) == expected
        assert found == found.strip()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (b"{}", ["a"]),
        (b"[]", ["0"]),
        (b"[1]", ["1"]),
        (b"[1]", ["01"]),
        (b"[1]", ["-1"]),
        (b"[1]", ["a"]),
        (b"1", ["0"]),
        (b'"ab"', ["0"]),
        (b'{"a":{"b":1}}', ["b"]),
    ],
)
def test_what_is_not_there_is_not_found(text: bytes, tokens: list[str]) -> None:
    assert find(text, tokens) is None


@pytest.mark.parametrize(
    "spelled",
    [
        b"13911860366432393",
        b"340282366920938463463374607431768211456",
        b"1908.0",
        b"1.0E+5",
        b"-0.0",
    ],
)
def test_a_number_keeps_its_spelling(spelled: bytes) -> None:
    """I1, I2."""
    assert find(b'{"a": [ 0, ' + spelled + b" ]}", ["a", "1"]) == spelled


def test_the_last_of_duplicate_members_is_meant_and_both_are_there() -> None:
    """I4."""
    text = b'{"a":1,"a":{"b":2}}'
    assert find(text, ["a"]) == b'{"b":2}'
    assert [name for name, _ in children(text, 0)] == ["a", "a"]


def test_depth_does_not_matter() -> None:
    """I6."""
    deep = b"[" * 10_000 + b"]" * 10_000
    assert find(deep, ["0"] * 50) == deep[50:-50]


def test_nulls_are_replaced_at_their_places_only() -> None:
    text = b'{"null":null, "a":[null,{"b": null},"null",null], "c": null}'
    spelled = replace_nulls(text, {("a", "1", "b"): b"NaN", ("a", "3"): b"X", ("null",): b"Y"})
    assert spelled == b'{"null":Y, "a":[null,{"b": NaN},"null",X], "c": null}'
    assert replace_nulls(b"null", {(): b"NaN"}) == b"NaN"
