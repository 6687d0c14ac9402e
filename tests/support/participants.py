"""A participant on a clock that stands still and storage in memory, and shorthand for both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core.messages import REQUESTS, EpisodeRef, Reply
from participant.roles.generic import StateTable
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.clock import FakeClock
from participant.testing.storage import MemoryStorage

__all__ = ["TOKEN", "CapturedTelemetry", "Hang", "ServerWorld", "until"]

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
