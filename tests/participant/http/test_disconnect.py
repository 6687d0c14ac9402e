"""Runs of episodes over HTTP: refused, dropped with their client, sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from participant.attribution import episode_of_run
from participant.http.disconnect import until_gone
from participant.roles.environment import EnvironmentHooks
from participant.runtime.shell import Components
from participant.settings import Settings
from participant.testing.asgi import AsgiCall, request
from participant.testing.clock import FakeClock, settle
from participant.testing.storage import MemoryStorage
from tests.support.participants import R1, TOKEN
from tests.support.role_worlds import (
    TASK,
    counting,
)

pytestmark = pytest.mark.anyio
R1_NEXT = R1.continuation


class App:
    """An environment server with its route, called as over HTTP."""

    def __init__(self) -> None:
        self.hooks = EnvironmentHooks()
        self.runs = 0
        self.app = Starlette(routes=[Route("/run", self.run, methods=["POST"])])
        self.participant = participant.install(
            self.app,
            self.hooks,
            Settings(enabled=True, control_auth_token=TOKEN),
            kind="environment",
            instance="e",
            components=Components(MemoryStorage(), FakeClock()),
        )

    async def run(self, request: Request) -> JSONResponse:
        """POST /run."""
        body = await request.json()
        gone = until_gone(request.receive)
        async with self.hooks.begin(episode_of_run(body), body["task"], gone=gone) as run:
            self.runs += 1
            return JSONResponse({"count": await counting(run)})

    def call(self, **body: Any) -> AsgiCall:
        """Begin a run."""
        return AsgiCall(self.app, "POST", "/run", json.dumps({"task": TASK, **body}).encode())

    async def control(self, command: str) -> None:
        """Send a command."""
        body = json.dumps({"checkpoint_id": "ck", "deadline_ts": 2e9}).encode()
        headers = {"authorization": f"Bearer {TOKEN}"}
        path = f"/ng-control/v1/checkpoint/{command}"
        assert (await request(self.app, "POST", path, body, headers)).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "rollout_id_required"),
        ({"_ng_rollout_id": "r-a1-a2"}, 400, "invalid_rollout_id"),
        ({"_ng_task_index": 0, "_ng_rollout_index": -1}, 400, "invalid_rollout_id"),
    ],
)
async def test_over_http_a_run_without_a_good_id_is_refused(
    body: dict[str, Any], status: int, code: str
) -> None:
    """P2, P5."""
    app = App()
    reply = await app.call(**body).reply()
    assert (reply.status, reply.json["error"]["code"], app.runs) == (status, code, 0)


async def test_over_http_a_waiting_run_is_dropped_with_its_client_and_may_be_sent_again() -> None:
    """P33."""
    app = App()
    await app.control("prepare")
    first = app.call(_ng_rollout_id="r1")
    await settle()
    second = await app.call(_ng_rollout_id="r1").reply()
    assert (second.status, second.json["error"]["code"]) == (409, "checkpoint_parked")
    first.disconnect()
    await settle()
    assert first.task.done()
    third = app.call(_ng_rollout_id="r1")
    await settle()
    await app.control("resume")
    assert (await third.reply()).json == {"count": 3}
    assert app.runs == 1
