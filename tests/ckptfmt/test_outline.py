from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptfmt import outline as module
from ckptfmt.errors import CkptError, CorruptError, SizeError
from ckptfmt.outline import outline
from ckptfmt.schema import SCHEMAS, read_record
from tests.support.streams import long_line

EPISODE = '"episode_id":{"rollout_id":"r","attempt":2}'
LONG_TEXT = "é" * 200
VALUES = st.sampled_from(
    [
        "null", "1", "true", '"k"', '"%s"' % ("0123456789abcdef" * 4), "{}", "[]",
        "1" * 300, f'"{LONG_TEXT}"', f'["{LONG_TEXT}"]', f'{{"{LONG_TEXT}":[1,{{}}]}}',
        '"{\\"a\\":%s}"' % ("1" * 300), '"  \\n[%s]"' % ("1," * 200), '[[1,2],["","map"]]',
        '"' + "\\u0041" * 100 + '"', "[" * 20 + "1" * 200 + "]" * 20, "01", '"\x01"', "[1,]",
    ]
)  # fmt: skip
NOTES = st.sampled_from(
    [
        '[["","text"]]', '[["","map"]]', '[["/a","nan"],["","map"]]', "[%s]" % ("1," * 99 + "1"),
        "[%s" % ('["/%s","nan"],' % ("x" * 99) * 9) + '["","map"]]', "{}", "7",
    ]
)  # fmt: skip
NAMES = st.sampled_from([
    "session_key", "session_id", "task_digest", "boundary", "session", "episode", "state",
    "owner", "rows", "generation_cuts", "sub_key", "x", "$y", "episode_id",
])  # fmt: skip
KEYS = {"session_key", "session_id", "sub_key"}
MEMBERS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
KINDS = st.sampled_from([*SCHEMAS, "controller"])


def verdict(kind: str, line: bytes) -> Any:
    try:
        return read_record(kind, line).key
    except CkptError as error:
        return type(error)


def outlined(text: bytes, piece_chars: int) -> bytes:
    # As short as they can be here: any key of these tests fits.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_KEPT_BYTES", 100)
        return outline(long_line(text, piece_chars))


def record_line(members: list[tuple[str, str]], notes: list[tuple[str, str]], episode: str) -> str:
    parts = [episode] if episode else []
    for name, value in members:
        # A key that fits is kept whole; here that would need more than is kept.
        parts.append(f'"{name}":{value if name not in KEYS or len(value) < 100 else 1}')
    if notes:
        parts.append(f'"$exact":{as_object(notes)}')
    return "{" + ",".join(parts) + "}"


def as_object(members: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


@given(
    KINDS,
    MEMBERS,
    st.lists(st.tuples(NAMES, NOTES), max_size=3),
    st.sampled_from([EPISODE, EPISODE, EPISODE, ""]),
    st.integers(1, 40),
)
@example(
    "model",
    [("rows", '"  [1]"'), ("generation_cuts", "[]")],
    [("rows", '[["","text"]]')],
    EPISODE,
    7,
)
@example(
    "environment",
    [("task_digest", f'"{"a" * 64}"'), ("boundary", "[" + "1," * 99 + "1]")],
    [("boundary", '[["","map"]]')],
    EPISODE,
    3,
)
def test_an_outline_is_a_record_exactly_if_the_line_is_and_the_same_one(
    kind: str,
    members: list[tuple[str, str]],
    notes: list[tuple[str, str]],
    episode: str,
    piece_chars: int,
) -> None:
    line = record_line(members, notes, episode).encode()
    try:
        text = outlined(line, piece_chars)
    except CorruptError:
        assert verdict(kind, line) is CorruptError
        return
    assert verdict(kind, text) == verdict(kind, line)


def test_an_outline_is_short_and_has_stand_ins_of_the_same_type() -> None:
    members = [
        ("a", f'"{LONG_TEXT}"'),
        ("b", "[" + "1," * 99 + "1]"),
        ("c", '{"x":[' + "2," * 99 + "1]}"),
        ("d", "1" * 300),
        ("e", "[1,2]"),
    ]
    notes = [("b", "[" + '["/1","nan"],' * 20 + '["","map"]]')]
    line = record_line(members, notes, EPISODE)
    found = json.loads(outlined(line.encode(), 11))
    assert found.pop("a") == "é" * 49
    assert found == {
        "episode_id": {"rollout_id": "r", "attempt": 2},
        "b": [], "c": {}, "d": 0, "e": [1, 2], "$exact": {"b": [["", "map"]]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[1", "not JSON"),
        (b"[" * 501, "501 levels|500 levels"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":1}}', "byte 7"),
    ],
)
def test_what_is_no_json_text_is_told_with_its_place(text: bytes, says: str) -> None:
    with pytest.raises(CorruptError, match=says):
        outline(long_line(text, 3))


def test_more_short_members_than_can_be_held_are_told() -> None:
    line = b"{%b}" % b",".join(b'"m%d":%d' % (number, number) for number in range(400_000))
    assert len(line) > 5 << 20
    with pytest.raises(SizeError, match="short members"):
        outline(long_line(line, 1 << 20))
