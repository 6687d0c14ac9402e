"""Record lines: what is written, what is read, what is corrupt."""

from __future__ import annotations

import json
import math
import random
from dataclasses import FrozenInstanceError, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    IntegerError,
    NameRefusedError,
    UnsupportedError,
    ValueRefusedError,
)
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import exact_values, records
from tests.support.amounts import random_values
from tests.support.deep import at_depth

OPENING = b'{"episode_id":{"rollout_id":"4-2","attempt":1}'


def record(**values: object) -> Record:
    members = {name: JsonPayload.from_value(value) for name, value in values.items()}
    return Record(episode_id=EpisodeId("4-2", 1), members=members)


def line_of(value: Record) -> bytes:
    return join_line(value.line())


def test_a_line_is_compact_json_with_annotations_last() -> None:
    assert line_of(record()) == OPENING + b"}"
    assert line_of(record(x=[1, 2.5], y="é")) == OPENING + ',"x":[1,2.5],"y":"é"}'.encode()
    assert line_of(record(x=(1,), y=1, z=math.nan)) == (
        OPENING + b',"x":[1],"y":1,"z":null,"$exact":{"x":[["","tuple"]],"z":[["","nan"]]}}'
    )


@given(records())
def test_any_record_comes_back(wanted: Record) -> None:
    line = line_of(wanted)
    found = Record.from_line(line)
    assert found == wanted
    assert found.key == wanted.key
    assert [*found.members] == [*wanted.members]
    for name, payload in wanted.members.items():
        assert_same(found.members[name].value(), payload.value())
    assert line_of(found) == line
    # Written from its parts, too.
    assert line_of(replace(found)) == line


@given(records())
def test_any_line_is_strict_json_without_line_breaks(wanted: Record) -> None:
    """F1."""
    line = line_of(wanted)
    assert not {0x0A, 0x0D} & set(line)
    decoded = json.loads(line.decode(), parse_constant=pytest.fail)
    assert json.dumps(decoded, ensure_ascii=False).encode()
    assert next(iter(decoded)) == "episode_id"
    assert "$exact" not in [*decoded][:-1]


@given(exact_values())
def test_a_payload_goes_into_the_next_line_as_it_came(value: object) -> None:
    """F9, F13: never decoded, never encoded again."""
    first = Record.from_line(line_of(record(x=value, y=1)))
    second = replace(first, members={"x": first.members["x"], "y": JsonPayload.from_value(2)})
    assert second.members["x"] is first.members["x"]
    third = Record.from_line(line_of(second))
    assert third.members["x"] == first.members["x"]
    assert_same(third.members["x"].value(), value)
    assert third.members["y"].value() == 2


FOREIGN = [
    OPENING + b', "x": 1 }',
    b'{"x":1.50,"\\u0079":"\\u0041","episode_id": {"attempt":1, "rollout_id":"4-2"}}',
    OPENING + b',"$exact":{"x":[ ["", "tuple"] ]},"x":[1E5]}',
    OPENING + b',"x":{"a":1,"a":2},"l":"\\ud83d\\ude00"}',
    OPENING + b',"x":[],"$exact":{}}',
]


@pytest.mark.parametrize("line", FOREIGN)
def test_an_unmodified_record_is_written_as_the_bytes_that_were_read(line: bytes) -> None:
    read = Record.from_line(line)
    assert read.line() == (line,)
    assert read.episode_id == EpisodeId("4-2", 1)


@pytest.mark.parametrize("line", FOREIGN)
def test_a_changed_copy_is_written_anew_with_its_payloads_untouched(line: bytes) -> None:
    read = Record.from_line(line)
    changed = replace(read, episode_id=read.episode_id.continuation)
    written = line_of(changed)
    assert written.startswith(b'{"episode_id":{"rollout_id":"4-2","attempt":2}')
    again = Record.from_line(written)
    assert again.members == read.members
    assert bytes(again.members["x"].text) == bytes(read.members["x"].text)
    added = replace(read, members={**read.members, "new": JsonPayload.from_value(7)})
    assert Record.from_line(line_of(added)).members["new"].value() == 7


def test_a_member_named_exact_inside_a_payload_is_user_data() -> None:
    """F19."""
    value = {"$exact": {"x": [["", "nan"]]}, "a": (1, math.nan)}
    found = Record.from_line(line_of(record(x=value)))
    assert_same(found.members["x"].value(), value)


def test_payloads_read_are_slices_of_their_own_line() -> None:
    found = Record.from_line(line_of(record(x="a" * 100, y=(1,))))
    assert type(found.members["x"].text) is msgspec.Raw
    assert type(found.members["y"].annotations) is msgspec.Raw


@pytest.mark.parametrize(
    ("sub_key", "key"), [("s 1/\n", "4-2-a1/s%201%2F%0A"), ("", "4-2-a1/"), (None, "4-2-a1")]
)
def test_the_key_of_a_record(sub_key: object, key: str) -> None:
    assert record(sub_key=sub_key, x=1).key == key
    assert Record.from_line(line_of(record(sub_key=sub_key))).key == key


def test_the_sub_key_member_may_have_another_name_or_none() -> None:
    members = {"sid": JsonPayload.from_value("s"), "sub_key": JsonPayload.from_value([1])}
    named = Record(episode_id=EpisodeId("r"), members=members, sub_key_member="sid")
    assert named.key == "r/s"
    assert Record.from_line(line_of(named), sub_key_member="sid").key == "r/s"
    assert Record.from_line(line_of(named), sub_key_member=None).key == "r"
    with pytest.raises(CorruptError):
        Record.from_line(line_of(named))


@pytest.mark.parametrize(
    "name", ["episode_id", "$exact", "$", "$new", "\ud800", "a\udfff"], ids=ascii
)
def test_reserved_and_broken_names_are_refused(name: str) -> None:
    with pytest.raises(NameRefusedError):
        record(**{name: 1})


@pytest.mark.parametrize(
    "name", ["", " ", "a$", "é", "\x00", '"\\', "__class__", "sub_key ", "null"]
)
def test_any_other_name_comes_back(name: str) -> None:
    found = Record.from_line(line_of(record(**{name: (1,)})))
    assert [*found.members] == [name]
    assert found.members[name].value() == (1,)


@pytest.mark.parametrize(
    "value",
    [b"1", "1", 1, None, {}, msgspec.Raw(b"1"), JsonPayload],
    ids=lambda value: type(value).__name__,
)
def test_a_member_that_is_no_payload_is_refused_before_anything_is_written(value: Any) -> None:
    """F23: a fragment that claims to be JSON."""
    with pytest.raises(ValueRefusedError):
        Record(episode_id=EpisodeId("r"), members={"x": value})


@pytest.mark.parametrize("sub_key", ["\ud800", "s" * 2000, 1, [], True], ids=ascii)
def test_a_malformed_sub_key_is_refused(sub_key: object) -> None:
    with pytest.raises(NameRefusedError):
        record(sub_key=sub_key)


def test_a_record_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        record().episode_id = EpisodeId("x")  # type: ignore[misc]


CORRUPT = {
    "empty": b"",
    "an array": b"[]",
    "null": b"null",
    "cut": OPENING,
    "trailing garbage": OPENING + b"}x",
    "two objects": OPENING + b"}" + OPENING + b"}",
    "no episode id": b'{"x":1}',
    "no members at all": b"{}",
    "an episode id that is null": b'{"episode_id":null}',
    "an episode id that is a string": b'{"episode_id":"4-2"}',
    "no attempt": b'{"episode_id":{"rollout_id":"r"}}',
    "no rollout id": b'{"episode_id":{"attempt":1}}',
    "attempt true": b'{"episode_id":{"rollout_id":"r","attempt":true}}',
    "attempt 1.0": b'{"episode_id":{"rollout_id":"r","attempt":1.0}}',
    "attempt 1e0": b'{"episode_id":{"rollout_id":"r","attempt":1e0}}',
    "attempt in a string": b'{"episode_id":{"rollout_id":"r","attempt":"1"}}',
    "attempt null": b'{"episode_id":{"rollout_id":"r","attempt":null}}',
    "attempt below zero": b'{"episode_id":{"rollout_id":"r","attempt":-1}}',
    "attempt beyond 63 bits": b'{"episode_id":{"rollout_id":"r","attempt":9223372036854775808}}',
    "attempt of 5,000 digits": b'{"episode_id":{"rollout_id":"r","attempt":' + b"9" * 5000 + b"}}",
    "a rollout id that is a number": b'{"episode_id":{"rollout_id":1,"attempt":1}}',
    "a rollout id that is empty": b'{"episode_id":{"rollout_id":"","attempt":1}}',
    "a rollout id with a line break": b'{"episode_id":{"rollout_id":"r\\n","attempt":1}}',
    "a rollout id like an attempt": b'{"episode_id":{"rollout_id":"r-a1","attempt":1}}',
    "a rollout id twice": b'{"episode_id":{"rollout_id":"r","rollout_id":"s","attempt":1}}',
    "an attempt twice": b'{"episode_id":{"rollout_id":"r","attempt":1,"attempt":1}}',
    "an unknown member in the id": b'{"episode_id":{"rollout_id":"r","attempt":1,"x":1}}',
    "an episode id twice": OPENING + b',"episode_id":{"rollout_id":"r","attempt":1}}',
    "a member twice": OPENING + b',"x":1,"x":1}',
    "a member twice in two spellings": OPENING + b',"x":1,"\\u0078":2}',
    "a member twice with white space": OPENING + b', "x": 1, "x": 2 }',
    "annotations twice": OPENING + b',"x":1,"$exact":{},"$exact":{}}',
    "annotations of a field twice": OPENING
    + b',"x":[],"$exact":{"x":[["","tuple"]],"x":[["","tuple"]]}}',
    "annotations that are a list": OPENING + b',"x":[],"$exact":[]}',
    "annotations that are null": OPENING + b',"x":[],"$exact":null}',
    "annotations of nothing": OPENING + b',"$exact":{"x":[["","nan"]]}}',
    "annotations of the episode id": OPENING + b',"$exact":{"episode_id":[["","tuple"]]}}',
    "NaN": OPENING + b',"x":NaN}',
    "a leading zero": OPENING + b',"x":01}',
    "a control character": OPENING + b',"x":"\x01"}',
    "an unknown escape": OPENING + b',"x":"\\q"}',
    "no UTF-8 and white space": OPENING + b', "x":"\xff"}',
    "a name that is no UTF-8": OPENING + b',"\xff":1}',
    "a name with a lone surrogate": OPENING + b',"\\ud800":1}',
    "a lone surrogate": OPENING + b',"x":"\\ud800"}',
    "a byte order mark": b"\xef\xbb\xbf" + OPENING + b"}",
    "5,000 levels": OPENING + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "5,000 levels without end": OPENING + b',"x":' + b"[" * 5000,
    "400 levels without end": OPENING + b',"x":' + b"[" * 400,
    "a sub-key that is a number": OPENING + b',"sub_key":1}',
    "a sub-key of 5,000 digits": OPENING + b',"sub_key":' + b"1" * 5000 + b"}",
    "a sub-key that is too long": OPENING + b',"sub_key":"' + b"s" * 2000 + b'"}',
    "a sub-key with a surrogate": OPENING
    + b',"sub_key":"\xef\xbf\xbd","$exact":{"sub_key":[["","sur",[0,55296]]]}}',
    "a sub-key that does not fit": OPENING + b',"sub_key":"s","$exact":{"sub_key":[["","nan"]]}}',
}


@pytest.mark.parametrize("frames", [0, 600, 900])
@pytest.mark.parametrize("name", CORRUPT)
def test_a_malformed_line_is_corrupt_from_any_stack(name: str, frames: int) -> None:
    with pytest.raises(CorruptError):
        at_depth(frames, lambda: Record.from_line(CORRUPT[name]))


@pytest.mark.parametrize("name", ["$", "$new", "$exact2", "$Exact"])
def test_an_unknown_reserved_member_is_of_a_later_release(name: str) -> None:
    with pytest.raises(UnsupportedError, match="reserved"):
        Record.from_line(OPENING + b',"' + name.encode() + b'":1}')


def test_unknown_members_are_kept_whatever_they_hold() -> None:
    """F25: passed through, never None, never half filled."""
    found = Record.from_line(OPENING + b',"new":{"a":[1E5]},"other":null}')
    assert found.members["new"].json_bytes() == b'{"a":[1E5]}'
    assert found.members["other"].value() is None


def _damaged(line: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(line)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(damaged) + 1)
        match draw.randrange(3):
            case 0:
                del damaged[place : place + draw.randrange(3)]
            case 1:
                damaged[place : place + 1] = bytes([draw.randrange(256)])
            case _:
                damaged[place:place] = draw.choice(
                    (b" ", b",", b'"', b"9" * 5000, b"\\", b"[" * 900, b"\xff")
                )
    return bytes(damaged)


@pytest.mark.fuzz
def test_a_damaged_line_gives_a_record_or_a_typed_error() -> None:
    draw = random.Random(42)
    lines = [
        *FOREIGN,
        line_of(record(x=(1, math.nan), sub_key="s", y={"a": ["é", 1.5]}, z={1: ()})),
    ]
    for _ in range(random_values(3000)):
        line = _damaged(draw.choice(lines), draw)
        try:
            found = Record.from_line(line)
        except (CorruptError, UnsupportedError):
            continue
        assert line_of(found) == line
        for payload in found.members.values():
            try:
                payload.value()
            except CkptError as error:
                assert isinstance(error, CorruptError | IntegerError)  # noqa: PT017 - either may be
