"""Exit codes: published, the same in every output format, and only added to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

__all__ = ["MEANINGS", "Exit", "worst"]


class Exit(IntEnum):
    """What the process ends with."""

    DONE = 0
    NEGATIVE = 1
    USAGE = 2
    INCOMPLETE = 3
    UNAVAILABLE = 4
    TRANSIENT = 5
    BUG = 70
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


MEANINGS: Final = {
    Exit.DONE: "done, same, valid",
    Exit.NEGATIVE: "a negative answer: findings, not found, refused",
    Exit.USAGE: "the call is wrong; nothing was done",
    Exit.INCOMPLETE: "an answer was given, but damage or what is too large had to be skipped, "
    "or a sample or a time limit left things out",
    Exit.UNAVAILABLE: "the input is missing, is no checkpoint or may not be read; "
    "or the output cannot be written",
    Exit.TRANSIENT: "the store failed in a way that may pass: repeat",
    Exit.BUG: "a bug in this tool",
    Exit.INTERRUPTED: "SIGINT",
    Exit.CLOSED_PIPE: "the reader of the output went away",
    Exit.TERMINATED: "SIGTERM",
}
"""Each code in words, for help and documents."""

# The first that applies is what the process ends with.
_PRECEDENCE: Final = (
    Exit.TERMINATED,
    Exit.CLOSED_PIPE,
    Exit.INTERRUPTED,
    Exit.BUG,
    Exit.TRANSIENT,
    Exit.UNAVAILABLE,
    Exit.USAGE,
    Exit.INCOMPLETE,
    Exit.NEGATIVE,
    Exit.DONE,
)


def worst(codes: Iterable[Exit]) -> Exit:
    """The one code for several outcomes: signals > 70 > 5 > 4 > 2 > 3 > 1 > 0."""
    return min((*codes, Exit.DONE), key=_PRECEDENCE.index)
