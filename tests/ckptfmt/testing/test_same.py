"""The comparison finds every difference that the format promises not to make."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given

from ckptfmt.testing.same import assert_same, dumped
from ckptfmt.testing.strategies import exact_values
from tests.support.deep import at_depth, nested


class Text(str):
    __slots__ = ()


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0), (1, True), (0, False), (0.0, -0.0), (math.nan, None), (math.inf, -math.inf),
    (math.nan, 0.0), ([], ()), ([1], (1,)), ("a", Text("a")), ("a", b"a"), ([1], [1, 2]),
    ([1, 2], [2, 1]), (None, "null"), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: 0}, {"1": 0}),
    ({1: 0}, {True: 0}), ({1: 0}, {1.0: 0}), ({"a": 1}, {"a": 2}), ({"a": 1}, {"a": 1, "b": 2}),
    ({(1,): 0}, {(1.0,): 0}), ({(): 0}, {((),): 0}), ({0.0: 1}, {-0.0: 1}), ("\ud800", "\ufffd"),
    (2**64, 2**64 + 1), (2**64, float(2**64)), ([[[(0.0,)]]], [[[(-0.0,)]]]),
    ({"a": {None: 1}}, {"a": {"null": 1}}), ({math.nan: 0}, {0.5: 0}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_a_difference_is_found_in_either_direction(one: object, other: object) -> None:
    for left, right in ((one, other), (other, one), ([one], [other]), ({"k": one}, {"k": other})):
        with pytest.raises(AssertionError):
            assert_same(left, right)


@given(exact_values())
def test_a_value_is_the_same_as_its_copy(value: object) -> None:
    assert_same(value, value)
    assert_same(copy.deepcopy(value), value)


def test_any_nan_is_the_same_as_any_other() -> None:
    assert_same([float("nan"), {float("nan"): 1}], [-float("nan"), {math.nan: 1}])


def test_depth_does_not_matter() -> None:
    value = nested(499, -0.0)
    at_depth(900, lambda: assert_same(value, nested(499, -0.0)))
    with pytest.raises(AssertionError, match=r"\[0\]"):
        at_depth(900, lambda: assert_same(value, nested(499, 0.0)))


def test_the_place_of_the_difference_is_named() -> None:
    with pytest.raises(AssertionError, match=r"value\[1\] member 0\[0\]: 1 is not 2"):
        assert_same([0, {"a": [1]}], [0, {"a": [2]}])
    with pytest.raises(AssertionError, match="key 1"):
        assert_same({"a": 1, "b": 1}, {"a": 1, "c": 1})


def test_a_difference_between_long_integers_is_shown_by_their_size() -> None:
    with pytest.raises(AssertionError, match="bits"):
        assert_same(10**4299, 10**4299 + 1)


def test_dumped_says_what_json_dumps_does() -> None:
    assert dumped([1, math.nan]) == "[1, NaN]"
    assert dumped({(): 1}).startswith("TypeError")
    assert dumped({(): 1}, skipkeys=True) == "{}"
