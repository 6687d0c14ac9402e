"""Calls from a deep Python stack, and values of a given depth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["at_depth", "integer_limit", "nested"]

_T = TypeVar("_T")


def at_depth(frames: int, call: Callable[[], _T]) -> _T:
    """``call()`` with ``frames`` Python frames below it, those of the test runner included."""
    frame = sys._getframe()
    missing = frames
    while frame is not None:
        missing -= 1
        frame = frame.f_back  # type: ignore[assignment]
    return _descend(max(missing, 0), call)


def _descend(missing: int, call: Callable[[], _T]) -> _T:
    return call() if missing == 0 else _descend(missing - 1, call)


def nested(levels: int, core: Any, wrap: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    """``core`` in ``levels`` containers, each made by ``wrap``."""
    for _ in range(levels):
        core = wrap(core)
    return core


@contextmanager
def integer_limit(digits: int) -> Iterator[None]:
    """Another limit of the interpreter on decimal text of integers, given back after."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(digits)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)
