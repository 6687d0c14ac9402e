"""A resources server with much state: an office of five tables, about 350 KB a session.

The traps: tables that came from spreadsheets have NaN where a cell is empty, beside the
text "NaN" that somebody typed; and a session that has been idle too long is dropped, which
must not happen because the server was down.
"""

from __future__ import annotations

import math
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from participant.http.session_cookies import SessionCookieMiddleware
from participant.roles.resources import ResourcesHooks

Table = dict[str, list[Any]]
"""Columns of one length; NaN is an empty cell."""

COLUMNS = {
    "emails": ("email_id", "sender", "subject", "body", "sent_at"),
    "calendar": ("event_id", "title", "participant", "start", "minutes"),
    "contacts": ("contact_id", "name", "email", "phone", "company"),
    "tasks": ("task_id", "title", "assignee", "due", "list"),
    "customers": ("customer_id", "name", "status", "note", "revenue"),
}
ROWS = 370
EMPTY_CELLS = 0.1
WORDS = [
    "quarterly", "report", "draft", "contract", "review", "budget", "planning", "offsite",
    "caf\u00e9", "follow-up", "NaN", "null", "invoice", "renewal", "Z\u00fcrich", "onboarding",
    "roadmap", "release", "meeting", "notes", "\u00bdday", "workshop",
]  # fmt: skip


def make_tables(seed: int) -> dict[str, Table]:
    """The tables that a session begins with."""
    rng = random.Random(seed)

    def cell(column: str, row: int) -> Any:
        if column.endswith("_id"):
            return f"{row:08}"
        if rng.random() < EMPTY_CELLS:
            return math.nan
        if column in ("minutes", "revenue"):
            return round(rng.random() * 100, 2)
        return " ".join(rng.choices(WORDS, k=30 if column in ("body", "note") else 4))

    return {
        name: {column: [cell(column, row) for row in range(ROWS)] for column in columns}
        for name, columns in COLUMNS.items()
    }


class Office(ResourcesHooks):
    """The tables of each session, and when it was used last."""

    checkpoint_mode = "exported"

    def __init__(
        self, idle_limit_s: float = 3600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.offices: dict[str, dict[str, Table]] = {}
        self.idle_limit_s = idle_limit_s
        self._clock = clock
        self._used_at: dict[str, float] = {}

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """The tables as they are: nothing changes them before resume."""
        return {s: self.offices[s] for s in session_ids if s in self.offices}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """Idle time begins anew: neither the checkpoint nor the downtime counts."""
        for tables in states.values():
            shape = {name: tuple(columns) for name, columns in tables.items()}
            if shape != COLUMNS:
                raise ValueError("the tables of an office have other columns")
        self.offices.update(states)
        self._used_at.update(dict.fromkeys(states, self._clock()))

    async def retire_session_state(self, session_id: str) -> None:
        """Nothing happens where there is nothing."""
        self.offices.pop(session_id, None)
        self._used_at.pop(session_id, None)

    def use(self, request: Request) -> dict[str, Table] | None:
        """The tables of the request's session; None where it was idle too long, or is gone."""
        now = self._clock()
        for session_id, used_at in list(self._used_at.items()):
            if now - used_at > self.idle_limit_s:
                del self.offices[session_id], self._used_at[session_id]
        session_id = request.session["session_id"]
        if session_id in self.offices:
            self._used_at[session_id] = now
        return self.offices.get(session_id)

    async def seed(self, request: Request) -> JSONResponse:
        """Begin a session."""
        tables = make_tables((await request.json())["seed"])
        session_id = request.session["session_id"] = uuid.uuid4().hex
        self.offices[session_id], self._used_at[session_id] = tables, self._clock()
        return JSONResponse({})

    async def set_cell(self, request: Request) -> JSONResponse:
        """The tool that writes: put ``value`` into a cell (null empties it); the old value."""
        order = await request.json()
        if (tables := self.use(request)) is None:
            return JSONResponse({"error": "the session has expired"}, 410)
        cells = tables[order["table"]][order["column"]]
        old, value = cells[order["row"]], order["value"]
        cells[order["row"]] = math.nan if value is None else value
        return JSONResponse({"old": None if _is_empty(old) else old})

    async def count(self, request: Request) -> JSONResponse:
        """The tool that reads: cells of a column that hold ``text``, and those that are empty."""
        order = await request.json()
        if (tables := self.use(request)) is None:
            return JSONResponse({"error": "the session has expired"}, 410)
        cells = tables[order["table"]][order["column"]]
        found = sum(isinstance(cell, str) and order["text"] in cell for cell in cells)
        return JSONResponse({"found": found, "empty": sum(map(_is_empty, cells))})

    async def verify(self, request: Request) -> JSONResponse:
        """Reward 1 if the task's cell has the value that was asked for."""
        order = await request.json()
        if (tables := self.use(request)) is None:
            return JSONResponse({"error": "the session has expired"}, 410)
        cell = tables[order["table"]][order["column"]][order["row"]]
        return JSONResponse({"reward": float(cell == order["value"])})

    async def close(self, request: Request) -> JSONResponse:
        """Forget the session; it may be gone already."""
        await self.retire_session_state(request.session.get("session_id", ""))
        return JSONResponse({})


def _is_empty(cell: Any) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def make_app(
    settings: participant.Settings,
    *,
    secret: str,
    components: Any = None,
    office: Office | None = None,
) -> Starlette:
    """The server; ``secret`` signs the cookies, and is the same after a restart."""
    office = office or Office()
    app = Starlette(
        routes=[
            Route("/seed_session", office.seed, methods=["POST"]),
            Route("/set_cell", office.set_cell, methods=["POST"]),
            Route("/count", office.count, methods=["POST"]),
            Route("/verify", office.verify, methods=["POST"]),
            Route("/close_session", office.close, methods=["POST"]),
        ],
        middleware=[Middleware(SessionCookieMiddleware, secret=secret)],
    )
    participant.install(
        app, office, settings, kind="resources", instance="office", components=components
    )
    return app


if __name__ == "__main__":
    settings = participant.Settings(enabled=True, control_auth_token=os.environ["CHECKPOINT_TOKEN"])
    uvicorn.run(
        make_app(settings, secret=os.environ["SESSION_SECRET"]), port=int(os.environ["PORT"])
    )
