"""Payloads: checked once, kept as bytes, decoded only when asked."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given

from ckptfmt.errors import (
    CorruptError,
    CycleError,
    DepthError,
    IntegerError,
    JsonSyntaxError,
    StateError,
    ValueRefusedError,
)
from ckptfmt.payload import JsonPayload
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import exact_values, json_texts, payloads
from tests.support.deep import at_depth, nested

# F13: spellings that no encoder writes, duplicates, newlines between tokens.
FOREIGN = (
    b'{"n": 1E5, "x": 0.1000000000000000055,\n "s": "\\u00e9\xc3\xa9\\/",'
    b' "n": [-0, 1.0 , 1e400],\r\n\t"l": "\\ud800", "big": 123456789012345678901234567890}\n'
)


@given(exact_values())
def test_a_value_comes_back_at_each_call(value: object) -> None:
    payload = JsonPayload.from_value(value)
    for _ in range(2):
        assert_same(payload.value(), value)


@given(json_texts())
def test_json_text_comes_back_byte_for_byte(data: bytes) -> None:
    """F13."""
    payload = JsonPayload.from_json(data)
    assert payload.json_bytes() == data
    assert_same(payload.value(), json.loads(data))


def test_foreign_spelling_is_kept_and_decoded() -> None:
    """F13."""
    payload = JsonPayload.from_json(FOREIGN)
    assert payload.json_bytes() == FOREIGN
    assert_same(payload.value(), json.loads(FOREIGN))


@given(payloads())
def test_what_stands_in_a_line_is_one_line_of_strict_json(payload: JsonPayload) -> None:
    """F1, F16, F17."""
    for part in (payload.text, payload.annotations or b"null"):
        stored = bytes(part)
        assert not {0x0A, 0x0D} & set(stored)
        assert stored == stored.strip()
        decoded = json.loads(stored.decode(), parse_constant=pytest.fail)
        json.dumps(decoded, ensure_ascii=False).encode()


@given(payloads())
def test_slices_of_a_line_are_the_same_payload(payload: JsonPayload) -> None:
    """On read both parts are msgspec.Raw."""
    notes = payload.annotations
    read = JsonPayload.stored(
        msgspec.Raw(bytes(payload.text)), None if notes is None else msgspec.Raw(bytes(notes))
    )
    assert read == payload
    assert hash(read) == hash(payload)
    assert len(read) == len(payload) == len(bytes(payload.text))
    assert_same(read.value(), payload.value())
    if notes is None:
        assert read.json_bytes() == bytes(payload.text)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_json_may_come_in_any_buffer(make: Any) -> None:
    payload = JsonPayload.from_json(make(b'{"a":1}'))
    assert payload.value() == {"a": 1}
    assert type(payload.json_bytes()) is bytes


def test_a_buffer_that_changes_later_does_not_change_the_payload() -> None:
    buffer = bytearray(b"[1]")
    payload = JsonPayload.from_json(buffer)
    buffer[1:2] = b"2"
    assert payload.json_bytes() == b"[1]"


def test_a_value_that_changes_later_does_not_change_the_payload() -> None:
    value = [1, [2]]
    payload = JsonPayload.from_value(value)
    value[1].append(3)  # type: ignore[union-attr]
    assert payload.value() == [1, [2]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nope",
        b"[1",
        b"NaN",
        b"[1,]",
        b'"\xff"',
        b"\xef\xbb\xbf1",
        b"1 2",
        b"{'a':1}",
        b"\x00",
    ],
)
def test_what_only_claims_to_be_json_is_refused(data: bytes) -> None:
    """F23."""
    with pytest.raises(JsonSyntaxError) as caught:
        JsonPayload.from_json(data)
    assert caught.value.location.offset is not None


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"x", ValueRefusedError),
        ([{1, 2}], ValueRefusedError),
        (nested(500, 0), DepthError),
        (10**4300, IntegerError),
        (JsonPayload.from_value(1), ValueRefusedError),
        (msgspec.Raw(b"1"), ValueRefusedError),
    ],
    ids=["bytes", "set", "deep", "long", "payload", "raw"],
)
def test_a_value_that_cannot_be_kept_is_refused(value: object, error: type[Exception]) -> None:
    """F21, F22."""
    with pytest.raises(error):
        JsonPayload.from_value(value)


def test_a_cycle_is_refused() -> None:
    """F22."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(CycleError):
        JsonPayload.from_value(value)


@pytest.mark.parametrize("value", [math.nan, [()], {1: 1}, "\ud800", {"a": -math.inf}], ids=ascii)
def test_annotated_values_are_not_shipped_as_json(value: object) -> None:
    """Nobody ships null for NaN."""
    payload = JsonPayload.from_value(value)
    with pytest.raises(StateError):
        payload.json_bytes()
    assert payload.annotations is not None


def test_plain_values_are_shipped_as_json() -> None:
    value = {"a": [1, 2.5, "é", None]}
    payload = JsonPayload.from_value(value)
    assert payload.annotations is None
    assert payload.json_bytes() == '{"a":[1,2.5,"é",null]}'.encode()


@pytest.mark.parametrize("frames", [0, 600, 900])
def test_499_levels_in_both_directions_from_a_deep_stack(frames: int) -> None:
    """F22."""
    data = b'{"a":' * 499 + b"1" + b"}" * 499
    payload = at_depth(frames, lambda: JsonPayload.from_json(data))
    assert at_depth(frames, payload.json_bytes) == data
    value = at_depth(frames, payload.value)
    assert_same(value, nested(499, 1, lambda inner: {"a": inner}))
    assert_same(at_depth(frames, lambda: JsonPayload.from_value(value)).value(), value)
    with pytest.raises(DepthError):
        at_depth(frames, lambda: JsonPayload.from_json(b"[" + data + b"]"))


@pytest.mark.parametrize("digits", [641, 4300, 4301, 100_000])
def test_integers_of_any_length_are_kept_in_json_bytes(digits: int) -> None:
    data = b'{"a": [' + b"7" * digits + b"]}"
    payload = JsonPayload.from_json(data)
    assert payload.json_bytes() == data
    if digits > 4300:
        with pytest.raises(IntegerError):
            payload.value()
    else:
        assert payload.value() == {"a": [7 * (10**digits - 1) // 9]}


@pytest.mark.parametrize(
    ("text", "annotations"),
    [
        (b"[", None),
        (b"1", b'[["","nan"]]'),
        (b"null", b"x"),
        (b'"x"', b'[["","text"]]'),
        (b"\xff", None),
    ],
)
def test_damaged_parts_are_corrupt_when_decoded(text: bytes, annotations: bytes | None) -> None:
    with pytest.raises(CorruptError):
        JsonPayload.stored(text, annotations).value()


def test_equality_is_that_of_the_stored_parts() -> None:
    one = JsonPayload.from_value([1])
    assert one == JsonPayload.from_json(b"[1]")
    assert one != JsonPayload.from_json(b"[ 1]")
    assert one != JsonPayload.from_value((1,))
    assert one != [1]
    assert len({one, JsonPayload.from_json(b"[1]")}) == 1
    assert JsonPayload.from_value(math.nan) == JsonPayload.from_value(math.nan)


def test_repr_shows_nothing_of_the_content() -> None:
    assert "secret" not in repr(JsonPayload.from_value(["secret"]))
    assert repr(JsonPayload.from_value((1,))) == "JsonPayload(3 bytes, annotated)"


@pytest.mark.parametrize(
    "code", [0x00, 0x7F, 0x85, 0x9F, 0x2028, 0x2029, 0xFEFF, 0x202E, 0xFFFD, 0xFFFE]
)
def test_awkward_characters_are_kept(code: int) -> None:
    """F17."""
    for value in (chr(code), f"a{chr(code)}b", {chr(code): [chr(code) * 3]}):
        assert_same(JsonPayload.from_value(value).value(), value)
        raw = json.dumps(value, ensure_ascii=False).encode()
        assert JsonPayload.from_json(raw).json_bytes() == raw


def test_a_member_named_exact_is_user_data() -> None:
    """F19."""
    value = {"$exact": [["", "nan"]], "x": {"$exact": {"a": [["/0", "tuple"]]}}, "y": (math.nan,)}
    assert_same(JsonPayload.from_value(value).value(), value)
    data = b'{"$exact":{"x":[["","nan"]]},"x":null}'
    assert JsonPayload.from_json(data).json_bytes() == data
    assert_same(JsonPayload.from_json(data).value(), json.loads(data))


def test_a_table_keeps_none_nan_and_absent_cells_apart() -> None:
    """F20."""
    value = {
        "columns": {"a": {0: 1.0, 1: math.nan, 2: None}, "b": {0: "x", 2: "y"}},
        "index": {0: "0"},
    }
    assert_same(JsonPayload.from_value(value).value(), value)


def test_keys_keep_their_type_and_order() -> None:
    """F15, F18."""
    value = {
        "10": 0,
        "9": 0,
        10: 1,
        9: 1,
        None: 2,
        False: 3,
        1.5: 4,
        -math.inf: 5,
        "z": 6,
        "a": 7,
        (): 8,
    }
    assert_same(JsonPayload.from_value(value).value(), value)
    text = {"10": 0, "9": 1, "b": {"z": 1, "a": 2}, "": 3}
    spelt = json.dumps(text, separators=(",", ":")).encode()
    assert JsonPayload.from_value(text).json_bytes() == spelt


@pytest.mark.parametrize(
    "value",
    [
        2**53 + 1,
        2**64 + 1,
        -(2**65),
        10**29 + 1,
        0.1,
        1e22,
        5e-324,
        1.0,
        1,
        1e16,
        10**16,
        -0.0,
        0,
        True,
    ],
)
def test_numbers_keep_value_and_type(value: float) -> None:
    """F10, F11, F12."""
    for holder in (value, [value], {"a": {"b": (value,)}}, {value: value}):
        assert_same(JsonPayload.from_value(holder).value(), holder)


def test_tuples_and_lists_stay_apart() -> None:
    """F14."""
    value = ((), [()], [[], ([],)], {"a": (1, [2, (3,)])}, [(), [], (), (), ()])
    assert_same(JsonPayload.from_value(value).value(), value)
