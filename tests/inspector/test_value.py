"""One value of a record, and its tagged form."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from inspector.value import StoredValue, find_value


def line_of(payload: JsonPayload) -> bytes:
    record = Record(episode_id=EpisodeId("r"), members={"state": payload})
    return join_line(record.line())


def value_at(payload: JsonPayload, *tokens: str) -> StoredValue:
    found = find_value(line_of(payload), ["state", *tokens])
    assert found is not None
    return found


FLOATS = [math.nan, 1.0, math.inf, math.nan, -math.inf, math.nan, math.nan]
STATE = {
    "x": math.nan,
    "l": FLOATS,
    "t": [(1, (2,))],
    "m": {3: math.nan},
    "s": "a\ud800",
    "n": None,
}


@pytest.mark.parametrize(
    "tokens",
    [
        (),
        ("x",),
        ("l",),
        ("l", "0"),
        ("l", "2"),
        ("l", "1"),
        ("t",),
        ("t", "0"),
        ("m",),
        ("s",),
        ("n",),
    ],
)
def test_the_tagged_form_of_any_part_restores_the_python_value(tokens: tuple[str, ...]) -> None:
    """I3."""
    expected: Any = STATE
    for token in tokens:
        expected = expected[int(token)] if isinstance(expected, list) else expected[token]
    payload = value_at(JsonPayload.from_value(STATE), *tokens).payload()
    assert repr(payload.value()) == repr(expected)


JSON_VALUES = st.recursive(
    st.none() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


@given(JSON_VALUES)
def test_every_member_of_an_array_comes_back(value: Any) -> None:
    payload = JsonPayload.from_value([value, [value] * 5, (value,)])
    for tokens in (["0"], ["1"], ["1", "4"], ["2"], ["2", "0"]):
        expected = value if tokens in (["0"], ["1", "4"], ["2", "0"]) else None
        restored = value_at(payload, *tokens).payload().value()
        if expected is not None:
            assert repr(restored) == repr(expected)


def test_text_for_people_spells_nan_and_infinity() -> None:
    """I3."""
    value = value_at(JsonPayload.from_value(STATE))
    shown = json.loads(value.python_text())
    assert repr(shown["l"]) == repr(FLOATS)
    assert repr(shown["x"]) == "nan"
    assert shown["n"] is None
    assert value.beyond_json() == ["map", "sur", "tuple"]


def test_payloads_that_came_as_bytes_are_cut_from_those_bytes() -> None:
    """I4."""
    own = b'{"a": 1.0E5,\r\n "a": [ 12345678901234567890123 ]}'
    payload = JsonPayload.from_json(own)
    assert value_at(payload).text == own
    assert value_at(payload, "a").text == b"[ 12345678901234567890123 ]"
    assert value_at(payload, "a").payload().json_bytes() == b"[ 12345678901234567890123 ]"


def test_the_record_itself_and_its_own_members_have_addresses() -> None:
    line = line_of(JsonPayload.from_value({"x": math.nan}))
    whole = find_value(line, [])
    assert whole is not None
    assert whole.text == line
    episode = find_value(line, ["episode_id", "rollout_id"])
    assert episode is not None
    assert episode.text == b'"r"'
    notes = find_value(line, ["$exact", "state"])
    assert notes is not None
    assert json.loads(bytes(notes.text)) == [["/x", "nan"]]
    assert find_value(line, ["nothing"]) is None


@pytest.mark.parametrize(
    "notes",
    ["1", '[["/0"]]', '[["0","nan"]]', '[["/0","odd"]]', '[["/0","nan",1]]', '[["","nan*"]]',
     '[["","nan*",[-1,2]]]', '[["","nan*",[0,99999999999]]]', "[" * 5000 + "]" * 5000],
)  # fmt: skip
def test_malformed_annotations_are_corrupt(notes: str) -> None:
    """I41."""
    line = ('{"episode_id":{"rollout_id":"r","attempt":0},"state":[null],"$exact":{"state":'
            + notes + "}}").encode()  # fmt: skip
    with pytest.raises(CorruptError):
        spelled(line, ["state"])


def spelled(line: bytes, tokens: list[str]) -> bytes:
    value = find_value(line, tokens)
    assert value is not None
    return value.python_text()


def test_a_text_annotation_on_something_else_is_corrupt() -> None:
    line = b'{"state":[1],"$exact":{"state":[["","text"]]}}'
    with pytest.raises(CorruptError):
        find_value(line, ["state"])


def test_kept_text_that_is_no_json_is_corrupt() -> None:
    line = b'{"state":"{\\"a\\":","$exact":{"state":[["","text"]]}}'
    value = find_value(line, ["state"])
    assert value is not None
    with pytest.raises(CorruptError):
        value.payload()
