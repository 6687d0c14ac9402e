"""Gated routes: waiting, dropped, cleaned up, held back, retired."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import participant
from ckptfmt.identity import EpisodeId
from participant.hooks import GatedRoute
from participant.roles.generic import StateTable
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.asgi import AsgiCall, request
from participant.testing.clock import FakeClock, settle
from participant.testing.storage import MemoryStorage
from tests.support.participants import TOKEN

pytestmark = pytest.mark.anyio
PREFIX = "/ng-control/v1/checkpoint/"


class Hooks(StateTable):
    """Hooks of a server with every sort of gated route."""

    gated_routes: Sequence[GatedRoute] = (
        GatedRoute("/tool"),
        GatedRoute("/run", is_single=True, holds_reply=True),
        GatedRoute("/close_session", is_cleanup=True),
        GatedRoute("/v1/chat/completions", requires_rollout=False),
    )


class Gated:
    """An app that counts what it did, with routes that take as long as the test likes."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.bodies: list[bytes] = []
        self.go = asyncio.Event()
        self.go.set()
        paths = ["/tool", "/run", "/close_session", "/v1/chat/completions", "/free"]
        methods = ["GET", "POST"]
        self.app = Starlette(routes=[Route(p, self.serve, methods=methods) for p in paths])
        self.clock = FakeClock()
        installed = participant.install(
            self.app,
            Hooks(),
            Settings(enabled=True, control_auth_token=TOKEN),
            kind="agent",
            instance="a",
            components=Components(MemoryStorage(), self.clock),
        )
        assert installed is not None
        self.participant: Participant = installed

    async def serve(self, request: Request) -> PlainTextResponse:
        """Do the work of any route."""
        self.bodies.append(await request.body())
        await self.go.wait()
        self.done.append(request.url.path)
        return PlainTextResponse("done")

    async def control(self, command: str, **members: Any) -> Any:
        """Send a command and return its members."""
        import json

        body = {"checkpoint_id": "ck", "deadline_ts": self.clock.wall() + 30, **members}
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = await request(
            self.app, "POST", PREFIX + command, json.dumps(body).encode(), headers
        )
        assert reply.status == 200, reply.body
        return reply.json

    def call(self, path: str, key: str | None = "r1", method: str = "POST") -> AsgiCall:
        """Call a route for an episode."""
        prefix = "" if key is None else f"/ng-rollout/{key}"
        return AsgiCall(self.app, method, prefix + path, b"body")


async def test_a_gated_call_waits_and_runs_once_after_resume_with_its_body() -> None:
    """P29, P30: no text of a control error reaches the caller."""
    gated = Gated()
    await gated.control("prepare")
    call = gated.call("/tool")
    await settle()
    assert (gated.done, call.has_started) == ([], False)
    await gated.control("resume")
    reply = await call.reply()
    assert (reply.status, reply.body) == (200, b"done")
    assert (gated.done, gated.bodies) == (["/tool"], [b"body"])


@pytest.mark.parametrize(
    ("path", "key", "method"),
    [
        ("/tool", "r1", "GET"),
        ("/tool", "r1", "HEAD"),
        ("/free", "r1", "POST"),
        ("/v1/chat/completions", None, "POST"),
    ],
)
async def test_probes_ungated_routes_and_untagged_model_calls_pass(
    path: str, key: str | None, method: str
) -> None:
    """P6, P16, P91."""
    gated = Gated()
    await gated.control("prepare")
    assert (await gated.call(path, key, method).reply()).status == 200


async def test_work_without_a_rollout_is_refused_before_any_side_effect() -> None:
    """P5."""
    gated = Gated()
    reply = await gated.call("/tool", None).reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "rollout_id_required")
    assert gated.bodies == []


async def test_a_waiting_call_whose_client_went_away_is_dropped() -> None:
    gated = Gated()
    await gated.control("prepare")
    call = gated.call("/tool")
    await settle()
    call.disconnect()
    await call.task
    await gated.control("resume")
    await settle()
    assert gated.done == []
    assert gated.participant.table_sizes["calls"] == 0


async def test_a_waiting_clean_up_is_carried_out_although_its_client_went_away() -> None:
    """P34."""
    gated = Gated()
    await gated.control("prepare")
    call = gated.call("/close_session")
    await settle()
    call.disconnect()
    await settle()
    await gated.control("resume")
    await call.task
    assert gated.done == ["/close_session"]


async def test_a_repeated_run_is_parked_while_the_first_waits_or_runs() -> None:
    """P33: no second execution."""
    gated = Gated()
    await gated.control("prepare")
    first = gated.call("/run")
    await settle()
    again = await gated.call("/run").reply()
    assert (again.status, again.json["error"]["code"]) == (409, "checkpoint_parked")
    gated.go.clear()
    await gated.control("resume")
    await settle()
    again = await gated.call("/run").reply()
    assert again.json["error"]["code"] == "checkpoint_parked"
    gated.go.set()
    assert (await first.reply()).status == 200
    assert gated.done == ["/run"]


async def test_a_finished_reply_is_held_until_resume_and_blocks_nothing() -> None:
    """P32, P84: between prepared and resume it is not sent, and it is not lost."""
    gated = Gated()
    gated.go.clear()
    call = gated.call("/run")
    await settle()
    prepare = asyncio.ensure_future(gated.control("prepare"))
    await settle()
    assert not prepare.done()
    gated.go.set()
    assert (await prepare)["phase"] == "prepared"
    await settle()
    assert not call.has_started
    await gated.control("resume")
    assert (await call.reply()).body == b"done"


async def test_a_running_call_that_is_retired_is_answered_with_stale_attempt() -> None:
    """P64."""
    gated = Gated()
    gated.go.clear()
    call = gated.call("/tool")
    await settle()
    retired = [{"rollout_id": "r1", "attempt": 0}]
    assert await gated.control("retire", episode_ids=retired) == {"retired": ["r1"]}
    for reply in (await call.reply(), await gated.call("/tool").reply()):
        assert (reply.status, reply.json["error"]["code"]) == (409, "stale_attempt")
    assert gated.done == []


async def test_a_call_that_waits_is_told_that_the_table_is_full() -> None:
    gated = Gated()
    gated.participant._machine._state.gate._max_waiting = 1
    await gated.control("prepare")
    first = gated.call("/tool", "r1")
    await settle()
    reply = await gated.call("/tool", "r2").reply()
    assert (reply.status, reply.json["error"]["code"]) == (409, "admission_closed")
    await gated.control("resume")
    await first.reply()


async def test_an_attempt_is_never_served_as_another() -> None:
    """P62."""
    gated = Gated()
    gated.go.clear()
    later = gated.call("/tool", "r1-a1")
    await settle()
    early = await gated.call("/tool", "r1").reply()
    assert early.json["error"]["code"] == "stale_attempt"
    gated.go.set()
    await later.reply()
    assert EpisodeId("r1", 1).covers(EpisodeId("r1"))


async def test_a_retire_waits_for_a_clean_up_and_does_not_cut_it_short() -> None:
    """P72: it is sent only once."""
    gated = Gated()
    gated.go.clear()
    call = gated.call("/close_session")
    await settle()
    retire = asyncio.ensure_future(
        gated.control("retire", episode_ids=[{"rollout_id": "r1", "attempt": 0}])
    )
    await settle()
    assert not retire.done()
    gated.go.set()
    assert await retire == {"retired": ["r1"]}
    assert ((await call.reply()).status, gated.done) == (200, ["/close_session"])


class Cut(AsgiCall):
    """A call whose client goes away in the middle of its body."""

    async def _receive(self) -> Any:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": True}
        return {"type": "http.disconnect"}


@pytest.mark.parametrize("path", ["/tool", "/close_session", "/v1/chat/completions"])
async def test_a_call_whose_body_is_cut_is_no_work(path: str) -> None:
    """It is not admitted, and ends without an exception: nobody could be told of one."""
    gated = Gated()
    call = Cut(gated.app, "POST", "/ng-rollout/r1" + path, b"half a bo")
    assert (await call.reply()).json["error"]["code"] == "admission_closed"
    assert (gated.bodies, gated.participant.table_sizes["calls"]) == ([], 0)
    assert not gated.participant._machine._state.gate.has_served


async def test_a_dropped_call_is_answered_for_the_middleware_outside() -> None:
    """Middleware that finds no reply takes that for a defect of the server."""
    gated = Gated()

    async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    gated.app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    await gated.control("prepare")
    call = gated.call("/tool")
    await settle()
    call.disconnect()
    await call.task
    await gated.control("resume")
    assert gated.done == []
