"""What a run of an episode has to survive, as tests to derive from.

An environment server::

    class TestMyRuns(EnvironmentContract):
        repeatable = frozenset({"verify"})           # steps made with StepMode.REPLAY

        def make(self) -> EnvironmentHooks: ...
        async def run(self, hooks, episode, tell):   # what POST /run does for self.task
            async with hooks.begin(episode, self.task) as run:
                ...
                async with run.step():
                    await tell("first step")         # in every step, ahead of its effect

An agent server derives from :class:`AgentLoopContract` in the same way; the model calls
are its repeatable steps.  The suite interrupts the run in each step in turn.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Generic, TypeVar

from ckptfmt.identity import EpisodeId
from participant.core.errors import InvalidRequestError, RolloutIdRequiredError, StaleAttemptError
from participant.hooks import ParticipantHooks
from participant.roles.agent import AgentHooks
from participant.roles.environment import EnvironmentHooks
from participant.testing.clock import settle
from participant.testing.one_server import OneServer
from participant.testing.storage import LineStorage

__all__ = ["AgentLoopContract", "EnvironmentContract", "EpisodeContract", "Tell"]

_Hooks = TypeVar("_Hooks", bound=ParticipantHooks)

Tell = Callable[[str], Awaitable[None]]
"""Tells the suite that a step begins, by a name that a run has once; it may take its time."""

_EPISODE = EpisodeId("r1")
_SECONDS = 30
"""A run that hangs for so long fails its test."""


class EpisodeContract(ABC, Generic[_Hooks]):
    """Derive from one of the two below, name the class ``Test…``, and let pytest collect it.

    ``repeatable`` are the names of steps that may be made again after a crash.
    """

    kind: ClassVar[str]
    repeatable: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def make(self) -> _Hooks:
        """Hooks of a process that has just started."""

    @abstractmethod
    async def run(self, hooks: _Hooks, episode: EpisodeId | None, tell: Tell) -> object:
        """Run the episode, from where it was restored if it was; its result, comparable."""

    async def seed(self, hooks: _Hooks, episode: EpisodeId) -> None:
        """What comes once ahead of the run, and not again after a restore."""

    async def close(self, hooks: _Hooks, episode: EpisodeId) -> None:
        """What comes after the run."""

    def test_a_run_leaves_nothing_behind(self) -> None:
        """And its steps can be told apart."""
        process = _run(self._whole())
        assert process.told, "the run told of no step"
        assert len(set(process.told)) == len(process.told), "two steps have one name"
        assert set(self.repeatable) <= set(process.told), "a repeatable step is not in the run"
        assert list(process.hooks.held()) == []

    def test_a_run_of_no_rollout_is_refused_before_its_first_step(self) -> None:
        """Nothing of it could be found again."""

        async def main() -> None:
            process = _Process(self, LineStorage())
            refused = await _error_of(self.run(process.hooks, None, process.tell))
            assert isinstance(refused, RolloutIdRequiredError), f"it was not refused: {refused}"
            assert process.told == []

        _run(main())

    def test_killed_in_any_step_it_goes_on_as_if_nothing_had_been(self) -> None:
        """No step is made twice but those that may be, and the result is the same."""
        _run(self._each_step(lambda number: self._killed(number, ends_step=True)))

    def test_killed_while_a_repeatable_step_is_in_flight_it_makes_that_again(self) -> None:
        """The boundary before the step is where it goes on."""
        _run(self._each_step(lambda number: self._killed(number, ends_step=False)))

    def test_a_checkpoint_that_is_given_up_changes_nothing(self) -> None:
        """Every step is made once."""
        _run(self._each_step(self._given_up))

    def test_a_second_checkpoint_before_the_replacement_starts_loses_nothing(self) -> None:
        """It holds the same boundary, under the next attempt."""
        _run(self._each_step(self._saved_twice))

    def test_a_retire_in_any_step_leaves_nothing_behind(self) -> None:
        """And the attempt is not run again."""
        _run(self._each_step(self._retired))

    async def _whole(self) -> _Process:
        process = _Process(self, LineStorage())
        await self.seed(process.hooks, _EPISODE)
        process.result = await self.run(process.hooks, _EPISODE, process.tell)
        await self.close(process.hooks, _EPISODE)
        return process

    async def _each_step(self, check: Callable[[int], Awaitable[None]]) -> None:
        for number in range(1, len((await self._whole()).told) + 1):
            await check(number)

    async def _interrupted(self, number: int) -> _Process:
        """A process whose episode is in its ``number``-th step."""
        process = _Process(self, LineStorage(), stop_at=number)
        await self.seed(process.hooks, _EPISODE)
        process.begin(_EPISODE)
        await process.reached.wait()
        if process.task.done():
            raise AssertionError(f"a run ended ahead of its step {number}: {process.task}")
        return process

    async def _saved(self, number: int, *, ends_step: bool) -> _Process:
        process = await self._interrupted(number)
        prepare = asyncio.create_task(process.server.send("prepare"))
        await settle()
        if ends_step or not prepare.done():
            process.go.set()
        assert (await prepare).phase == "prepared"
        before = len(process.told)
        await settle()
        later = set(process.told[before:]) - self.repeatable
        assert not later, f"{later} were begun while a checkpoint was open"
        await process.server.send("commit", episodes=[_EPISODE])
        await process.kill()
        return process

    async def _restored(self, storage: LineStorage, episode: EpisodeId, place: str) -> _Process:
        process = _Process(self, storage)
        await process.server.send("restore", "back", episodes=[episode], checkpoint_dir=place)
        await process.server.send("resume", "back")
        return process

    async def _killed(self, number: int, *, ends_step: bool) -> None:
        old = await self._saved(number, ends_step=ends_step)
        new = await self._restored(old.storage, _EPISODE, "dir")
        await self._check_continued(old, new, _EPISODE.continuation)

    async def _saved_twice(self, number: int) -> None:
        old = await self._saved(number, ends_step=True)
        second = await self._restored(old.storage, _EPISODE, "dir")
        again = _EPISODE.continuation
        await second.server.send("prepare", "second")
        await second.server.send("commit", "second", episodes=[again], checkpoint_dir="dir2")
        third = await self._restored(old.storage, again, "dir2")
        await self._check_continued(old, third, again.continuation)

    async def _check_continued(self, old: _Process, new: _Process, episode: EpisodeId) -> None:
        whole = await self._whole()
        result = await self.run(new.hooks, episode, new.tell)
        await self.close(new.hooks, episode)
        kept = [n for n in old.told if n not in self.repeatable or n not in new.told]
        assert kept + new.told == whole.told, f"{old.told} and then {new.told}: not a whole run"
        assert result == whole.result, "the result differs from that of an uninterrupted run"
        assert list(new.hooks.held()) == []

    async def _given_up(self, number: int) -> None:
        whole, process = await self._whole(), await self._interrupted(number)
        prepare = asyncio.create_task(process.server.send("prepare"))
        await settle()
        process.go.set()
        await prepare
        await process.server.send("resume")
        assert await process.ended() == whole.result
        await self.close(process.hooks, _EPISODE)
        assert process.told == whole.told

    async def _retired(self, number: int) -> None:
        process = await self._interrupted(number)
        retire = asyncio.create_task(process.server.send("retire", episodes=[_EPISODE]))
        await settle()
        process.go.set()
        await retire
        await asyncio.gather(process.task, return_exceptions=True)
        assert list(process.hooks.held()) == []
        told = list(process.told)
        again = await _error_of(self.run(process.hooks, _EPISODE, process.tell))
        assert isinstance(again, StaleAttemptError), "a retired attempt runs again"
        assert process.told == told


class EnvironmentContract(EpisodeContract[EnvironmentHooks]):
    """Runs of an environment server, whose input is ``self.task``."""

    kind = "environment"
    task: Any = "the task that it begins with"
    other_task: Any = "another task"

    def make(self) -> EnvironmentHooks:
        """Hooks of a process that has just started."""
        return EnvironmentHooks()

    def test_a_restored_episode_goes_on_with_its_own_task_only(self) -> None:
        """And is kept for it."""

        async def main() -> None:
            old = await self._saved(1, ends_step=True)
            new = await self._restored(old.storage, _EPISODE, "dir")
            task, self.task = self.task, self.other_task
            refused = await _error_of(self.run(new.hooks, _EPISODE.continuation, new.tell))
            self.task = task
            assert isinstance(refused, InvalidRequestError), "another task was taken"
            assert new.told == []
            await self._check_continued(old, new, _EPISODE.continuation)

        _run(main())


class AgentLoopContract(EpisodeContract[AgentHooks]):
    """Activations of an agent server; ``seed`` and ``close`` are those of its session."""

    kind = "agent"


class _Process:
    """A server that may be killed, and the steps that its run has told of."""

    def __init__(
        self, contract: EpisodeContract[Any], storage: LineStorage, stop_at: int = 0
    ) -> None:
        self.hooks: Any = contract.make()
        self.storage = storage
        self.server = OneServer(contract.kind, self.hooks, storage)
        self.told: list[str] = []
        self.result: object = None
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.task: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._contract = contract
        self._stop_at = stop_at
        self._is_killed = False

    async def tell(self, name: str) -> None:
        """A step begins; the one that was asked for stops here."""
        if self._is_killed:
            raise asyncio.CancelledError
        self.told.append(name)
        if len(self.told) == self._stop_at:
            self.reached.set()
            await self.go.wait()

    def begin(self, episode: EpisodeId) -> None:
        """Run the episode in the background."""
        work = self._contract.run(self.hooks, episode, self.tell)
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(lambda task: self.reached.set())

    async def ended(self) -> object:
        """The result of the run."""
        return await self.task

    async def kill(self) -> None:
        """From here on it tells of nothing any more."""
        self._is_killed = True
        self.task.cancel()
        await asyncio.wait([self.task])


async def _error_of(work: Coroutine[Any, Any, object]) -> BaseException | None:
    (result,) = await asyncio.gather(work, return_exceptions=True)
    return result if isinstance(result, BaseException) else None


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(_SECONDS):
            return await work

    return asyncio.run(main())
