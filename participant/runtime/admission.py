"""Admission: ``async with admission.enter(episode) as execution``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Self

from ckptfmt.identity import EpisodeId
from participant.clock import Clock, SystemClock
from participant.core import events as ev
from participant.core.errors import AdmissionClosedError, StaleAttemptError
from participant.runtime.execution import Door, Execution, Post

__all__ = ["Admission", "Gone"]

Gone = Callable[[], Awaitable[None]]
"""Returns when the client of a call has gone away."""


class Admission:
    """The door that all attributed work of a server goes through."""

    def __init__(self, post: Post, clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._tickets = itertools.count(1)
        self._executions: dict[int, Execution] = {}
        self._door = Door()

    @classmethod
    def open(cls) -> Self:
        """A door that is never closed and counts nothing: for where checkpointing is off."""
        return cls(lambda event: None, SystemClock())

    def __len__(self) -> int:
        return len(self._executions)

    def get(self, ticket: int) -> Execution | None:
        """The execution with this ticket, while it waits or runs."""
        return self._executions.get(ticket)

    def of(self, episode: EpisodeId) -> list[Execution]:
        """The executions of an episode."""
        return [e for e in self._executions.values() if e.episode == episode]

    @contextlib.asynccontextmanager
    async def enter(
        self,
        episode: EpisodeId | None,
        key: str | None = None,
        *,
        check: Callable[[], None] | None = None,
        gone: Gone | None = None,
    ) -> AsyncIterator[Execution]:
        """Run a block as work of ``episode``; waits while a checkpoint or restore is open.

        ``key`` names work that must not run twice at once, such as an attempt's run.  None
        as the episode is work of nobody, such as a judge's model call: it never waits.
        ``check`` may refuse the work by an exception, last in the very moment before it
        starts; what it refuses has not started.  A call that waits is dropped when ``gone``
        returns.

        Raises:
            StaleAttemptError: the attempt is or was retired, also while the block ran.
            CheckpointParkedError: work with this key waits or runs.
            AdmissionClosedError: too many calls wait, or the client has gone meanwhile.
        """
        execution = Execution(next(self._tickets), episode, self._post, self._clock, self._door)
        self._executions[execution.ticket] = execution
        try:
            if check is not None:
                check()
            self._post(ev.Enter(execution.ticket, episode, key))
            with _dropped_when(gone, execution):
                await execution.until_it_goes(check)
            yield execution
            if execution.is_retired:
                # Its cancellation may be under way still; it must not reach what comes after.
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await execution.end_inner()
            task = asyncio.current_task()
            if execution.is_retired and task is not None and task.uncancel() == 0:
                name = "the call" if episode is None else episode.capture_key
                raise StaleAttemptError(f"{name} was retired while it ran") from None
            raise
        finally:
            try:
                await execution.end_inner()
            finally:
                del self._executions[execution.ticket]
                self._post(ev.Leave(execution.ticket))

    def changed(self, *, closed: bool) -> None:
        """Admission was closed or opened: tell the executions whose time depends on it."""
        self._door.is_closed = closed
        for execution in tuple(self._door.timed):
            execution.keep_time()


@contextlib.contextmanager
def _dropped_when(gone: Gone | None, execution: Execution) -> Iterator[None]:
    if gone is None or not execution.is_waiting:
        yield
        return
    watch = asyncio.get_running_loop().create_task(_drop_when(gone, execution))
    try:
        yield
    finally:
        watch.cancel()


async def _drop_when(gone: Gone, execution: Execution) -> None:
    await gone()
    if execution.is_waiting:
        error = AdmissionClosedError("the client went away while its call waited; it did not run")
        execution.turn_away(error)
