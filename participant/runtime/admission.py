"""Admission: ``async with admission.enter(episode) as execution``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from ckptfmt.identity import EpisodeId
from participant.clock import Clock
from participant.core import events as ev
from participant.core.errors import StaleAttemptError
from participant.runtime.execution import Door, Execution, Post

__all__ = ["Admission"]


class Admission:
    """The door that all attributed work of a server goes through."""

    def __init__(self, post: Post, clock: Clock) -> None:
        self._post = post
        self._clock = clock
        self._tickets = itertools.count(1)
        self._executions: dict[int, Execution] = {}
        self._door = Door()

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
        self, episode: EpisodeId | None, key: str | None = None
    ) -> AsyncIterator[Execution]:
        """Run a block as work of ``episode``; waits while a checkpoint or restore is open.

        ``key`` names work that must not run twice at once, such as an attempt's run.  None
        as the episode is work of nobody, such as a judge's model call: it never waits.

        Raises:
            StaleAttemptError: the attempt is or was retired, also while the block ran.
            CheckpointParkedError: work with this key waits or runs.
            AdmissionClosedError: too many calls wait.
        """
        execution = Execution(next(self._tickets), episode, self._post, self._clock, self._door)
        self._executions[execution.ticket] = execution
        try:
            self._post(ev.Enter(execution.ticket, episode, key))
            await execution.until_it_goes()
            yield execution
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
