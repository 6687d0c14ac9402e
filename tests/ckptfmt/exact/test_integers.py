"""Integers of up to 4,300 digits, whatever the interpreter's own limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import IntegerError
from ckptfmt.exact.integers import fits_64_bits, from_digits, to_digits
from tests.support.deep import integer_limit

LONGEST = 10**4300 - 1


@pytest.mark.parametrize(
    "number", [0, 1, -1, 2**64, 10**639, 10**640, LONGEST, -LONGEST], ids=int.bit_length
)
@pytest.mark.parametrize("limit", [640, 4300, 0])
def test_an_integer_is_exact_under_any_limit(number: int, limit: int) -> None:
    with integer_limit(limit):
        digits = to_digits(number)
        assert from_digits(digits) == number
    with integer_limit(0):
        assert digits == str(number)


@pytest.mark.parametrize(
    "number", [10**4300, -(10**4300), 2**14285, 2**20000, -(2**100_000)], ids=int.bit_length
)
@pytest.mark.parametrize("limit", [640, 4300, 0])
def test_4301_digits_are_refused_under_any_limit(number: int, limit: int) -> None:
    with integer_limit(limit), pytest.raises(IntegerError, match="4300"):
        to_digits(number)
    with integer_limit(0):
        digits = str(number)
    with integer_limit(limit), pytest.raises(IntegerError, match="4300"):
        from_digits(digits)


@given(st.integers(-(2**3000), 2**3000))
def test_any_integer_comes_back(number: int) -> None:
    with integer_limit(640):
        assert from_digits(to_digits(number)) == number


@pytest.mark.parametrize(
    ("number", "fits"),
    [(2**64 - 1, True), (2**64, False), (-(2**63), True), (-(2**63) - 1, False), (0, True)],
)
def test_which_integers_the_fast_encoders_take(number: int, fits: bool) -> None:
    assert fits_64_bits(number) is fits
