"""One participant by itself, on a clock that stands still, and commands to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core.messages import REQUESTS, EpisodeRef, Reply
from participant.hooks import ParticipantHooks
from participant.runtime.saving import CheckpointStorage
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.clock import FakeClock
from participant.testing.storage import MemoryStorage

__all__ = ["OneServer"]


class OneServer:
    """Hooks with a participant round them; another one with the same storage is a restart."""

    def __init__(
        self,
        kind: str,
        hooks: ParticipantHooks,
        storage: CheckpointStorage | None = None,
        **settings: Any,
    ) -> None:
        self.clock = FakeClock()
        self.storage = storage or MemoryStorage()
        self.hooks = hooks
        self.participant = Participant(
            ParticipantId(kind, "one"),
            hooks,
            Settings(enabled=True, control_auth_token="of-no-use-here", **settings),
            Components(self.storage, self.clock),
        )

    async def send(
        self,
        command: str,
        checkpoint_id: str = "ck",
        *,
        episodes: Iterable[EpisodeId] | None = None,
        checkpoint_dir: str = "dir",
        within_s: float = 30.0,
    ) -> Any:
        """Send a command and await its reply."""
        deadline = self.clock.wall() + within_s
        members: dict[str, Any] = {"checkpoint_id": checkpoint_id, "deadline_ts": deadline}
        if command in ("commit", "restore"):
            members["checkpoint_dir"] = checkpoint_dir
        if command in ("commit", "restore", "retire"):
            refs = None if episodes is None else tuple(EpisodeRef.of(e) for e in episodes)
            members["episode_ids"] = refs
        reply: Reply = await self.participant.call(REQUESTS[command](**members))
        return reply

    @property
    def leftovers(self) -> dict[str, int]:
        """The participant's tables that hold something, fences aside."""
        sizes = self.participant.table_sizes
        return {name: size for name, size in sizes.items() if size and name != "fences"}
