"""The resources server that :mod:`benchmarks.job` measures: it holds the sessions of a set.

What is measured beside it, the reference of :mod:`benchmarks.ways`, runs in this process
too: on the same objects, under the same collector.  Probes (GET) pass admission.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from benchmarks import sets, ways
from examples.job.setup import Setup, serve
from participant.http.session_cookies import SESSION_ID, SessionCookieMiddleware
from participant.roles.resources import ResourcesHooks

__all__ = ["Sessions", "make_app"]


class Sessions(ResourcesHooks):
    """Sessions of a set, each held once it was seeded."""

    checkpoint_mode = "exported"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._reference = folder / "reference"
        self._built: dict[str, sets.Session] = {}
        self._states: dict[str, Any] = {}

    async def build(self, request: Request) -> JSONResponse:
        """Make the sessions, before any clock starts."""
        query = request.query_params
        built = sets.build(query["set"], int(query["sessions"]))
        self._built = {session.session_id: session for session in built}
        return JSONResponse(
            {session.session_id: session.episode_id.capture_key for session in built}
        )

    async def seed(self, request: Request) -> JSONResponse:
        """Hold one of them from here on."""
        session_id = (await request.json())["session_id"]
        request.session[SESSION_ID] = session_id
        self._states[session_id] = self._built[session_id].state
        return JSONResponse({})

    async def commit_reference(self, request: Request) -> JSONResponse:
        """The reference's commit of all sessions; how long it took."""
        sessions = list(self._built.values())
        start = time.perf_counter()
        sha256 = ways.commit_reference(sessions, self._reference)
        return JSONResponse({"seconds": time.perf_counter() - start, "sha256": sha256})

    async def restore_reference(self, request: Request) -> JSONResponse:
        """The reference's restore of what it committed; how long it took."""
        start = time.perf_counter()
        records = ways.restore_reference(self._reference, request.query_params["sha256"])
        return JSONResponse({"seconds": time.perf_counter() - start, "records": len(records)})

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """As :meth:`ResourcesHooks.export_session_states`."""
        return {session_id: self._states[session_id] for session_id in session_ids}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """As :meth:`ResourcesHooks.restore_session_states`."""
        self._states.update(states)

    async def retire_session_state(self, session_id: str) -> None:
        """As :meth:`ResourcesHooks.retire_session_state`."""
        self._states.pop(session_id, None)


def make_app(setup: Setup) -> Starlette:
    """The server."""
    sessions = Sessions(setup.folder)
    app = Starlette(
        routes=[
            Route("/build", sessions.build),
            Route("/seed_session", sessions.seed, methods=["POST"]),
            Route("/commit_reference", sessions.commit_reference),
            Route("/restore_reference", sessions.restore_reference),
        ],
        middleware=[Middleware(SessionCookieMiddleware, secret=setup.token)],
    )
    participant.install(app, sessions, setup.settings, kind="resources", instance="bench")
    return app


if __name__ == "__main__":
    serve(make_app(Setup.read()), Setup.read())
