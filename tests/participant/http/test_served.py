"""What the hooks are told of a gated call, and what they can do about it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import participant
from ckptfmt.identity import EpisodeId
from participant.core.errors import StaleAttemptError
from participant.hooks import DefaultHooks, GatedRoute, ServedCall
from participant.runtime.calls import current_call
from participant.runtime.shell import Components
from participant.testing.asgi import request
from participant.testing.clock import settle
from tests.support.participants import until
from tests.support.role_servers import SETTINGS, RoleServer, refs

pytestmark = pytest.mark.anyio
R1 = EpisodeId("r1")


class Listening(DefaultHooks):
    """Hooks that note what they are told, and refuse where they are told to."""

    gated_routes: Sequence[GatedRoute] = (
        GatedRoute("/replayed", replays=True),
        GatedRoute("/held", holds_reply=True),
        GatedRoute("/waited"),
    )

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.refuses = ""

    async def call_begins(self, call: ServedCall) -> None:
        """Noted; the server's own middleware has seen the call."""
        self.heard.append(f"begins {call.route.suffix} by {call.scope['user']}")
        self.refuse("begin")

    async def call_replies(self, call: ServedCall, status: int) -> Mapping[str, str]:
        """Noted, with a header that replaces the server's own."""
        self.heard.append(f"replies {status}")
        self.refuse("reply")
        return {"x-told": call.episode.capture_key if call.episode else "nobody"}

    async def call_ends(self, call: ServedCall) -> None:
        """Noted."""
        self.heard.append("ends")

    def refuse(self, moment: str) -> None:
        """Refuse, if this is the moment."""
        if self.refuses == moment:
            raise StaleAttemptError("refused")


class NamingUsers:
    """A server's own middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A copy of the scope, as some middleware makes."""
        await self.app(dict(scope, user="me"), receive, send)


class Told(RoleServer):
    """A server of these hooks."""

    def __init__(self) -> None:
        self.hooks = Listening()
        self.go = asyncio.Event()
        self.go.set()
        self.served: list[ServedCall | None] = []
        self.error: Exception | None = None
        super().__init__(self.make)

    def make(self, components: Components) -> Starlette:
        """The app."""
        paths = ["/replayed", "/held", "/waited", "/free"]
        app = Starlette(
            routes=[Route(p, self.serve, methods=["POST"]) for p in paths],
            middleware=[Middleware(NamingUsers)],
        )
        participant.install(
            app, self.hooks, SETTINGS, kind="any", instance="a", components=components
        )
        return app

    async def serve(self, request: Request) -> PlainTextResponse:
        """Every route."""
        self.served.append(current_call.get())
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return PlainTextResponse("done", headers={"x-told": "by the server"})


async def test_the_hooks_are_told_in_order_and_may_add_headers() -> None:
    told = Told()
    reply = await told.begin("/waited", R1).reply()
    assert told.hooks.heard == ["begins /waited by me", "replies 200", "ends"]
    assert (reply.headers["x-told"], reply.body) == ("r1", b"done")
    (call,) = told.served
    assert call is not None
    assert (call.route.suffix, call.episode) == ("/waited", R1)


async def test_they_are_not_told_of_other_requests_not_even_within_a_call() -> None:
    """Servers in one process call each other while they serve."""
    told, other = Told(), Told()

    async def forward(_: Request) -> PlainTextResponse:
        await request(other.app, "POST", "/free")
        return PlainTextResponse("")

    told.app.router.routes.insert(0, Route("/waited", forward, methods=["POST"]))
    await told.begin("/waited", R1).reply()
    assert (other.hooks.heard, other.served) == ([], [None])


@pytest.mark.parametrize("moment", ["begin", "reply"])
async def test_what_the_hooks_refuse_is_answered_with_their_code(moment: str) -> None:
    told = Told()
    told.hooks.refuses = moment
    reply = await told.begin("/waited", R1).reply()
    assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")
    assert told.hooks.heard[-1] == "ends"
    assert len(told.served) == (moment == "reply")


@pytest.mark.parametrize("path", ["/replayed", "/held"])
async def test_a_reply_is_held_and_the_hooks_are_told_when_it_leaves(path: str) -> None:
    """Also a failure's, where a call has its reply held."""
    for error in (None, RuntimeError("failed")):
        told = Told()
        told.error = error
        told.go.clear()
        call = told.begin(path, R1)
        await settle()
        prepare = asyncio.ensure_future(told.well("prepare"))
        await settle()
        assert prepare.done() == (path == "/replayed")
        told.go.set()
        await settle()
        assert (await prepare)["phase"] == "prepared"
        assert not call.has_started
        assert told.hooks.heard == [f"begins {path} by me"]
        await told.well("resume")
        if error is None:
            await call.reply()
            assert told.hooks.heard[1:] == ["replies 200", "ends"]
        else:
            with pytest.raises(RuntimeError):
                await call.reply()
            assert told.hooks.heard[1:] == ["ends"]


async def test_the_hooks_are_told_of_the_end_of_a_retired_call() -> None:
    told = Told()
    told.go.clear()
    call = told.begin("/replayed", R1)
    await settle()
    await told.well("retire", episode_ids=refs(R1))
    assert (await call.reply()).status == 409
    assert told.hooks.heard == ["begins /replayed by me", "ends"]


async def test_a_control_route_is_never_gated() -> None:
    """Not even by hooks that gate every path."""

    class Everything(Listening):
        gated_routes = (GatedRoute(""),)

    told = Told()
    told.hooks = Everything()
    told.app = told.make(Components(told.storage, told.clock))
    await told.well("prepare")
    waiting: Any = told.begin("/free", R1)
    await settle()
    assert told.served == []
    await told.well("resume")
    assert (await waiting.reply()).status == 200


class Threaded(HTTPEndpoint):
    """A class whose method is a plain function."""

    def post(self, request: Request) -> PlainTextResponse:
        """Take as long as the test likes."""
        return take_long(request)


def take_long(request: Request) -> PlainTextResponse:
    """A plain function, which a thread carries out."""
    request.app.state.begun.set()
    assert request.app.state.go.wait(30)
    request.app.state.done.append("the old one wrote")
    return PlainTextResponse("done")


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
@pytest.mark.parametrize("endpoint", [take_long, Threaded, functools.partial(take_long)])
async def test_a_retire_waits_for_a_call_that_a_thread_carries_out(
    framework: type[Starlette], endpoint: Any
) -> None:
    """P64, P71: a cancellation would let go of the thread, and it would write afterwards."""

    def make(components: Components) -> Starlette:
        app = framework()
        if isinstance(app, FastAPI) and inspect.isfunction(endpoint):
            app.post("/waited", response_model=None)(endpoint)
        else:
            app.router.routes.append(Route("/waited", endpoint, methods=["POST"]))
        participant.install(
            app, Listening(), SETTINGS, kind="any", instance="a", components=components
        )
        app.add_middleware(NamingUsers)
        return app

    server = RoleServer(make)
    state = server.app.state
    state.begun, state.go, state.done = threading.Event(), threading.Event(), []
    call = server.begin("/waited", R1)
    await until(state.begun.is_set)
    retire = asyncio.ensure_future(server.well("retire", episode_ids=refs(R1)))
    await settle()
    assert not retire.done()
    assert (await server.begin("/waited", R1).reply()).status == 409
    state.go.set()
    assert await retire == {"retired": ["r1"]}
    assert state.done == ["the old one wrote"]
    assert (await call.reply()).body == b"done"
