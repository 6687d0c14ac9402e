"""The strategies draw what they say, and all of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from ckptfmt.exact import check_json, encode
from ckptfmt.record import Record
from ckptfmt.testing.strategies import (
    AWKWARD_INTEGERS,
    AWKWARD_STRINGS,
    ODD_TOKENS,
    exact_values,
    json_texts,
    random_value,
    records,
)

FINDING = settings(
    max_examples=5000, phases=[Phase.generate], derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def _inside(value: object) -> Iterator[object]:
    yield value
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(parts, list | tuple):
        for part in parts:
            yield from _inside(part)


FEATURES: dict[str, Callable[[object], bool]] = {
    "NaN": lambda part: part != part,
    "infinity": lambda part: part == float("-inf"),
    "negative zero": lambda part: type(part) is float and str(part) == "-0.0",
    "an integer beyond 64 bits": lambda part: type(part) is int and part.bit_length() > 65,
    "a tuple": lambda part: type(part) is tuple and len(part) > 1,
    "an integer key": lambda part: isinstance(part, dict) and any(type(k) is int for k in part),
    "a tuple key": lambda part: isinstance(part, dict) and any(type(k) is tuple for k in part),
    "a lone surrogate": lambda part: (
        isinstance(part, str) and not part.isascii() and "\ud800" in part
    ),
    "a member named $exact": lambda part: isinstance(part, dict) and "$exact" in part,
    "four NaN in a list": lambda part: type(part) is list and sum(x != x for x in part) > 3,
}


@pytest.mark.parametrize("feature", FEATURES)
def test_values_of_each_kind_are_drawn(feature: str) -> None:
    find(
        exact_values(), lambda value: any(map(FEATURES[feature], _inside(value))), settings=FINDING
    )
    draw = random.Random(1)
    drawn = (random_value(draw) for _ in range(3000))
    # `random_value` leaves out integers that are long, for speed.
    assert any(any(map(FEATURES[feature], _inside(value))) for value in drawn)


@given(exact_values())
def test_every_value_is_accepted(value: object) -> None:
    encode(value)


@given(st.integers())
def test_every_random_value_is_accepted_and_repeatable(seed: int) -> None:
    value = random_value(random.Random(seed))
    encode(value)
    assert repr(random_value(random.Random(seed))) == repr(value)


@given(json_texts())
def test_every_text_is_json(data: bytes) -> None:
    check_json(data)
    json.loads(data)


@pytest.mark.parametrize(
    "piece",
    [
        rb"\ud8",
        rb"\uD8",
        b"\n",
        b"\r\n",
        b" ",
        b"1E5",
        b"1e400",
        rb'"\u0061"',
        "é".encode(),
        b"\\/",
    ],
)
def test_texts_of_each_kind_are_drawn(piece: bytes) -> None:
    find(json_texts(), lambda data: piece in data, settings=FINDING)


def test_texts_with_duplicate_members_are_drawn() -> None:
    find(json_texts(), lambda data: data.count(b'"a"') > 1 and b":" in data, settings=FINDING)


@given(records())
def test_every_record_is_a_record(record: Record) -> None:
    assert Record.from_line(b"".join(record.line())) == record


def test_the_tables_are_what_they_say() -> None:
    assert len(set(AWKWARD_STRINGS)) == len(AWKWARD_STRINGS)
    assert len(set(AWKWARD_INTEGERS)) == len(AWKWARD_INTEGERS)
    for token in ODD_TOKENS:
        check_json(token.encode())
