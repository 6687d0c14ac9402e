"""A server of a role in the process: its app, its participant, and control calls to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette

from ckptfmt.identity import EpisodeId
from participant.runtime.saving import CheckpointStorage
from participant.runtime.shell import Components
from participant.settings import Settings
from participant.testing.asgi import AsgiCall, AsgiReply, request
from participant.testing.clock import FakeClock
from participant.testing.storage import MemoryStorage
from participant.transport import CONTROL_PREFIX
from tests.support.participants import TOKEN

__all__ = ["SETTINGS", "Client", "RoleServer", "refs"]

SETTINGS = Settings(enabled=True, control_auth_token=TOKEN)


def refs(*episodes: EpisodeId) -> list[dict[str, Any]]:
    """Episodes as they stand in a control body."""
    return [{"rollout_id": e.rollout_id, "attempt": e.attempt} for e in episodes]


class RoleServer:
    """An app that ``make`` builds with the components it is given; a new one is a restart."""

    def __init__(
        self, make: Callable[[Components], Starlette], storage: CheckpointStorage | None = None
    ) -> None:
        self.clock = FakeClock()
        self.storage = storage or MemoryStorage()
        self.app = make(Components(self.storage, self.clock))

    async def control(self, command: str, **members: Any) -> AsgiReply:
        """Send a command (``status`` without a body) and await its reply."""
        body = {"checkpoint_id": "ck", "deadline_ts": self.clock.wall() + 30, **members}
        method, data = ("GET", b"") if command == "status" else ("POST", json.dumps(body).encode())
        headers = {"authorization": f"Bearer {TOKEN}"}
        return await request(self.app, method, CONTROL_PREFIX + command, data, headers)

    async def well(self, command: str, **members: Any) -> Any:
        """As :meth:`control`, and it has to succeed; the reply's members."""
        reply = await self.control(command, **members)
        assert reply.status == 200, reply.body
        return reply.json

    async def save(self, *episodes: EpisodeId, checkpoint_dir: str = "dir") -> Any:
        """Prepare and commit the episodes; the commit's reply."""
        prepared = await self.well("prepare")
        assert prepared["phase"] == "prepared", prepared
        return await self.well("commit", checkpoint_dir=checkpoint_dir, episode_ids=refs(*episodes))

    async def restore(self, *episodes: EpisodeId, checkpoint_dir: str = "dir") -> Any:
        """Restore the episodes and resume; the restore's reply."""
        place = {"checkpoint_dir": checkpoint_dir, "episode_ids": refs(*episodes)}
        restored = await self.well("restore", checkpoint_id="back", **place)
        await self.well("resume", checkpoint_id="back")
        return restored

    def begin(
        self,
        path: str,
        episode: EpisodeId | None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsgiCall:
        """POST to a route for an episode, under the rollout prefix."""
        prefix = "" if episode is None else f"/ng-rollout/{episode.capture_key}"
        return AsgiCall(self.app, "POST", prefix + path, json.dumps(body or {}).encode(), headers)


class Client:
    """A client of a resources server that keeps its cookie, as agents do."""

    def __init__(self, server: RoleServer, episode: EpisodeId, cookie: str = "") -> None:
        self.server = server
        self.episode = episode
        self.cookie = cookie

    def begin(self, path: str, **body: Any) -> AsgiCall:
        """POST to a route with the cookie."""
        headers = {"cookie": self.cookie} if self.cookie else None
        return self.server.begin(path, self.episode, body, headers)

    async def post(self, path: str, **body: Any) -> AsgiReply:
        """POST to a route; a cookie in the reply is kept."""
        reply = await self.begin(path, **body).reply()
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply

    async def get(self, path: str, **body: Any) -> Any:
        """As :meth:`post`, and it has to succeed; the reply's members."""
        reply = await self.post(path, **body)
        assert reply.status == 200, reply.body
        return reply.json

    def moved(self, server: RoleServer) -> Client:
        """The same client after a restore: the next attempt, the old cookie."""
        return Client(server, self.episode.continuation, self.cookie)
