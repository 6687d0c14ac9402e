"""Whether two values are the same in all that the format promises to keep."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from math import copysign
from typing import Any, Final

__all__ = ["assert_same", "dumped"]

# `json.dumps` gives the same bytes "under any options": one set for each branch it has.
_OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"ensure_ascii": False, "separators": (",", ":"), "skipkeys": True},
)


def assert_same(found: object, wanted: object) -> None:
    """Compare value, type, key order, sign of zero, NaN, and the bytes of ``json.dumps``.

    Iterative: values of any depth are compared, from a caller of any depth.  The sign and
    the payload bits of a NaN are not compared, since no spelling of JSON shows them.

    Raises:
        AssertionError: they differ; the text names the first place that does.
    """
    waiting: list[tuple[str, Any, Any]] = [("value", found, wanted)]
    while waiting:
        place, one, other = waiting.pop()
        if type(one) is not type(other):
            raise AssertionError(f"{place}: {_shown(one)} is not of the type of {_shown(other)}")
        if type(one) in (list, tuple, dict):
            if len(one) != len(other):
                raise AssertionError(f"{place}: {len(one)} elements, not {len(other)}")
            waiting += _children(place, one, other)
        elif not _are_equal_scalars(one, other):
            raise AssertionError(f"{place}: {_shown(one)} is not {_shown(other)}")
    for options in _OPTIONS:
        if dumped(found, **options) != dumped(wanted, **options):
            raise AssertionError(f"json.dumps differs with {options}")


def dumped(value: object, **options: Any) -> str:
    """What ``json.dumps`` gives for ``value``, or how it fails (keys it does not take)."""
    try:
        return json.dumps(value, **options)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    except RecursionError:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(json.dumps, value, **options).result()


def _children(place: str, one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    if type(one) is not dict:
        pairs = zip(one, other, strict=True)
        return [(f"{place}[{index}]", *pair) for index, pair in enumerate(pairs)]
    items = zip(one.items(), other.items(), strict=True)
    return [
        (f"{place} {part} {index}", *pair)
        for index, members in enumerate(items)
        for part, pair in zip(("key", "member"), zip(*members, strict=True), strict=True)
    ]


def _are_equal_scalars(one: Any, other: Any) -> bool:
    if type(one) is float:
        both_nan = one != one and other != other
        return both_nan or (one == other and copysign(1.0, one) == copysign(1.0, other))
    return bool(one == other)


def _shown(value: object) -> str:
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    # Longer integers than the interpreter converts are shown by their size.
    if isinstance(value, int) and value.bit_length() > 2000:
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
