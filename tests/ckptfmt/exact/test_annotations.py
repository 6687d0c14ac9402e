"""The runs of starred annotations."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.exact.annotations import STARRED, Tag, decode_runs, encode_runs


@pytest.mark.parametrize(
    ("indexes", "runs"),
    [
        ([0], [0, 1]),
        ([3], [3, 1]),
        ([0, 1, 2], [0, 3]),
        ([1, 3, 4, 9], [1, 1, 1, 2, 4, 1]),
    ],
)
def test_indexes_become_gaps_and_counts(indexes: list[int], runs: list[int]) -> None:
    assert encode_runs(indexes) == runs


@given(st.sets(st.integers(0, 300), min_size=1))
def test_indexes_come_back(indexes: set[int]) -> None:
    runs = encode_runs(sorted(indexes))
    assert list(chain.from_iterable(decode_runs(runs, max(indexes) + 1))) == sorted(indexes)


@given(st.lists(st.integers(-1, 6), max_size=6), st.integers(0, 12))
def test_runs_have_one_spelling(runs: list[int], length: int) -> None:
    """What is read is what would be written again: no two lines mean the same."""
    try:
        indexes = list(chain.from_iterable(decode_runs(runs, length)))
    except ValueError:
        return
    assert encode_runs(indexes) == runs
    assert max(indexes) < length


@pytest.mark.parametrize(
    "runs",
    [None, "01", 5, {}, [], [1], [0, 1, 2], [0, 0], [0, 1, 0, 1], [-1, 1], [0, -1], [0, 1.0],
     [False, True], ["0", "1"], [[0, 1]], [None, 1]],
    ids=str,
)  # fmt: skip
def test_malformed_runs_are_refused(runs: object) -> None:
    with pytest.raises(ValueError, match="runs"):
        list(decode_runs(runs, 10))


@pytest.mark.parametrize("runs", [[10, 1], [0, 11], [9, 2], [0, 1, 8, 2], [0, 10**30], [10**30, 1]])
def test_runs_past_the_array_are_refused_before_they_are_walked(runs: list[int]) -> None:
    with pytest.raises(ValueError, match="10 elements"):
        list(decode_runs(runs, 10))


def test_starred_forms_are_those_of_numbers_and_tuples() -> None:
    assert STARRED == {
        "nan*": Tag.NAN, "inf*": Tag.INF, "-inf*": Tag.NEG_INF, "tuple*": Tag.TUPLE,
    }  # fmt: skip
