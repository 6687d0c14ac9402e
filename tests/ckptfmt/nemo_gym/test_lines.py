"""One record in two spellings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError, UnsupportedError, ValueRefusedError
from ckptfmt.identity import EpisodeId
from ckptfmt.nemo_gym.lines import Order, beyond_gym, read_gym_line, spell_gym_line
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.schema import ResourcesRecord
from ckptfmt.testing.same import assert_same
from ckptfmt.verify import round_trip
from tests.support.checkpoints import agent_record, resources_record
from tests.support.gym import agent_line, resources_line

EPISODE = {"rollout_id": "r1", "attempt": 0}


def gym_values() -> st.SearchStrategy[Any]:
    """What ``json.loads`` can give: NaN, infinities and lone surrogates included."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters(exclude_categories=()))
    )
    return st.recursive(
        scalars.map(lambda value: json.loads(json.dumps(value))),
        lambda inner: (
            st.lists(inner, max_size=6)
            | st.dictionaries(st.text(max_size=5), inner, max_size=5)
            | st.lists(st.floats(), min_size=4, max_size=9)
        ),
        max_leaves=15,
    )


def test_a_line_is_the_record_that_it_would_be_in_this_format() -> None:
    """I12."""
    found = read_gym_line("agent", json.dumps(agent_line("r1", attempt=3)).encode())
    assert found.line == join_line(agent_record("r1", attempt=3).line())
    assert found.record.key == "r1-a3/s"
    assert found.order is None


def test_nan_and_infinity_are_annotated() -> None:
    found = read_gym_line("resources", json.dumps(resources_line("r1")).encode())
    assert isinstance(found.record, ResourcesRecord)
    assert found.record.state is not None
    assert_same(found.record.state.value(), resources_line("r1")["state"])
    assert b"NaN" not in found.line
    assert beyond_gym(found.record) == []


@given(st.dictionaries(st.text(min_size=1, max_size=5), gym_values(), max_size=5))
def test_any_record_comes_back_byte_for_byte(members: dict[str, Any]) -> None:
    members = {
        name: value
        for name, value in members.items()
        if not name.startswith("$") and name not in ("episode_id", "sub_key")
    }
    text = json.dumps({"episode_id": EPISODE, **members}).encode()
    try:
        found = read_gym_line("custom", text)
    except CorruptError:
        # A member's own name has to be Unicode text.
        assert any("\ud800" <= code <= "\udfff" for name in members for code in name)
        return
    round_trip(found.record, found.line)
    assert spell_gym_line(found.record, found.order) == text
    assert isinstance(found.record, Record)
    assert_same({n: p.value() for n, p in found.record.members.items()}, members)


@given(st.permutations(list(agent_line("r1"))), st.permutations(["rollout_id", "attempt"]))
def test_the_order_of_members_is_kept_beside_the_record(names: list[str], inner: list[str]) -> None:
    values = agent_line("r1")
    values["episode_id"] = {name: values["episode_id"][name] for name in inner}
    text = json.dumps({name: values[name] for name in names}).encode()
    found = read_gym_line("agent", text)
    assert found.line == join_line(agent_record("r1").line())
    assert spell_gym_line(found.record, found.order) == text
    is_ours = names == list(agent_line("r1")) and inner == ["rollout_id", "attempt"]
    assert (found.order is None) is is_ours


def test_a_nullable_member_that_is_not_there_is_null_and_left_out_again() -> None:
    values = resources_line("r1")
    del values["owner"]
    text = json.dumps(values).encode()
    found = read_gym_line("resources", text)
    assert isinstance(found.record, ResourcesRecord)
    assert found.record.owner is None
    assert spell_gym_line(found.record, found.order) == text
    assert json.loads(spell_gym_line(found.record)) == json.loads(text) | {"owner": None}


def test_members_that_are_not_known_are_kept_in_their_place() -> None:
    values = {"later": 1, **agent_line("r1"), "last": float("inf")}
    text = json.dumps(values).encode()
    found = read_gym_line("agent", text)
    assert list(found.record.extras) == ["later", "last"]  # type: ignore[union-attr]
    assert spell_gym_line(found.record, found.order) == text


def test_an_order_of_another_record_is_not_taken() -> None:
    record = agent_record("r1")
    plain = spell_gym_line(record)
    for order in (
        Order(("session", "episode_id")),
        Order(("episode_id", "none")),
        Order(("episode_id",), ("attempt",)),
    ):
        assert spell_gym_line(record, order) == plain


BROKEN = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"{",
    b'{"episode_id":{"rollout_id":"r1","attempt":0}}x',
    b'\xef\xbb\xbf{"episode_id":{"rollout_id":"r1","attempt":0}}',
    b'{"episode_id":{"rollout_id":"r1","attempt":0},"a":"\xff"}',
    b'{"episode_id":{"rollout_id":"r1","attempt":0},"a":1,"a":2}',
    b'{"episode_id":{"rollout_id":"r1","attempt":0},"a":' + b"9" * 4301 + b"}",
    b'{"episode_id":{"rollout_id":"r1","attempt":0},"a":' + b"[" * 600 + b"]" * 600 + b"}",
    b'{"episode_id":{"rollout_id":"r1","attempt":0},"a":' + b"[" * 200_000,
    b'{"episode_id":{"rollout_id":"r1"}}',
    b'{"episode_id":{"rollout_id":"r1","attempt":0,"x":1}}',
    b'{"episode_id":{"rollout_id":"../r1","attempt":0}}',
    b'{"episode_id":{"rollout_id":"r1","attempt":-1}}',
    b'{"episode_id":{"rollout_id":"r1","attempt":true}}',
    b'{"episode_id":{"rollout_id":"r1","attempt":0},"sub_key":7}',
    b'{"episode_id":"r1"}',
]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:60])
def test_what_is_no_record_is_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptError):
        read_gym_line("custom", text)


def test_a_member_that_the_role_needs_is_not_invented() -> None:
    values = agent_line("r1")
    del values["session"]
    with pytest.raises(CorruptError, match="session"):
        read_gym_line("agent", json.dumps(values).encode())


def test_a_reserved_member_is_unsupported() -> None:
    text = json.dumps({"episode_id": EPISODE, "$exact": {}}).encode()
    with pytest.raises(UnsupportedError, match="exact"):
        read_gym_line("custom", text)


def test_any_permitted_depth_is_read_and_spelt() -> None:
    value: Any = 1
    for _ in range(499):
        value = [value]
    record = Record(episode_id=EpisodeId("r1"), members={"state": JsonPayload.from_value(value)})
    text = spell_gym_line(record)
    assert text.count(b"[") == 499
    assert read_gym_line("custom", text).line == join_line(record.line())


@pytest.mark.parametrize(
    ("value", "tags"),
    [
        ((1, 2), ["tuple"]),
        ([(0,)] * 9, ["tuple"]),
        ({1: "x"}, ["map"]),
        ("\ud800", ["sur"]),
        ([float("nan"), (float("inf"),)], ["tuple"]),
        ([float("-inf")] * 9, []),
        ({"a": None}, []),
    ],
)
def test_what_gym_cannot_spell_is_named(value: object, tags: list[str]) -> None:
    record = Record(
        episode_id=EpisodeId("r1"),
        members={"plain": JsonPayload.from_value(1), "state": JsonPayload.from_value(value)},
    )
    assert beyond_gym(record) == tags


def test_text_that_is_kept_verbatim_is_beyond() -> None:
    payload = JsonPayload.from_json(b'{"a":\n1}')
    record = Record(episode_id=EpisodeId("r1"), members={"state": payload})
    assert beyond_gym(record) == ["text"]
    assert json.loads(spell_gym_line(record))["state"] == {"a": 1}


@pytest.mark.parametrize("notes", [b"[[]]", b"7", b"[7]", b"{}}", b'[["",[]]]'])
def test_malformed_annotations_are_corrupt(notes: bytes) -> None:
    record = Record(
        episode_id=EpisodeId("r1"), members={"state": JsonPayload.stored(b"null", notes)}
    )
    with pytest.raises(CorruptError):
        beyond_gym(record)


def test_a_key_that_json_cannot_spell_is_refused_or_left_out() -> None:
    record = resources_record("r1", state={(1, 2): "lost", 3: "kept"})
    with pytest.raises(ValueRefusedError):
        spell_gym_line(record)
    state = json.loads(spell_gym_line(record, lossy=True))["state"]
    assert state["more"] == {"3": "kept"}


def mangled(line: bytes) -> st.SearchStrategy[bytes]:
    """A record's line in which a piece was replaced by other bytes."""
    pieces = st.sampled_from([b"", b"NaN", b"\\u", b"}", b'"', b"[[", b"1e999", b"\xff", b"null"])
    places = st.tuples(st.integers(0, len(line)), st.integers(0, 6))
    return st.builds(
        lambda place, piece: line[: place[0]] + piece + line[place[0] + place[1] :], places, pieces
    )


@given(st.binary(max_size=200) | mangled(json.dumps(resources_line("r1")).encode()))
def test_any_bytes_are_a_record_or_an_error_of_ours(text: bytes) -> None:
    for kind in ("resources", "custom"):
        try:
            found = read_gym_line(kind, text)
        except (CorruptError, UnsupportedError):
            continue
        round_trip(found.record, found.line)
        again = read_gym_line(kind, spell_gym_line(found.record, found.order))
        assert again.line == found.line
