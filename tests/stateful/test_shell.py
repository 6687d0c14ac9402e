"""One participant with real tasks, its commands sent in the same turns of the loop as its work.

The machine alone is held against a model in ``test_participant.py``.  Here it is the shell
that is looked at: what is woken, turned away, cancelled or called off before the task that
it is meant for has had a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptfmt.identity import EpisodeId
from participant.core.errors import ParticipantError
from participant.core.phases import Phase
from participant.core.steps import StepMode
from participant.hooks import Export, Scope
from participant.roles.generic import StateTable
from participant.runtime.execution import Execution
from participant.testing.storage import MemoryStorage
from tests.support.participants import ServerWorld, check_at_rest

EPISODES = [EpisodeId(f"r{number}", attempt) for number in range(3) for attempt in range(3)]
IDS = ("a", "b", "c")
MAX_TURNS = 12
MAX_RETRIES = 100
"""A call that is asked oftener than this before it runs does not wait, it spins."""


async def turns(draw: random.Random) -> None:
    """Let others have a few turns, or none."""
    for _ in range(draw.randrange(MAX_TURNS)):
        await asyncio.sleep(0)


class Moody(StateTable):
    """Hooks that take their time, and fail now and then."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._draw = draw
        self.is_well = False

    async def _mood(self) -> None:
        if self.is_well:
            return
        await turns(self._draw)
        if self._draw.random() < 0.1:
            raise RuntimeError("a bad moment")

    async def export(self, scope: Scope) -> Export:
        """As always, or not."""
        await self._mood()
        return await super().export(scope)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As always, or not."""
        await self._mood()
        await super().install(records, episodes)

    async def free(self, episode: EpisodeId) -> None:
        """As always, or not."""
        await self._mood()
        await super().free(episode)


class History:
    """A server, calls and commands to it, and how all of it ends."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.hooks = Moody(draw)
        self.world = ServerWorld(
            self.hooks, MemoryStorage(self._before), lease_grace_seconds=20.0, max_waiting=8
        )
        self.tasks: list[asyncio.Task[None]] = []

    def _before(self, step: str) -> None:
        if not self.hooks.is_well and self.draw.random() < 0.1:
            raise OSError("the disk is full")

    async def run(self) -> None:
        """Anything, then an end in which everything comes to rest."""
        draw = self.draw
        for _ in range(draw.randrange(5, 30)):
            for _ in range(draw.randrange(1, 4)):
                work = self.call() if draw.random() < 0.5 else self.command()
                self.tasks.append(asyncio.create_task(work))
            if draw.random() < 0.5:
                await turns(draw)
            if draw.random() < 0.15:
                await self.world.clock.advance(draw.choice([0.5, 3.0, 25.0]))
            if draw.random() < 0.1:
                draw.choice(self.tasks).cancel()
        await self.end()

    async def call(self) -> None:
        """A call of some episode; however it ends, it ends by an error that it may end by."""
        draw, episode = self.draw, self.draw.choice(EPISODES)
        key = draw.choice([None, episode.rollout_id])
        gone = (lambda: turns(draw)) if draw.random() < 0.3 else None
        retries = 0

        def check() -> None:
            nonlocal retries
            retries += 1
            assert retries < MAX_RETRIES, "the call spins"

        try:
            async with self.world.participant.admission.enter(
                episode, key, check=check, gone=gone
            ) as execution:
                assert not self.world.participant._machine._state.retiring.covers(episode)
                self.hooks[episode] = 0
                try:
                    await self._steps(execution, episode)
                finally:
                    with execution.finishing():
                        await turns(draw)
                    self.hooks.discard(episode)
        except (ParticipantError, TimeoutError):
            pass
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling(), "a cancellation of nobody's came out"
            raise

    async def _steps(self, execution: Execution, episode: EpisodeId) -> None:
        if self.draw.random() < 0.3:
            execution.create_task(asyncio.sleep(1e9))
        async with execution.time_limit(self.draw.choice([1.0, 1e6])):
            for number in range(self.draw.randrange(5)):
                async with execution.step(self.draw.choice(list(StepMode))):
                    await turns(self.draw)
                self.hooks[episode] = number
                await execution.boundary(number)

    async def command(self) -> None:
        """A command, sensible or not."""
        draw = self.draw
        command = draw.choice(["prepare", "commit", "resume", "renew", "retire", "restore"])
        named: list[EpisodeId] | None = draw.sample(EPISODES, draw.randrange(1, 3))
        if command == "restore":
            named = [draw.choice(EPISODES)]
        elif command == "commit":
            named = draw.choice([None, EPISODES])
        with contextlib.suppress(ParticipantError):
            await self.world.send(
                command, draw.choice(IDS), draw.choice([-1.0, 2.0, 30.0]), named,
                draw.choice(["one", "other"]),
            )  # fmt: skip

    async def end(self) -> None:
        """Hooks and disk are well again, and time passes; then nothing is left."""
        self.hooks.is_well = True
        world = self.world
        for _ in range(100):
            await asyncio.sleep(0.001)  # For work in threads.
            await world.clock.advance(20)
            is_idle = world.participant.status().phase is Phase.IDLE
            if is_idle and all(task.done() for task in self.tasks) and not world.leftovers:
                break
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        if stuck := world.participant._machine._state.retiring.unfinished:
            await world.send("retire", "end", episodes=stuck)  # Those whose freeing failed.
        await check_at_rest(world)
        await world.participant.close()


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_whatever_comes_in_one_turn_everything_comes_to_rest(seed: int) -> None:
    asyncio.run(History(random.Random(seed)).run())
