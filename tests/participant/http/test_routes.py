"""The control routes in Starlette and in FastAPI apps; refusals, and silence about tokens."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import participant
from ckptfmt.identity import EpisodeId
from participant.core import errors
from participant.core.errors import ParticipantError
from participant.core.messages import REQUESTS
from participant.core.phases import Phase
from participant.http.replies import STATUS_OF, error_response
from participant.roles.generic import StateTable
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.asgi import AsgiReply, request
from participant.testing.clock import FakeClock, settle
from participant.testing.storage import MemoryStorage
from tests.support.participants import TOKEN

pytestmark = pytest.mark.anyio
PREFIX = "/ng-control/v1/checkpoint/"
Send = Callable[..., Awaitable[AsgiReply]]


class Server:
    """An app with a participant, and its control routes called as a controller does."""

    def __init__(self, app: Starlette, **settings: Any) -> None:
        self.app = app
        self.clock = FakeClock()
        self.hooks = StateTable()
        self.storage = MemoryStorage()
        installed = participant.install(
            app,
            self.hooks,
            Settings(enabled=True, control_auth_token=TOKEN, **settings),
            kind="counter",
            instance="c1",
            components=Components(self.storage, self.clock),
        )
        assert installed is not None
        self.participant: Participant = installed

    async def send(self, command: str, body: Any = None, **headers: str) -> AsgiReply:
        """POST ``body`` (as JSON unless it is bytes); GET where there is none."""
        headers = {"authorization": f"Bearer {TOKEN}", **headers}
        if body is None:
            return await request(self.app, "GET", PREFIX + command, headers=headers)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await request(self.app, "POST", PREFIX + command, raw, headers)

    def body(
        self, checkpoint_id: str = "ck", within_s: float = 30.0, **more: Any
    ) -> dict[str, Any]:
        """What every command carries."""
        return {
            "checkpoint_id": checkpoint_id,
            "deadline_ts": self.clock.wall() + within_s,
            **more,
        }


@pytest.fixture(params=[Starlette, FastAPI])
def server(request: pytest.FixtureRequest) -> Server:
    """A server of either framework."""
    return Server(request.param())


def code(reply: AsgiReply) -> tuple[int, str]:
    """Status and code of an error reply, which has nothing else."""
    assert set(reply.json) == {"error"}
    assert set(reply.json["error"]) == {"code", "detail"}
    assert reply.headers["content-type"] == "application/json"
    return reply.status, reply.json["error"]["code"]


async def test_a_checkpoint_and_a_restore_over_http(server: Server) -> None:
    server.hooks[EpisodeId("r1")] = {"n": 1}
    server.hooks[EpisodeId("r2", 1)] = {"n": 2}
    lease = server.clock.wall() + 630
    report = {
        "ready": True,
        "blockers": [],
        "blocker_count": 0,
        "counts": {"executions": 0, "parked": 0, "untagged": 0, "waiting": 0},
    }
    idle = {
        "kind": "counter",
        "instance": "c1",
        "phase": "idle",
        "checkpoint_id": None,
        "lease_expires_at": None,
        "report": report,
        "retiring": 0,
        "restored_pending": 0,
    }
    assert (await server.send("status")).json == idle
    prepared = await server.send("prepare", server.body())
    assert (prepared.status, prepared.json) == (200, {"phase": "prepared", "report": report})
    assert (await server.send("status")).json == idle | {
        "phase": "prepared",
        "checkpoint_id": "ck",
        "lease_expires_at": lease,
    }
    renewed = await server.send("renew", server.body(within_s=60))
    assert renewed.json == {"lease_expires_at": lease + 30}
    commit = server.body(checkpoint_dir="/d", episode_ids=None)
    committed = (await server.send("commit", commit)).json
    assert committed.pop("manifest")["checkpoint_id"] == "ck"
    assert committed == {"phase": "committed", "episode_ids": ["r1", "r2-a1"]}
    resumed = await server.send("resume", server.body())
    assert resumed.json == {"phase": "idle", "idempotent": False}
    assert (await server.send("resume", server.body())).json["idempotent"] is True

    fresh = Server(type(server.app)())
    fresh.storage._stored = server.storage._stored
    episodes = [{"rollout_id": "r2", "attempt": 1}, {"rollout_id": "r1", "attempt": 0}]
    restore = fresh.body("x", checkpoint_dir="/d", episode_ids=episodes)
    assert (await fresh.send("restore", restore)).json == {
        "phase": "restored",
        "source_checkpoint_id": "ck",
        "restored": ["r1-a1", "r2-a2"],
    }
    retire = fresh.body("x", episode_ids=[{"rollout_id": "r1", "attempt": 1}])
    assert (await fresh.send("retire", retire)).json == {"retired": ["r1-a1"]}
    await fresh.send("resume", fresh.body("x"))
    assert (await fresh.send("status")).json["restored_pending"] == 1


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", TOKEN, "Bearer é"]
)
async def test_a_missing_or_wrong_bearer_is_refused_everywhere(
    server: Server, given: str | None
) -> None:
    """P12: before the body is looked at, and nothing changes."""
    for command in ["status", *REQUESTS]:
        method = "GET" if command == "status" else "POST"
        headers = {} if given is None else {"authorization": given}
        reply = await request(server.app, method, PREFIX + command, b"not json", headers)
        assert code(reply) == (401, "unauthorized")
        assert TOKEN.encode() not in reply.body
    assert server.participant.status().phase is Phase.IDLE


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
async def test_the_name_of_the_scheme_is_told_in_any_case(server: Server, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {TOKEN}"}
    assert (await request(server.app, "GET", PREFIX + "status", headers=headers)).status == 200
    headers = {"authorization": f"Basic {TOKEN}"}
    assert (await request(server.app, "GET", PREFIX + "status", headers=headers)).status == 401


async def test_a_client_that_leaves_before_its_body_is_here_changes_nothing(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def left(scope: Any, receive: Any, send: Any) -> None:
        await server.app(scope, leave, send)

    headers = {"authorization": f"Bearer {TOKEN}"}
    reply = await request(left, "POST", PREFIX + "prepare", b"{", headers)
    assert code(reply) == (422, "invalid_request")
    assert caplog.text == ""
    assert server.participant.status().phase is Phase.IDLE


MALFORMED: list[tuple[Any, int, str]] = [
    (b"", 422, "invalid_request"),
    (b"{", 422, "invalid_request"),
    (b"[]", 422, "invalid_request"),
    (b"\xff\xfe", 422, "invalid_request"),
    ({"checkpoint_id": "ck", "deadline_ts": "soon"}, 422, "invalid_request"),
    ({"checkpoint_id": "ck", "deadline_ts": 1.0, "unknown": 1}, 422, "invalid_request"),
    ({"checkpoint_id": "../up", "deadline_ts": 1.0}, 422, "invalid_request"),
    (b" " * 5000, 413, "request_too_large"),
]


@pytest.mark.parametrize("command", REQUESTS)
@pytest.mark.parametrize(("body", "status", "name"), MALFORMED)
async def test_a_malformed_or_oversized_body_has_its_code_and_no_traceback(
    command: str, body: Any, status: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P13."""
    caplog.set_level(logging.DEBUG)
    server = Server(Starlette(), max_body_bytes=4096)
    reply = await server.send(command, body)
    assert code(reply) == (status, name)
    assert b"Traceback" not in reply.body
    assert "Traceback" not in caplog.text
    assert TOKEN not in caplog.text
    assert server.participant.status().phase is Phase.IDLE


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    server = Server(Starlette(), max_body_bytes=10)
    reply = await server.send("prepare", b"", **{"content-length": "11"})
    assert code(reply) == (413, "request_too_large")


async def test_a_defect_of_the_server_is_500_without_its_text_or_the_token(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.hooks.counts = lambda gate: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert code(await server.send("status")) == (500, "internal_error")
    reply = await server.send("prepare", server.body())
    assert code(reply) == (500, "internal_error")
    assert b"Traceback" not in reply.body
    assert TOKEN not in caplog.text
    del server.hooks.counts
    assert not server.participant.is_closed
    assert (await server.send("prepare", server.body())).status == 200


async def test_refusals_come_in_their_order(server: Server) -> None:
    """stale_checkpoint, checkpoint_conflict, deadline_exceeded, invalid_phase."""
    await server.send("resume", server.body("spent"))
    await server.send("prepare", server.body("open"))
    where = {"checkpoint_dir": "/d", "episode_ids": []}

    async def refusal(checkpoint_id: str, within_s: float, command: str = "restore") -> str:
        reply = await server.send(command, server.body(checkpoint_id, within_s, **where))
        return code(reply)[1]

    assert await refusal("spent", -5) == "stale_checkpoint"
    assert await refusal("other", -5) == "checkpoint_conflict"
    assert await refusal("open", -5) == "deadline_exceeded"
    assert await refusal("open", 5) == "invalid_phase"


async def test_a_late_commit_tells_the_servers_own_time(server: Server) -> None:
    """P27: a skewed clock can be seen."""
    body = server.body(within_s=-3, checkpoint_dir="/d", episode_ids=[])
    reply = await server.send("commit", body)
    assert code(reply) == (409, "deadline_exceeded")
    assert f"{server.clock.wall():.3f}" in reply.json["error"]["detail"]


async def test_the_senders_clock_makes_the_deadline_a_budget(server: Server) -> None:
    sent_at = server.clock.wall() + 86_400
    body = {"checkpoint_id": "ck", "deadline_ts": sent_at + 10}
    name = "x-ng-checkpoint-sent-at"
    await server.send("prepare", body, **{name: str(sent_at)})
    expires_at = (await server.send("status")).json["lease_expires_at"]
    assert expires_at == pytest.approx(server.clock.wall() + 610)
    for wrong in ("soon", "nan", "inf", ""):
        assert code(await server.send("renew", body, **{name: wrong})) == (422, "invalid_request")


async def test_a_far_deadline_is_capped() -> None:
    server = Server(Starlette(), max_budget_seconds=100.0, lease_grace_seconds=5.0)
    await server.send("prepare", server.body(within_s=1e12))
    expires_at = (await server.send("status")).json["lease_expires_at"]
    assert expires_at == pytest.approx(server.clock.wall() + 105)


async def test_places_outside_the_permitted_roots_are_refused() -> None:
    server = Server(Starlette(), allowed_checkpoint_roots=("/ckpt/run", "s3://bucket/run"))
    await server.send("prepare", server.body())
    for place in ("/ckpt/run2", "/ckpt", "/ckpt/run/../other", "s3://bucket/running", "run"):
        body = server.body(checkpoint_dir=place, episode_ids=None)
        assert code(await server.send("commit", body)) == (422, "invalid_request")
    body = server.body(checkpoint_dir="/ckpt/run/5", episode_ids=None)
    assert (await server.send("commit", body)).status == 200


async def test_status_answers_in_every_phase_and_during_a_commit(server: Server) -> None:
    """P15, P16."""
    release = asyncio.Event()

    async def hang(scope: Any) -> Any:
        await release.wait()
        return await StateTable.export(server.hooks, scope)

    server.hooks.export = hang  # type: ignore[method-assign]
    await server.send("prepare", server.body())
    body = server.body(checkpoint_dir="/d", episode_ids=None)
    commit = asyncio.ensure_future(server.send("commit", body))
    await settle()
    assert (await server.send("status")).json["phase"] == "prepared"
    release.set()
    assert (await commit).status == 200
    assert (await server.send("status")).json["phase"] == "committed"


async def test_a_catch_all_of_the_server_does_not_hide_the_control_routes() -> None:
    async def everything(request: Request) -> PlainTextResponse:
        return PlainTextResponse("mine")

    server = Server(Starlette(routes=[Route("/{path:path}", everything, methods=["GET", "POST"])]))
    assert (await server.send("status")).json["phase"] == "idle"
    assert (await request(server.app, "GET", "/else")).body == b"mine"


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
async def test_disabled_is_as_if_it_were_not_there(framework: type[Starlette]) -> None:
    """P10."""
    app = framework()
    before = (list(app.router.routes), list(app.user_middleware))
    hooks = StateTable()
    assert participant.install(app, hooks, Settings(), kind="counter", instance="c1") is None
    assert (list(app.router.routes), list(app.user_middleware)) == before
    assert (await request(app, "GET", PREFIX + "status")).status == 404


def all_errors() -> list[type[ParticipantError]]:
    """Every class of the tree."""
    return [getattr(errors, name) for name in errors.__all__]


def test_every_code_has_a_status_and_every_status_a_code() -> None:
    assert {error.code for error in all_errors()} == set(STATUS_OF)


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: error.__name__)
def test_an_error_is_spelled_with_the_status_of_its_code(error: type[ParticipantError]) -> None:
    response = error_response(error("why"))
    assert response.status_code == STATUS_OF[error.code]
    assert json.loads(bytes(response.body)) == {"error": {"code": error.code, "detail": "why"}}
