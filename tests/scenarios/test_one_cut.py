"""An agent and the model that it asks: whenever they are cut, they are cut at the same call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import participant
from ckptfmt.ledger.staging_ledger import StagingLedger
from participant.roles.model import ModelHooks
from participant.roles.simple_agent import Message, SimpleAgent
from participant.runtime.shell import Components
from participant.testing.clock import settle
from participant.testing.one_server import OneServer
from tests.support.ledgers import row
from tests.support.participants import R1, until
from tests.support.role_servers import SETTINGS, RoleServer, refs

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
ROUNDS = 4


class Pair:
    """A model server, and an agent that asks it ``ROUNDS`` times, each call when it is let."""

    def __init__(self, root: Path) -> None:
        self.ledger = StagingLedger(root)
        self.hooks = ModelHooks(self.ledger)
        self.turn = asyncio.Semaphore(0)
        self.model = RoleServer(self.make)
        self.simple = SimpleAgent()
        self.agent = OneServer("agent", self.simple)

    def make(self, components: Components) -> Starlette:
        """The model's app."""
        app = Starlette(routes=[Route(CHAT, self.complete, methods=["POST"])])
        participant.install(
            app, self.hooks, SETTINGS, kind="model", instance="policy", components=components
        )
        return app

    async def complete(self, request: Request) -> JSONResponse:
        """Generate, record, reply; all but the last reply ask for a tool."""
        number = (await request.json())["call"]
        await self.turn.acquire()
        await self.hooks.record(row(number))
        function = {"name": "tool", "arguments": "{}"}
        calls = [{"id": "t", "function": function}] if number < ROUNDS - 1 else []
        return JSONResponse({"role": "assistant", "content": str(number), "tool_calls": calls})

    async def ask(self, messages: Sequence[Message]) -> Message:
        """The agent's way to the model."""
        asked = sum(message["role"] == "assistant" for message in messages)
        reply: Message = (await self.model.begin(CHAT, R1, {"call": asked}).reply()).json
        return reply

    async def reply(self, count: int) -> None:
        """Let one call end, the one of that count."""
        self.turn.release()
        await until(lambda: len(self.ledger.export_rows("r1")) == count)
        await settle()

    async def run(self) -> list[Message]:
        """The whole loop."""

        async def use(name: str, arguments: str) -> str:
            return "used"

        task = [{"role": "user", "content": "begin"}]
        async with self.simple.seed(R1, "s"):
            pass
        return await self.simple.respond(R1, "s", task, self.ask, use)


@pytest.mark.parametrize("first", ["model", "agent"])
@pytest.mark.parametrize("before", range(ROUNDS))
@pytest.mark.parametrize("comes_in_time", [False, True])
async def test_the_calls_are_in_both_exports_or_in_neither(
    first: str, before: int, comes_in_time: bool, tmp_path: Path
) -> None:
    """P90, P85, P93: ``before`` calls end, then both close, and perhaps one more reply comes."""
    pair = Pair(tmp_path)
    loop = asyncio.create_task(pair.run())
    await settle()
    for ended in range(1, before + 1):
        await pair.reply(ended)
    prepares = [pair.model.well("prepare"), pair.agent.send("prepare")]
    for prepare in prepares if first == "model" else prepares[::-1]:
        await prepare
    if comes_in_time:
        await pair.reply(before + 1)
    await pair.model.well("commit", checkpoint_dir="dir", episode_ids=refs(R1))
    await pair.agent.send("commit", episodes=[R1])
    rows: list[Any] = []
    for stored in pair.model.storage.stored.values():  # type: ignore[attr-defined]
        rows += [r for record in stored.records for r in record.rows.value()]
    (kept,) = pair.agent.storage.stored.values()  # type: ignore[attr-defined]
    messages = kept.records[0].boundary.value()["messages"]
    assert len(rows) == before
    assert sum(message["role"] == "assistant" for message in messages) == before
    await pair.agent.send("resume")
    await pair.model.well("resume")
    for _ in range(ROUNDS - before):
        pair.turn.release()
    assert [m["content"] for m in await loop if m["role"] == "assistant"] == list("0123")
    assert len(pair.ledger.export_rows("r1")) == ROUNDS
    pair.ledger.close()
