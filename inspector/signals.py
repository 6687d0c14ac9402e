"""SIGTERM as an exception, so that the summary of what was done is still written."""

from __future__ import annotations

import signal
from typing import NoReturn

__all__ = ["Terminated", "raise_on_sigterm", "stop_raising"]


class Terminated(BaseException):
    """SIGTERM arrived."""


def raise_on_sigterm() -> None:
    """Let SIGTERM raise :class:`Terminated` in the main thread, as SIGINT does its own."""
    signal.signal(signal.SIGTERM, _terminate)


def stop_raising() -> None:
    """Let SIGTERM and SIGINT do nothing any more; the process is about to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated
