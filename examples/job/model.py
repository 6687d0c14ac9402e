"""The policy model server: replies token by token, and records every call in a ledger.

The number of a call is counted in the ledger: delivered calls are there, in this process
or restored from a checkpoint, and a call that was not delivered is not.  Every other call
is answered as a stream; it is recorded once all of its tokens are out.  The rest reply as
a whole, and are recorded before that.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import participant
from ckptfmt.ledger.parents import Standing
from ckptfmt.ledger.staging_ledger import StagingLedger
from examples.job.policy import Message, generate, row_of
from examples.job.setup import Journal, Setup, serve
from participant.attribution import current_episode
from participant.roles.model import ModelHooks

__all__ = ["Policy", "make_app"]

_TOKENS_AHEAD = 5


class Policy:
    """The server's one route, its ledger and its journal of calls."""

    def __init__(self, setup: Setup) -> None:
        self.ledger = StagingLedger(setup.folder / "ledgers")
        self.hooks = ModelHooks(self.ledger)
        self._journal = Journal(setup.folder / "calls.jsonl")

    async def complete(self, request: Request) -> Response:
        """``messages`` in, a message out; ``token_s`` is how long a token takes."""
        body = await request.json()
        admitted_at = time.time()
        messages, token_s = body["messages"], body["token_s"]
        call_id = uuid.uuid4().hex
        reply, parent = await self._decide(call_id, messages)
        row = row_of(call_id, messages, reply, parent, admitted_at)

        async def recorded() -> None:
            await self.hooks.record(row)

        # The work before the first token: until it is out, the call is undelivered.
        await asyncio.sleep(token_s * _TOKENS_AHEAD)
        if body["stream"]:
            return StreamingResponse(_events(reply, token_s, recorded))
        await asyncio.sleep(token_s * len(reply["content"].split()))
        await recorded()
        return JSONResponse({"message": reply})

    async def _decide(self, call_id: str, messages: list[Message]) -> tuple[Message, Any]:
        """The reply, and the row of the call that it continues."""
        episode = current_episode.get()
        if episode is None:
            return generate(messages, 1), None
        rows = await asyncio.to_thread(self.ledger.export_rows, episode.capture_key)
        parent = await self.hooks.admit(call_id, messages)
        if parent is None or parent.standing is Standing.UNRESOLVED:
            raise RuntimeError(f"{episode.capture_key} asks to continue what was never written")
        number = len(rows) + 1
        reply = generate(messages, number)
        await asyncio.to_thread(
            self._journal.add,
            rollout=episode.rollout_id,
            attempt=episode.attempt,
            number=number,
            what=reply,
            process=os.getpid(),
        )
        return reply, parent.row


async def _events(
    reply: Message, token_s: float, recorded: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """The reply token by token, then its tool calls, then the end."""
    for place, word in enumerate(reply["content"].split()):
        await asyncio.sleep(token_s)
        yield _event({"content": f" {word}" if place else word})
    await recorded()
    if "tool_calls" in reply:
        yield _event({"tool_calls": reply["tool_calls"]})
    yield b"data: [DONE]\n\n"


def _event(delta: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(delta).encode() + b"\n\n"


def make_app(setup: Setup) -> Starlette:
    """The server."""
    policy = Policy(setup)
    app = Starlette(routes=[Route("/v1/chat/completions", policy.complete, methods=["POST"])])
    participant.install(app, policy.hooks, setup.settings, kind="model", instance="policy")
    return app


if __name__ == "__main__":
    serve(make_app(Setup.read()), Setup.read())
