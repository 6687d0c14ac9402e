"""A clock that moves when it is told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools

__all__ = ["FakeClock", "settle"]


async def settle(turns: int = 50) -> None:
    """Let everything run that is ready; work in threads is not waited for."""
    for _ in range(turns):
        await asyncio.sleep(0)


class FakeClock:
    """A :class:`participant.clock.Clock` for tests; wall time can be set apart."""

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._now = monotonic
        self._wall_offset = wall - monotonic
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """As :meth:`participant.clock.Clock.monotonic`."""
        return self._now

    def wall(self) -> float:
        """As :meth:`participant.clock.Clock.wall`."""
        return self._now + self._wall_offset

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does."""
        self._wall_offset += seconds

    async def sleep_until(self, when: float) -> None:
        """As :meth:`participant.clock.Clock.sleep_until`."""
        if when <= self._now:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (when, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let time pass; whoever sleeps is woken in order, and runs before time goes on."""
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            when, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, when)
            if not woken.done():
                woken.set_result(None)
                await settle()
        self._now = end
        await settle()
