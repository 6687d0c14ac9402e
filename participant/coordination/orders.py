"""In which order the servers of a job are asked: one table for every operation.

A caller comes before what it calls where work is to stop, and after it where work is to
go on: a server that still works must find those that it calls at work, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "ORDERS", "Order"]

KINDS: Final = ("environment", "model", "agent", "resources")
"""The kinds of servers that can be coordinated."""


@dataclass(frozen=True, slots=True)
class Order:
    """The stages of an operation, each the kinds that are asked at once.

    ``stops``: a stage that did not fully succeed is the last one.
    """

    stages: tuple[tuple[str, ...], ...]
    stops: bool = False


_AT_ONCE: Final = Order((KINDS,))
_ONE_BY_ONE: Final = tuple((kind,) for kind in KINDS)

ORDERS: Final[Mapping[str, Order]] = {
    "prepare": Order(_ONE_BY_ONE, stops=True),
    "commit": _AT_ONCE,
    "renew": _AT_ONCE,
    "resume": Order(_ONE_BY_ONE[::-1]),
    "restore": _AT_ONCE,
    "retire": Order((("environment",), ("agent",), ("model", "resources")), stops=True),
    "roll back": _AT_ONCE,
}
"""By operation.  *roll back* is the retire of a restore that failed: nobody works yet, and one
that hangs must not use up the time of the others."""
