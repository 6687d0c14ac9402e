"""A job of real participants in one process: every kind, typed records, checkpoints on disk."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette

import participant
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import (
    AgentRecord,
    EnvironmentRecord,
    ModelRecord,
    ResourcesRecord,
    TypedRecord,
)
from participant.coordination import Control, Fleet, Run, discover
from participant.core.phases import Phase
from participant.hooks import Export, Scope
from participant.roles.generic import StateTable
from participant.runtime.saving import CheckpointStorage, FormatStorage
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.clock import FakeClock, settle
from participant.testing.cluster import Delivery, MemoryCluster
from tests.support.participants import TOKEN, until

__all__ = ["KINDS", "Job", "KindTable", "a_job"]

KINDS = ("environment", "model", "agent", "resources")

_Result = TypeVar("_Result")


class KindTable(StateTable):
    """A table of states whose records are those of the participant's kind.

    ``owns_episodes``: an agent that needs no environment.
    """

    def __init__(self, kind: str, *, owns_episodes: bool = False) -> None:
        super().__init__()
        self.kind = kind
        self.owns_episodes = owns_episodes

    async def export(self, scope: Scope) -> Export:
        """As :meth:`ParticipantHooks.export`."""
        named = [episode for episode in self.episodes() if episode in scope]
        return Export([self._record(episode) for episode in named])

    def _record(self, episode: EpisodeId) -> TypedRecord:
        state = JsonPayload.from_value({"state": self[episode]})
        match self.kind:
            case "environment":
                digest = hashlib.sha256(episode.rollout_id.encode()).hexdigest()
                return EnvironmentRecord(episode_id=episode, task_digest=digest, boundary=state)
            case "agent":
                whole = JsonPayload.from_value({}) if self.owns_episodes else None
                return AgentRecord(
                    episode_id=episode, session_key="s", session=state, boundary=None, episode=whole
                )
            case "resources":
                return ResourcesRecord(episode_id=episode, session_id="s", state=state, owner=None)
        row = {"model_call_id": "c", "staging_key": f"key of {self[episode]}"}
        rows = JsonPayload.from_value([row, {"model_call_id": "d", "failure_reason": "lost"}])
        cuts = JsonPayload.from_value([])
        return ModelRecord(episode_id=episode, rows=rows, generation_cuts=cuts)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`."""
        await super().install((), episodes)
        for record in records:
            self[record.episode_id.continuation] = self._state_of(record)

    def _state_of(self, record: Any) -> Any:
        if self.kind == "model":
            return record.rows.value()[0]["staging_key"].removeprefix("key of ")
        member = {"environment": "boundary", "agent": "session", "resources": "state"}[self.kind]
        return getattr(record, member).value()["state"]


class Job:
    """One server of each kind, and a second resources server, behind a network that may fail.

    A server's address is its instance.  ``storage`` is that of all participants.
    """

    def __init__(
        self, folder: Path, storage: CheckpointStorage | None = None, **settings: Any
    ) -> None:
        self.clock = FakeClock()
        self.cluster = MemoryCluster(self.clock, TOKEN)
        self.control = Control(self.cluster, self.clock)
        self.run = Run(place=str(folder), run_id="run-1", config_digest="digest-1")
        self.hooks: dict[str, KindTable] = {}
        self.servers: dict[str, Participant] = {}
        self._settings = settings
        self._storage = storage or FormatStorage()
        for kind in KINDS:
            self.start(ParticipantId(kind, f"{kind}-1"))
        self.start(ParticipantId("resources", "resources-2"))

    def start(self, participant_id: ParticipantId, *, owns_episodes: bool = False) -> None:
        """A fresh process of a server; one that ran is gone, as after a kill."""
        app = Starlette()
        hooks = KindTable(participant_id.kind, owns_episodes=owns_episodes)
        installed = participant.install(
            app,
            hooks,
            Settings(enabled=True, control_auth_token=TOKEN, **self._settings),
            kind=participant_id.kind,
            instance=participant_id.instance,
            components=Components(self._storage, self.clock),
        )
        assert installed is not None
        self.cluster.add(participant_id.instance, app)
        self.hooks[participant_id.instance] = hooks
        self.servers[participant_id.instance] = installed

    async def restart(self) -> None:
        """Kill everybody, and start them again."""
        for server in list(self.servers.values()):
            await server.close()
            self.start(server.participant)

    def hold(self, episodes: Iterable[EpisodeId], servers: Iterable[str] = ()) -> None:
        """Let these servers, or all, hold the episodes at a boundary."""
        for server in servers or self.servers:
            for episode in episodes:
                self.hooks[server][episode] = f"{episode.capture_key} at {server}"

    async def discover(self) -> Fleet:
        """The fleet."""
        return await discover(self.control, self.servers)

    def deliver(self, special: Callable[[str, str], Delivery | None]) -> None:
        """What the network does with a call; None as ever."""
        self.cluster.deliver = lambda server, command: special(server, command) or Delivery()

    def lose(self, *commands: tuple[str, str]) -> None:
        """Lose the replies to these commands, each of a server."""
        self.deliver(lambda s, c: Delivery(loses_reply=True) if (c, s) in commands else None)

    async def passing(self, work: Awaitable[_Result], step_s: float = 1.0) -> _Result:
        """The result of ``work``, for which time passes; disks are as fast as can be."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await settle()
            while self._is_storing:
                await asyncio.sleep(0.0005)
            if not task.done():
                await self.clock.advance(step_s)
        return await task

    @property
    def _is_storing(self) -> bool:
        pools = [self.control.io, *(server._jobs._io for server in self.servers.values())]
        return any(len(pool) for pool in pools)

    @property
    def phases(self) -> dict[str, Phase]:
        """The phase of every server."""
        return {name: server.status().phase for name, server in self.servers.items()}

    def published(self, checkpoint_id: str) -> bool:
        """Whether ``checkpoint.json`` stands."""
        return Path(self.run.checkpoint_dir(checkpoint_id), "checkpoint.json").exists()

    async def check_at_rest(self) -> None:
        """Everybody idle and open, with empty tables."""
        for server in self.servers.values():
            await until(lambda server=server: _busy(server) == {})  # type: ignore[misc]
            assert server.status().phase is Phase.IDLE
            assert not server.is_closed

    async def close(self) -> None:
        """End every task."""
        for server in self.servers.values():
            await server.close()


def _busy(server: Participant) -> dict[str, int]:
    sizes = server.table_sizes
    return {name: size for name, size in sizes.items() if size and name != "fences"}


@contextlib.asynccontextmanager
async def a_job(folder: Path, **settings: Any) -> AsyncIterator[Job]:
    """A job that is closed at the end of the block."""
    job = Job(folder, **settings)
    try:
        yield job
    finally:
        await job.close()
