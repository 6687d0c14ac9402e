"""An admitted call as its server sees it: boundaries, steps, inner tasks, a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ckptfmt.identity import EpisodeId
from participant.clock import Clock
from participant.core import events as ev
from participant.core.errors import ParticipantError
from participant.core.steps import EpisodeTimer, StepMode, StepState

__all__ = ["Door", "Execution", "Post"]

_Result = TypeVar("_Result")

Post = Callable[[ev.Event], None]
"""How a runtime's parts tell the machine; the effects are carried out before it returns."""


@dataclass(slots=True)
class _Limit:
    """A time limit round a part of the execution."""

    timer: EpisodeTimer
    task: asyncio.Task[Any]
    alarm: asyncio.Task[None] | None = None
    has_rung: bool = False


@dataclass(slots=True)
class Door:
    """What all executions see: whether admission is closed, and who minds when it changes."""

    is_closed: bool = False
    timed: set[Execution] = field(default_factory=set)


class Execution:
    """One call; made by :class:`participant.runtime.admission.Admission`.

    ``boundary_state`` is what :meth:`boundary` recorded last, None before the first one;
    whoever exports the episode takes it from here.  ``is_in_thread`` says whether it is carried
    out by a thread just now, which nothing can stop: a retire then waits for its end.
    """

    def __init__(
        self, ticket: int, episode: EpisodeId | None, post: Post, clock: Clock, door: Door
    ) -> None:
        self.ticket = ticket
        self.episode = episode
        self.boundary_state: Any = None
        self.is_retired = False
        self.is_in_thread: Callable[[], bool] = lambda: False
        self.state = StepState.RUNNING
        self.clock = clock
        self._post = post
        self._door = door
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._inner: set[asyncio.Task[Any]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._woken: asyncio.Future[None] | None = None
        self._refusal: ParticipantError | None = None
        self._shields = 0
        self._limit: _Limit | None = None

    async def boundary(self, state: Any) -> None:
        """Record the state after a completed step, and park here while a checkpoint is open.

        ``state`` must not be changed by the server afterwards.
        """
        self.boundary_state = state
        self._post(ev.Boundary(self.ticket))
        await self.until_it_goes()

    @contextlib.asynccontextmanager
    async def step(self, mode: StepMode = StepMode.WAIT) -> AsyncIterator[None]:
        """A step: a checkpoint waits for it, or lets it be and has it replayed after a crash."""
        self._post(ev.StepBegins(self.ticket, mode))
        self.state = StepState.REPLAY_STEP if mode is StepMode.REPLAY else StepState.WAIT_STEP
        self.keep_time()
        try:
            yield
        finally:
            self.state = StepState.RUNNING
            self.keep_time()
            self._post(ev.StepEnds(self.ticket))

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """The final clean-up: a retire waits for its end and does not interrupt it."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if self.is_retired and not self._shields:
                self._cancel()

    @contextlib.asynccontextmanager
    async def time_limit(self, seconds: float) -> AsyncIterator[None]:
        """A limit that does not count parked time, nor a replay step during a checkpoint.

        Raises:
            TimeoutError: the block took longer.
        """
        task = asyncio.current_task()
        assert task is not None
        self._limit = limit = _Limit(EpisodeTimer(seconds), task)
        self._door.timed.add(self)
        self.keep_time()
        try:
            yield
        except asyncio.CancelledError:
            if limit.has_rung and task.uncancel() == 0 and not self.is_retired:
                raise TimeoutError(f"the execution took longer than {seconds} s") from None
            raise
        finally:
            self._limit = None
            self._door.timed.discard(self)
            if limit.alarm is not None:
                limit.alarm.cancel()

    def create_task(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """An inner task that ends with the execution, and that a retire stops too."""
        task = asyncio.get_running_loop().create_task(work)
        self._inner.add(task)
        task.add_done_callback(self._inner_ended)
        return task

    @property
    def is_waiting(self) -> bool:
        """Whether the machine makes it wait, or park."""
        return self._woken is not None

    async def until_it_goes(self, check: Callable[[], None] | None = None) -> None:
        """Wait while the machine says so; ``check`` may refuse in the moment before it goes.

        Raises:
            StaleAttemptError: the attempt was retired, or what it waited for is gone.
        """
        while self._woken is not None:
            await self._woken
            if self._refusal is not None:
                raise self._refusal
            if check is not None:
                check()
            self._post(ev.Retry(self.ticket))

    async def end_inner(self) -> None:
        """Cancel the inner tasks and wait until the last of them has ended."""
        if self._inner:
            self._cancel(*self._inner)
        was_cancelled = False
        while self._inner:
            try:
                await asyncio.wait(list(self._inner))
            except asyncio.CancelledError:
                # Leaving them behind would let an old loop write into its successor.
                was_cancelled = True
        if was_cancelled:
            raise asyncio.CancelledError

    def goes(self) -> None:
        """The machine lets it run."""
        self._woken = None
        self.state = StepState.RUNNING
        self.keep_time()

    def waits(self) -> None:
        """The machine makes it wait, or park."""
        self._woken = asyncio.get_running_loop().create_future()
        self.state = StepState.PARKED
        self.keep_time()

    def wake(self) -> None:
        """It may ask the machine again."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def turn_away(self, error: ParticipantError) -> None:
        """It does not run, not even if it was woken a moment ago."""
        self._refusal = error
        if self._woken is None:
            self.waits()
        self.wake()

    def retire(self) -> None:
        """Cancel it, inner tasks included, unless it is in its final clean-up or in a thread."""
        self.is_retired = True
        if not self._shields and not self.is_in_thread():
            self._cancel()

    def keep_time(self) -> None:
        """Let the time limit run, or suspend it, as the state asks for."""
        limit = self._limit
        if limit is None:
            return
        now = self.clock.monotonic()
        in_replay = self._door.is_closed and self.state is StepState.REPLAY_STEP
        if limit.alarm is not None:
            limit.alarm.cancel()
            limit.alarm = None
        if self.state is StepState.PARKED or in_replay:
            limit.timer.suspend(now)
        else:
            limit.timer.start(now)
            limit.alarm = asyncio.get_running_loop().create_task(self._ring(limit))

    async def _ring(self, limit: _Limit) -> None:
        expires_at = limit.timer.expires_at
        if expires_at is not None:
            await self.clock.sleep_until(expires_at)
            limit.has_rung = True
            limit.task.cancel()

    def _cancel(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel tasks, all of them by default, each of them once."""
        everything = self._inner if self._task is None else {self._task, *self._inner}
        for task in set(tasks or everything) - self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def _inner_ended(self, task: asyncio.Task[Any]) -> None:
        self._inner.discard(task)
        self._cancelled.discard(task)
