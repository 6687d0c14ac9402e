"""The end of a long piece of work: held while a checkpoint is open, and cleaned up in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from typing import Any

from participant.clock import Clock
from participant.runtime.execution import Execution

__all__ = ["CleanUp", "CleanUps", "held", "to_the_end", "uninterrupted"]

CleanUp = Callable[[], Awaitable[object]]

_logger = logging.getLogger(__name__)


class CleanUps:
    """What has to be undone: the last first, each once, all under one time-out."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._left: list[CleanUp] = []

    def add(self, work: CleanUp) -> None:
        """Have ``work`` called and awaited at the end."""
        self._left.append(work)

    async def run(self) -> None:
        """Run them to their end, even if the caller is cancelled meanwhile.

        One that fails is logged, and keeps none of the others from running.
        """
        if not self._left:
            return
        loop = asyncio.get_running_loop()
        end = self._clock.monotonic() + self._timeout_s
        work = loop.create_task(self._run_all())
        limit = loop.create_task(self._clock.sleep_until(end))
        was_cancelled = await _outlast({work, limit})
        if not work.done():
            _logger.error("clean-ups have not ended within %s s; given up", self._timeout_s)
            self._left.clear()
            work.cancel()
            was_cancelled |= await _outlast({work})
        limit.cancel()
        if was_cancelled:
            raise asyncio.CancelledError

    async def _run_all(self) -> None:
        while self._left:
            work = self._left.pop()
            try:
                await work()
            except Exception:
                _logger.exception("a clean-up failed")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                _logger.exception("a clean-up was cancelled from within")


async def _outlast(tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Wait until one of them has ended, whoever cancels; whether somebody did."""
    was_cancelled = False
    while not any(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            was_cancelled = True
    return was_cancelled


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` to its end, even if the caller is cancelled meanwhile."""
    task = asyncio.get_running_loop().create_task(work)
    was_cancelled = await _outlast({task})
    task.result()
    if was_cancelled:
        raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def to_the_end(execution: Execution, clean_ups: CleanUps) -> AsyncIterator[None]:
    """Run a block as the whole of an execution, and end it so that no checkpoint is torn.

    What the block came to, a failure too, is held while a checkpoint is open: first ahead
    of the clean-ups, so that what is exported can still be continued, then ahead of the
    reply.  A retire does not interrupt the clean-ups.
    """
    async with held(execution):
        try:
            async with held(execution):
                yield
        finally:
            with execution.finishing():
                await clean_ups.run()


@contextlib.asynccontextmanager
async def held(execution: Execution) -> AsyncIterator[None]:
    """Park at the end of a block while a checkpoint is open, unless it was cancelled."""
    try:
        yield
    except Exception:
        await execution.boundary(execution.boundary_state)
        raise
    await execution.boundary(execution.boundary_state)
