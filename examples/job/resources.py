"""The resources server: a desk with a document, on which an agent looks and notes.

A session is a document, a live random generator, the notes, and how many steps were done.
Every step is written to a journal, durably, before it is answered: so that afterwards it
can be told whether one of them ran twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from ckptfmt.identity import EpisodeId
from examples.job.setup import Journal, Setup, serve
from examples.job.tasks import passages
from participant.attribution import current_episode
from participant.errors import InvalidCheckpointStateError
from participant.http.session_cookies import SESSION_ID, SessionCookieMiddleware
from participant.roles.resources import ResourcesHooks

__all__ = ["Desk", "Session", "make_app"]

_SHOWN_CHARACTERS = 120


@dataclass(slots=True)
class Session:
    """The state of one session; ``random`` is live, ``weights`` begin with none: NaN."""

    document: Any
    random: random.Random
    step_s: float
    notes: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=lambda: [math.nan])
    steps: int = 0

    @classmethod
    def begin(cls, body: Mapping[str, Any]) -> Session:
        """A new session, as ``/seed_session`` describes it."""
        return cls(body["document"], random.Random(body["seed"]), body["step_s"])

    def state(self) -> dict[str, Any]:
        """All of it, as a value; the generator's state has tuples."""
        return {
            "document": self.document,
            "random": self.random.getstate(),
            "step_s": self.step_s,
            "notes": list(self.notes),
            "weights": list(self.weights),
            "steps": self.steps,
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Session:
        """The session of which this is the state.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        generator = random.Random()
        generator.setstate(state["random"])
        return cls(
            state["document"], generator, state["step_s"],
            list(state["notes"]), list(state["weights"]), int(state["steps"]),
        )  # fmt: skip

    def use(self, tool: str, text: str, weight: float) -> str:
        """Use a tool; both depend on what has been done before."""
        if tool == "note":
            self.notes.append(text)
            self.weights.append(weight * self.random.random())
            return f"note {len(self.notes)}: {math.fsum(self.weights[1:]):.6f}"
        found = self.random.choice(passages(self.document))
        return f"looked after {len(self.notes)} notes: {found[:_SHOWN_CHARACTERS]}"

    def reward(self) -> float:
        """A judgement of everything that was done."""
        done = repr((self.notes, self.weights, self.steps, self.random.getstate()))
        return int.from_bytes(hashlib.sha256(done.encode()).digest()[:6], "big") / 2**48


class Desk(ResourcesHooks):
    """The sessions, the routes, and what a checkpoint holds of both."""

    checkpoint_mode = "exported"

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.sessions: dict[str, Session] = {}
        self._journal = Journal(setup.folder / "steps.jsonl")

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """As :meth:`ResourcesHooks.export_session_states`."""
        return {key: self.sessions[key].state() for key in session_ids if key in self.sessions}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """As :meth:`ResourcesHooks.restore_session_states`."""
        try:
            restored = {key: Session.of_state(state) for key, state in states.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidCheckpointStateError(f"a session of a desk is none: {error}") from error
        self.sessions.update(restored)

    async def retire_session_state(self, session_id: str) -> None:
        """As :meth:`ResourcesHooks.retire_session_state`."""
        self.sessions.pop(session_id, None)

    async def seed(self, request: Request) -> JSONResponse:
        """Begin a session: the first step."""
        session_id = request.session[SESSION_ID] = uuid.uuid4().hex
        session = self.sessions[session_id] = Session.begin(await request.json())
        await self._done(session, "seed", len(passages(session.document)))
        return JSONResponse({})

    async def use_tool(self, request: Request) -> JSONResponse:
        """Use a tool: a step."""
        body = await request.json()
        session = self.sessions[request.session[SESSION_ID]]
        await asyncio.sleep(session.step_s)
        result = session.use(body["tool"], **json.loads(body["arguments"]))
        await self._done(session, body["tool"], result)
        return JSONResponse({"result": result})

    async def verify(self, request: Request) -> JSONResponse:
        """Judge the session: its last step."""
        session = self.sessions.pop(request.session[SESSION_ID])
        reward = session.reward()
        await self._done(session, "verify", reward)
        return JSONResponse({"reward": reward})

    async def close(self, request: Request) -> JSONResponse:
        """Forget a session; it may be gone already."""
        self.sessions.pop(request.session.get(SESSION_ID, ""), None)
        return JSONResponse({})

    async def _done(self, session: Session, tool: str, result: object) -> None:
        session.steps += 1
        episode = current_episode.get()
        assert isinstance(episode, EpisodeId)  # The participant lets no other call in.
        await asyncio.to_thread(
            self._journal.add,
            rollout=episode.rollout_id,
            attempt=episode.attempt,
            number=session.steps,
            what=[tool, result],
            process=os.getpid(),
        )


def make_app(setup: Setup) -> Starlette:
    """The server; the job's token signs its cookies, so they are good after a restart."""
    desk = Desk(setup)
    app = Starlette(
        routes=[
            Route("/seed_session", desk.seed, methods=["POST"]),
            Route("/use_tool", desk.use_tool, methods=["POST"]),
            Route("/verify", desk.verify, methods=["POST"]),
            Route("/close_session", desk.close, methods=["POST"]),
        ],
        middleware=[Middleware(SessionCookieMiddleware, secret=setup.token)],
    )
    participant.install(app, desk, setup.settings, kind="resources", instance="desk")
    return app


if __name__ == "__main__":
    serve(make_app(Setup.read()), Setup.read())
