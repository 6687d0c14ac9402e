"""Servers of environments and agents whose episodes a test drives by hand."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import AgentRecord, EnvironmentRecord
from participant.roles.agent import Activation, AgentHooks, LoopOnlyHooks, RestoredSession
from participant.roles.environment import EnvironmentHooks, EpisodeRun, task_digest
from participant.testing.one_server import OneServer
from participant.testing.storage import MemoryStorage
from tests.support.participants import R1

__all__ = [
    "TASK",
    "AgentServer",
    "EnvironmentServer",
    "Loop",
    "Notes",
    "Owner",
    "at",
    "boundary_of",
    "counting",
    "ended",
    "record_of_r1",
    "saved_at",
    "value",
]

TASK = {"question": "how many?", "budget": 3}


class EnvironmentServer(OneServer):
    """An environment server, and runs that a test drives by hand."""

    hooks: EnvironmentHooks

    def __init__(self, storage: Any = None, **settings: Any) -> None:
        super().__init__("environment", EnvironmentHooks(), storage, **settings)

    def run(
        self,
        work: Callable[[EpisodeRun], Coroutine[Any, Any, Any]],
        episode: EpisodeId | None = R1,
        task: Any = TASK,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """Run ``work`` as an episode."""

        async def main() -> Any:
            async with self.hooks.begin(episode, task, **options) as run:
                return await work(run)

        return asyncio.create_task(main())

    async def saved(self, *episodes: EpisodeId) -> list[EnvironmentRecord]:
        """Prepare and commit; the records that were stored."""
        assert (await self.send("prepare")).phase == "prepared"
        await self.send("commit", episodes=episodes)
        assert isinstance(self.storage, MemoryStorage)
        (stored,) = self.storage.stored.values()
        return list(stored.records or ())  # type: ignore[arg-type]

    async def restarted(self, *episodes: EpisodeId) -> EnvironmentServer:
        """A fresh process that has restored these, and resumed."""
        fresh = EnvironmentServer(self.storage)
        await fresh.send("restore", "back", episodes=episodes)
        await fresh.send("resume", "back")
        return fresh


async def counting(run: EpisodeRun, until: int = 3, steps: list[int] | None = None) -> int:
    """An episode of ``until`` steps."""
    count = run.restored["count"] if run.restored else 0
    while count < until:
        async with run.step():
            await asyncio.sleep(0)
            count += 1
            if steps is not None:
                steps.append(count)
        await run.boundary({"count": count})
    return count


def at(count: int) -> Callable[[EpisodeRun], Coroutine[Any, Any, None]]:
    """An episode that comes to a boundary in its second turn, and then goes on for ever."""

    async def work(run: EpisodeRun) -> None:
        await asyncio.sleep(0)
        await run.boundary({"count": count})
        await asyncio.sleep(1e6)

    return work


def boundary_of(record: EnvironmentRecord) -> Any:
    """The boundary of a record, decoded."""
    return None if record.boundary is None else record.boundary.value()


async def saved_at(count: int, *episodes: EpisodeId) -> EnvironmentServer:
    """A server whose process has gone after a checkpoint of these at ``count``."""
    server = EnvironmentServer()
    tasks = [server.run(at(count), episode) for episode in episodes]
    await asyncio.sleep(0)
    await server.saved(*episodes)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return server


def record_of_r1(**members: Any) -> EnvironmentRecord:
    """A record of r1."""
    boundary = members.get("boundary")
    payload = None if boundary is None else JsonPayload.from_value(boundary)
    return EnvironmentRecord(episode_id=R1, task_digest=task_digest(TASK), boundary=payload)


class Notes(AgentHooks):
    """An agent that keeps notes of a session beside its loop, and tells what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, list[Any]] = {}
        self.retired: list[str] = []
        self.refuses = False

    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The notes."""
        return {key: self.notes[key] for key in keys if key in self.notes}

    async def restore_agent_sessions(self, sessions: Sequence[RestoredSession]) -> None:
        """All notes, or none."""
        if self.refuses:
            raise ValueError("no room")
        self.notes.update({session.key: session.state for session in sessions})

    async def retire_agent_session(self, key: str) -> None:
        """No notes."""
        self.retired.append(key)
        self.notes.pop(key, None)


class Owner(LoopOnlyHooks):
    """An agent whose activations are whole episodes."""

    owns_episodes = True


class AgentServer(OneServer):
    """An agent server, and activations that a test drives by hand."""

    hooks: Notes

    def __init__(self, storage: Any = None, hooks: AgentHooks | None = None) -> None:
        super().__init__("agent", hooks or Notes(), storage)

    async def seeded(self, *keys: str, episode: EpisodeId = R1) -> None:
        """Seed sessions, each with a note."""
        for key in keys:
            async with self.hooks.seed(episode, key):
                self.hooks.notes[key] = [f"of {key}"]

    def activate(
        self, work: Callable[[Activation], Any], key: str = "s", episode: EpisodeId = R1
    ) -> asyncio.Task[Any]:
        """Run ``work`` as the loop of a session."""

        async def main() -> Any:
            async with self.hooks.activate(episode, key) as loop:
                return await work(loop)

        return asyncio.create_task(main())

    async def saved(self, *episodes: EpisodeId) -> list[AgentRecord]:
        """Prepare and commit; the records that were stored."""
        assert (await self.send("prepare")).phase == "prepared"
        await self.send("commit", episodes=episodes)
        assert isinstance(self.storage, MemoryStorage)
        (stored,) = self.storage.stored.values()
        return list(stored.records or ())  # type: ignore[arg-type]

    async def restarted(self, *episodes: EpisodeId, hooks: AgentHooks | None = None) -> AgentServer:
        """A fresh process that has restored these, and resumed."""
        fresh = AgentServer(self.storage, hooks)
        await fresh.send("restore", "back", episodes=episodes)
        await fresh.send("resume", "back")
        return fresh

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts of the report."""
        return self.participant.status().report.counts


def value(payload: JsonPayload | None) -> Any:
    """A payload, decoded."""
    return None if payload is None else payload.value()


class Loop:
    """A loop of model calls, each of which the test lets answer."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.asked = 0
        self.snapshots = 0
        self.answers = asyncio.Semaphore(0)

    async def __call__(self, loop: Activation) -> list[str]:
        """Three turns."""
        self.messages = list(loop.restored or ["question"])
        while len(self.messages) < 4:
            taken = len(self.messages)
            async with loop.model_call(functools.partial(self.at, taken)):
                self.asked += 1
                await self.answers.acquire()
            self.messages.append(f"answer {taken}")
        await loop.boundary(lambda: self.at(4))
        return self.messages

    def at(self, length: int) -> list[str]:
        """The snapshot."""
        self.snapshots += 1
        return self.messages[:length]


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Let them go, as with their process."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
