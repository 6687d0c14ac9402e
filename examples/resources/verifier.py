"""A verifier: it keeps nothing of a session, and may judge one answer twice.

Two declarations are all it needs.  ``stateless``: a checkpoint holds only that the session
exists.  ``replay``: a judgement that takes minutes holds no checkpoint up; after a crash it
is made again.
"""

from __future__ import annotations

import os
import uuid
from fractions import Fraction
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


class Verifier(ResourcesHooks):
    """What a checkpoint needs to know of this server."""

    checkpoint_mode = "stateless"
    checkpoint_verify = "replay"


async def seed(request: Request) -> JSONResponse:
    """Name the session, so that its clean-up finds it after a restore."""
    request.session["session_id"] = uuid.uuid4().hex
    return JSONResponse({})


async def verify(request: Request) -> JSONResponse:
    """Reward 1 for an answer that is the expected number, however it is written."""
    body = await request.json()
    return JSONResponse({"reward": float(_number(body["answer"]) == _number(body["expected"]))})


async def close(request: Request) -> JSONResponse:
    """There is nothing to forget."""
    return JSONResponse({})


def _number(text: str) -> Fraction | str:
    try:
        return Fraction(text.strip().rstrip("."))
    except (ValueError, ZeroDivisionError):
        return text.strip()


def make_app(settings: participant.Settings, *, secret: str, components: Any = None) -> Starlette:
    """The server; ``secret`` signs the cookies, and is the same after a restart."""
    app = Starlette(
        routes=[
            Route("/seed_session", seed, methods=["POST"]),
            Route("/verify", verify, methods=["POST"]),
            Route("/close_session", close, methods=["POST"]),
        ],
        middleware=[Middleware(SessionCookieMiddleware, secret=secret)],
    )
    participant.install(
        app, Verifier(), settings, kind="resources", instance="verifier", components=components
    )
    return app


if __name__ == "__main__":
    settings = participant.Settings(enabled=True, control_auth_token=os.environ["CHECKPOINT_TOKEN"])
    uvicorn.run(
        make_app(settings, secret=os.environ["SESSION_SECRET"]), port=int(os.environ["PORT"])
    )
