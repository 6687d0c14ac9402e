"""File I/O in threads that may hang: a bounded number, each awaited by as many as ask.

A thread cannot be stopped.  So a caller that stops waiting leaves it behind, a caller that
asks for the same again waits for the same thread, and once too many hang, new work is
refused instead of being queued behind them.  The threads are daemons: a hung disk does
not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from participant.core.errors import CheckpointFailedError

__all__ = ["MAX_THREADS", "BoundedIo"]

MAX_THREADS: Final = 8

_Result = TypeVar("_Result")


class BoundedIo:
    """At most ``max_threads`` threads at once."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, key: Hashable, work: Callable[[], _Result]) -> _Result:
        """The result of ``work``, or of the work under ``key`` that still runs.

        Raises:
            CheckpointFailedError: every thread is busy.
            Exception: whatever ``work`` raises.
        """
        running = self._running.get(key)
        if running is None:
            running = self._start(key, work)
        result: _Result = await asyncio.shield(running)
        return result

    def _start(self, key: Hashable, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
        if len(self._running) >= self._max_threads:
            raise CheckpointFailedError(
                f"all {self._max_threads} storage threads are busy; the storage may hang"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        self._running[key] = future
        future.add_done_callback(lambda done: self._ended(key, done))

        def main() -> None:
            try:
                result = work()
            except BaseException as error:
                _tell(loop, future, error, None)
                if not isinstance(error, Exception):
                    raise
            else:
                _tell(loop, future, None, result)

        threading.Thread(target=main, name=f"checkpoint {key}", daemon=True).start()
        return future

    def _ended(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        del self._running[key]
        if not done.cancelled():
            # An outcome that nobody waits for any more is no reason for a warning.
            done.exception()


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[_Result],
    error: BaseException | None,
    result: Any,
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    # The loop may be gone by now, and with it everybody who waited.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)
