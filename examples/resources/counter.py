"""A resources server with the smallest state there is: one number a session."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from participant.errors import InvalidCheckpointStateError
from participant.http.session_cookies import SessionCookieMiddleware
from participant.roles.resources import ResourcesHooks


class Counter(ResourcesHooks):
    """The total of each session, the tool that adds to it, and what a checkpoint holds of it."""

    checkpoint_mode = "exported"

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[str, int] = {}

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """The totals."""
        return {s: self.totals[s] for s in session_ids if s in self.totals}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """Look at all of them before taking any."""
        if not all(type(total) is int for total in states.values()):
            raise InvalidCheckpointStateError("the total of a counter is no integer")
        self.totals.update(states)

    async def retire_session_state(self, session_id: str) -> None:
        """Nothing happens where there is nothing."""
        self.totals.pop(session_id, None)

    async def seed(self, request: Request) -> JSONResponse:
        """Begin a session at ``start``."""
        start = (await request.json()).get("start", 0)
        session_id = request.session["session_id"] = uuid.uuid4().hex
        self.totals[session_id] = start
        return JSONResponse({})

    async def add(self, request: Request) -> JSONResponse:
        """The tool: add ``by``."""
        by = (await request.json())["by"]
        self.totals[request.session["session_id"]] += by
        return JSONResponse({"total": self.totals[request.session["session_id"]]})

    async def verify(self, request: Request) -> JSONResponse:
        """Reward 1 for the total that was asked for."""
        expected = (await request.json())["expected"]
        return JSONResponse(
            {"reward": float(self.totals[request.session["session_id"]] == expected)}
        )

    async def close(self, request: Request) -> JSONResponse:
        """Forget the session; it may be gone already."""
        await self.retire_session_state(request.session.get("session_id", ""))
        return JSONResponse({})


def make_app(settings: participant.Settings, *, secret: str, components: Any = None) -> Starlette:
    """The server; ``secret`` signs the cookies, and is the same after a restart."""
    counter = Counter()
    app = Starlette(
        routes=[
            Route("/seed_session", counter.seed, methods=["POST"]),
            Route("/add", counter.add, methods=["POST"]),
            Route("/verify", counter.verify, methods=["POST"]),
            Route("/close_session", counter.close, methods=["POST"]),
        ],
        middleware=[Middleware(SessionCookieMiddleware, secret=secret)],
    )
    participant.install(
        app, counter, settings, kind="resources", instance="counter", components=components
    )
    return app


if __name__ == "__main__":
    settings = participant.Settings(enabled=True, control_auth_token=os.environ["CHECKPOINT_TOKEN"])
    uvicorn.run(
        make_app(settings, secret=os.environ["SESSION_SECRET"]), port=int(os.environ["PORT"])
    )
