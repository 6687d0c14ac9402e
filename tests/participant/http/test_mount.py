"""A participant in apps that are mounted in others, and in apps that can take none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from participant.attribution import current_episode
from participant.core.errors import StaleAttemptError
from participant.hooks import GatedRoute
from participant.roles.generic import StateTable
from participant.runtime.shell import Components
from participant.testing.asgi import AsgiReply, request
from participant.testing.clock import FakeClock
from participant.testing.storage import MemoryStorage
from tests.support.participants import TOKEN
from tests.support.role_servers import SETTINGS

pytestmark = pytest.mark.anyio
FRAMEWORKS = [Starlette, FastAPI]


class Everything(StateTable):
    """Hooks that gate every path."""

    gated_routes = (GatedRoute(""),)


async def tell(_: Request) -> JSONResponse:
    """Whose call it is."""
    episode = current_episode.get()
    return JSONResponse(None if episode is None else episode.capture_key)


async def refuse(_: Request) -> JSONResponse:
    """As a role refuses."""
    raise StaleAttemptError("refused")


def inner_app(framework: type[Starlette]) -> Starlette:
    """An app with a route of each."""
    app = framework()
    app.router.routes.append(Route("/tell", tell, methods=["POST"]))
    app.router.routes.append(Route("/refuse", refuse, methods=["POST"]))
    return app


def install(app: Starlette) -> None:
    """Make it a participant."""
    components = Components(MemoryStorage(), FakeClock())
    participant.install(
        app, Everything(), SETTINGS, kind="any", instance="a", components=components
    )


async def control(app: Starlette, root: str, command: str, body: Any = None) -> AsgiReply:
    """A control command to an app that serves below ``root``."""
    method, raw = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
    path = f"{root}/ng-control/v1/checkpoint/{command}"
    return await request(app, method, path, raw, {"authorization": f"Bearer {TOKEN}"})


@pytest.mark.parametrize("outer", FRAMEWORKS)
@pytest.mark.parametrize("inner", FRAMEWORKS)
async def test_a_participant_that_is_mounted_serves_below_its_place(
    outer: type[Starlette], inner: type[Starlette]
) -> None:
    """Prefix, admission and control routes; the latter are never gated."""
    app, mounted = outer(), inner_app(inner)
    install(mounted)
    app.mount("/sub", mounted)
    assert (await request(app, "POST", "/sub/ng-rollout/r1/tell")).json == "r1"
    bare = await request(app, "POST", "/sub/tell")
    assert bare.json["error"]["code"] == "rollout_id_required"
    assert (await control(app, "/sub", "status")).json["phase"] == "idle"
    body = {"checkpoint_id": "ck", "deadline_ts": 2e9}
    assert (await control(app, "/sub", "prepare", body)).json["phase"] == "prepared"
    assert (await control(app, "/sub", "resume", body)).json["phase"] == "idle"


@pytest.mark.parametrize("outer", FRAMEWORKS)
@pytest.mark.parametrize("inner", FRAMEWORKS)
async def test_an_app_mounted_in_a_participant_answers_what_the_roles_refuse(
    outer: type[Starlette], inner: type[Starlette]
) -> None:
    app = outer()
    app.mount("/sub", inner_app(inner))
    install(app)
    assert (await request(app, "POST", "/ng-rollout/r1/sub/tell")).json == "r1"
    reply = await request(app, "POST", "/ng-rollout/r1/sub/refuse")
    assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_app_that_has_started_or_has_a_participant_takes_none(
    framework: type[Starlette],
) -> None:
    """And is left as it was: half a participant would never close."""
    started = inner_app(framework)
    await request(started, "POST", "/tell")
    taken = inner_app(framework)
    install(taken)
    for app in (started, taken):
        before = (list(app.router.routes), list(app.user_middleware))
        with pytest.raises(RuntimeError, match=r"started|already"):
            install(app)
        assert (list(app.router.routes), list(app.user_middleware)) == before
