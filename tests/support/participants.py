"""A participant on a clock that stands still and storage in memory, and shorthand for both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core.messages import REQUESTS, EpisodeRef, Reply
from participant.core.phases import Phase
from participant.hooks import Export, Scope
from participant.roles.generic import StateTable
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.clock import FakeClock
from participant.testing.storage import MemoryStorage

__all__ = [
    "R1",
    "R2",
    "TOKEN",
    "BadHooks",
    "CapturedTelemetry",
    "Hang",
    "ServerWorld",
    "check_at_rest",
    "enter",
    "prepared_world",
    "published",
    "raising",
    "until",
]

R1, R2 = EpisodeId("r1"), EpisodeId("r2")
TOKEN = "a-token-that-no-log-may-show"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for work in threads; the test fails by its runner's patience otherwise."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


class Hang:
    """A step of the storage that hangs, or fails, when it is reached."""

    def __init__(self, storage: MemoryStorage, step: str, error: Exception | None = None) -> None:
        self.reached = threading.Event()
        self._released = threading.Event()
        self._step = step
        self._error = error
        storage.before = self._before

    def release(self) -> None:
        """Let it go on, now and from here on."""
        self._released.set()

    def _before(self, step: str) -> None:
        if step == self._step:
            self.reached.set()
            assert self._released.wait(30), "the test forgot to release the disk"
            if self._error is not None:
                error, self._error = self._error, None
                raise error


class CapturedTelemetry:
    """Telemetry that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def count(self, name: str, attributes: Any) -> None:
        """As :meth:`participant.telemetry.Telemetry.count`."""
        self.events.append((name, attributes.get("code", "")))


class ServerWorld:
    """One server: a table of states, and a participant round it."""

    def __init__(
        self,
        hooks: StateTable | None = None,
        storage: MemoryStorage | None = None,
        clock: FakeClock | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or FakeClock()
        self.storage = storage or MemoryStorage()
        self.hooks = StateTable() if hooks is None else hooks
        self.telemetry = CapturedTelemetry()
        self.settings = Settings(enabled=True, control_auth_token=TOKEN, **settings)
        self.participant = Participant(
            ParticipantId("counter", "c1"),
            self.hooks,
            self.settings,
            Components(self.storage, self.clock, self.telemetry),
        )

    async def send(
        self,
        command: str,
        checkpoint_id: str = "ck",
        within_s: float = 30.0,
        episodes: Iterable[EpisodeId] | None = None,
        checkpoint_dir: str = "dir",
    ) -> Reply:
        """Send a command and await its reply."""
        members: dict[str, Any] = {
            "checkpoint_id": checkpoint_id,
            "deadline_ts": self.clock.wall() + within_s,
        }
        if command in ("commit", "restore"):
            members["checkpoint_dir"] = checkpoint_dir
        if command in ("commit", "restore", "retire"):
            members["episode_ids"] = (
                None if episodes is None else tuple(EpisodeRef.of(e) for e in episodes)
            )
        return await self.participant.call(REQUESTS[command](**members))

    def begin(self, command: str, *arguments: Any, **options: Any) -> asyncio.Task[Reply]:
        """Send a command without awaiting its reply."""
        return asyncio.ensure_future(self.send(command, *arguments, **options))

    @property
    def leftovers(self) -> dict[str, int]:
        """The tables that hold something, fences and the timer aside."""
        sizes = self.participant.table_sizes
        return {name: size for name, size in sizes.items() if size and name != "fences"}


async def check_at_rest(world: ServerWorld) -> None:
    """Idle, open, empty."""
    await until(lambda: world.leftovers == {})
    status = world.participant.status()
    assert (status.phase, status.checkpoint_id, status.publication) == (Phase.IDLE, None, None)
    assert not world.participant.is_closed
    async with asyncio.timeout(10), world.participant.admission.enter(EpisodeId("probe")):
        pass


def published(world: ServerWorld) -> list[str]:
    """The checkpoints of which a manifest stands somewhere."""
    return [s.checkpoint_id for s in world.storage.stored.values() if s.records is not None]


async def prepared_world(**settings: Any) -> ServerWorld:
    """A server with two states, in prepared."""
    world = ServerWorld(**settings)
    world.hooks[R1], world.hooks[R2] = {"step": 1}, {"step": 2}
    await world.send("prepare")
    return world


class BadHooks(StateTable):
    """Hooks whose export or install does what a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.export_does: Any = None
        self.install_does: Any = None
        self.released: list[frozenset[EpisodeId]] = []

    async def export(self, scope: Scope) -> Export:
        """As the test wants, or as always."""
        if self.export_does is not None:
            result = await self.export_does(scope)
            if result is not None:
                return result  # type: ignore[no-any-return]
        return await super().export(scope)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As always, and then as the test wants."""
        await super().install(records, episodes)
        if self.install_does is not None:
            await self.install_does()

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As always, and remembered."""
        self.released.append(episodes)
        await super().release(episodes)


async def raising(scope: Scope | None = None) -> None:
    """Fail with a text that is nobody's business."""
    raise RuntimeError("secret-detail")


async def enter(world: ServerWorld, episode: EpisodeId) -> None:
    """Run a call that does nothing."""
    async with world.participant.admission.enter(episode):
        pass
