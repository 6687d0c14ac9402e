"""Integers of any permitted length, whatever the interpreter's own limit is set to.

CPython refuses to convert long integers to and from decimal text past a limit
that any code of the process may lower to 640 digits
(:func:`sys.set_int_max_str_digits`).  ``decimal`` knows no such limit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from ckptfmt.errors import IntegerError
from ckptfmt.wire import MAX_INTEGER_DIGITS

__all__ = ["fits_64_bits", "from_digits", "to_digits"]

# The lowest limit that the interpreter accepts; up to here int() and str() always work.
_ALWAYS_DIGITS: Final = 640
# An integer with more bits than this has more than MAX_INTEGER_DIGITS digits.
_MAX_BITS: Final = int(MAX_INTEGER_DIGITS * 3.3219280948873626) + 1


def fits_64_bits(number: int) -> bool:
    """Whether the fast encoders take the integer: signed or unsigned 64 bits."""
    return -(1 << 63) <= number < (1 << 64)


def to_digits(number: int) -> str:
    """The decimal spelling.

    Raises:
        IntegerError: more than 4,300 digits, where ``json.dumps`` ends too.
    """
    if number.bit_length() <= _MAX_BITS:
        digits = str(Decimal(number))
        if len(digits) - (number < 0) <= MAX_INTEGER_DIGITS:
            return digits
    raise IntegerError(f"an integer has more than {MAX_INTEGER_DIGITS} decimal digits")


def from_digits(digits: str) -> int:
    """The integer that ``digits`` spell.

    Raises:
        IntegerError: more than 4,300 digits.
    """
    if len(digits) <= _ALWAYS_DIGITS:
        return int(digits)
    count = len(digits) - digits.startswith("-")
    if count > MAX_INTEGER_DIGITS:
        raise IntegerError(
            f"an integer of {count} digits exceeds {MAX_INTEGER_DIGITS}",
            advice="the payload's own bytes are kept: use json_bytes()",
        )
    return int(Decimal(digits))
