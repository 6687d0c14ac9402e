"""Time as a component: what is passed in is told apart from what is read off the machine."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Seconds; ``monotonic`` never jumps, ``wall`` is Unix time and may."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def wall(self) -> float:
        """Seconds since the Unix epoch."""

    async def sleep_until(self, when: float) -> None:
        """Return once :meth:`monotonic` has reached ``when``."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """As :meth:`Clock.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """As :meth:`Clock.wall`."""
        return time.time()

    async def sleep_until(self, when: float) -> None:
        """As :meth:`Clock.sleep_until`."""
        while (left := when - time.monotonic()) > 0:
            await asyncio.sleep(left)
