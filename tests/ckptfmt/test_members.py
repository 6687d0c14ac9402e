"""Objects are split into raw members; two of one name are corrupt."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError
from ckptfmt.members import split_members
from ckptfmt.payload import JsonPayload
from ckptfmt.testing.strategies import payloads
from tests.support.deep import at_depth


def split(text: bytes) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in split_members(text, "a record").items()}


def test_members_are_slices_in_order() -> None:
    assert split(b'{"b":[1, 2],"a":"\\u0041","":{}}') == {
        "b": b"[1, 2]",
        "a": b'"\\u0041"',
        "": b"{}",
    }
    assert [*split(b'{"b":1,"a":2}')] == ["b", "a"]
    assert split(b"{}") == {}


@pytest.mark.parametrize(
    "text",
    [
        b' { "a" : 1 , "b" : 2 } ',
        b'{\n"a":1,\t"b":2}',
        b'{"\\u0061":1,"b":2}',
        b'{"a":1,"\\u0062":2}\r\n',
    ],
)
def test_foreign_spelling_is_split_too(text: bytes) -> None:
    assert split(text) == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}', b'{"a":1,"b":2,"a":3}', b'{"a":1,"\\u0061":2}', b'{ "a":1, "a":2 }',
        b'{"":0,"":0}', b'{"\xc3\xa9":1,"\\u00e9":2}', b'{"a":[[[]]],"a":{}}', b'{"\\/":1,"/":2}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("frames", [0, 900])
def test_two_members_of_one_name_are_corrupt(text: bytes, frames: int) -> None:
    with pytest.raises(CorruptError, match="2 members named"):
        at_depth(frames, lambda: split(text))


def test_a_name_is_shown_without_control_characters() -> None:
    with pytest.raises(CorruptError) as caught:
        split('{"\\u001b[2J\u202e":1,"\\u001b[2J\u202e":2}'.encode())
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b'"a"', b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{1:2}", b'{"a":1}x',
     b"{'a':1}",
     b'{"a":NaN}', b'{"a":01}', b'{"a":"\\q"}', b'{"a":"\x01"}', b'{"\xff":1}', b"\xff",
     b'{"\\ud800":1}', b'{"a":"\\ud800"}', b'{"a":"\\udc00\\ud800"}',
     b'{"a": "\xff"}', b'{"a":["\xc0\xaf"], "b":1}',
     b"\xef\xbb\xbf{}"],
)  # fmt: skip
@pytest.mark.parametrize("frames", [0, 600, 900])
def test_what_is_no_object_in_utf_8_is_corrupt(text: bytes, frames: int) -> None:
    with pytest.raises(CorruptError):
        at_depth(frames, lambda: split(text))


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_a_value_that_is_no_utf_8_is_found_when_it_is_looked_at(bad: bytes) -> None:
    """Values are not decoded here, and looking at every byte would cost a restore its speed."""
    payload = JsonPayload.stored(split(b'{"a":"' + bad + b'"}')["a"])
    with pytest.raises(CorruptError):
        payload.value()
    with pytest.raises(CorruptError):
        payload.json_bytes()


@pytest.mark.parametrize("frames", [0, 600, 900])
@pytest.mark.parametrize(
    "rest",
    [b"[" * 400, b"[" * 5000, b"[" * 400 + b"]" * 400, b"[" * 5000 + b"]" * 5000 + b"}",
     b'{"a":' * 450,
     b"[" * 400 + b"]" * 400 + b',"a":1}', b"[" * 400 + b"]" * 400 + b', "b":2,"b":1}',
     ],
    ids=range(7),
)  # fmt: skip
def test_deep_and_wrong_is_corrupt_from_any_stack(rest: bytes, frames: int) -> None:
    with pytest.raises(CorruptError):
        at_depth(frames, lambda: split(b'{"a":' + rest))


@pytest.mark.parametrize("frames", [0, 600, 900])
def test_the_deepest_member_is_split_from_any_stack(frames: int) -> None:
    """F22."""
    deep = b"[" * 499 + b"]" * 499
    for text in (b'{"a":' + deep + b"}", b'{ "a" : ' + deep + b" }"):
        assert at_depth(frames, lambda text=text: split(text)) == {"a": deep}  # type: ignore[misc]


@given(
    st.lists(st.tuples(st.sampled_from(("a", "b", "é", "$exact", '"', "")), payloads())),
    st.sampled_from(("", " ", "\n\t")),
)
def test_any_object_is_split_or_has_a_name_twice(
    members: list[tuple[str, JsonPayload]], space: str
) -> None:
    values = [bytes(payload.text) for _, payload in members]
    names = [name for name, _ in members]
    spelt = [json.dumps(name).encode() + b":%b" for name in names]
    text = (b"{%b" + b", ".join(spelt) + b"}") % (space.encode(), *values)
    if len(set(names)) < len(names):
        with pytest.raises(CorruptError, match="members named"):
            split(text)
    else:
        assert split(text) == dict(zip(names, values, strict=True))
        assert [*split(text)] == names


@given(st.binary(max_size=20).map(lambda data: b'{"a":' + data + b"}"))
def test_any_bytes_are_split_or_corrupt(text: bytes) -> None:
    try:
        members = split(text)
    except CorruptError:
        return
    # Accepted: then Python's decoder takes it too, and finds as many members.
    assert [*members] == [name for name, _ in json.loads(text, object_pairs_hook=list)]
