"""The ledger routes and their client, over ledgers on disk."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from ckptfmt.errors import NameRefusedError
from ckptfmt.ledger import limits
from ckptfmt.ledger.staging_ledger import StagingLedger
from participant.core.errors import InvalidRequestError, RolloutRetiredError
from participant.http import ledger_wire
from participant.http.ledger_client import LedgerCallError, LedgerClient
from participant.http.ledger_routes import ledger_routes
from participant.http.ledger_wire import LEDGER_PREFIX
from participant.roles.ledger_control import LedgerControl
from participant.testing.asgi import AsgiReply, request
from participant.transport import TransportError
from tests.support.ledgers import call_id, failure, files, row
from tests.support.participants import TOKEN
from tests.support.serving import serving

pytestmark = pytest.mark.anyio


class Server:
    """An app with ledger routes, called as a training framework does."""

    def __init__(self, root: Path) -> None:
        self.ledger = StagingLedger(root)
        self.blocked: str | None = None
        routes = ledger_routes(
            LedgerControl(self.ledger), token=TOKEN, removal_blocked=lambda: self.blocked
        )
        self.app = Starlette(routes=routes)

    async def get(self, key: str, **headers: str) -> AsgiReply:
        headers = {"authorization": f"Bearer {TOKEN}", **headers}
        return await request(self.app, "GET", f"{LEDGER_PREFIX}/{key}/manifest", headers=headers)

    async def post(self, action: str, body: Any, **headers: str) -> AsgiReply:
        headers = {"authorization": f"Bearer {TOKEN}", **headers}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await request(self.app, "POST", f"{LEDGER_PREFIX}/{action}", data, headers=headers)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "ledgers")


def code(reply: AsgiReply) -> tuple[int, str]:
    return reply.status, reply.json["error"]["code"]


async def test_a_manifest_is_the_rows_of_a_rollout(server: Server) -> None:
    server.ledger.record("r", row(0))
    server.ledger.record_failure("r", failure(1))
    reply = await server.get("r")
    assert reply.status == 200
    assert reply.json == server.ledger.manifest("r")
    assert [item["model_call_id"] for item in reply.json["failures"]] == [call_id(1)]


async def test_a_retired_rollout_is_gone_not_empty(server: Server) -> None:
    """L21."""
    server.ledger.record("r", row(0))
    reply = await server.post("retire", {"rollout_ids": ["r", "s"]})
    assert reply.json == {"removed": ["r"], "absent": ["s"]}
    assert code(await server.get("r")) == (410, "retired")
    reply = await server.post("delete", {"rollout_ids": ["r", "s"]})
    assert reply.json == {"removed": [], "absent": ["r", "s"]}
    assert (await server.get("r")).json["records"] == []


@pytest.mark.parametrize(
    "key", ["..", "a/b", "../r", "%2e%2e%2fr", "r%2Fs", "bad!", "x-a1-a2", "%20", "a" * 201, ""]
)
async def test_a_malformed_key_is_400_and_touches_nothing(
    server: Server, tmp_path: Path, key: str
) -> None:
    """L27."""
    assert code(await server.get(key)) == (400, "invalid_rollout_id")
    for action in ("retire", "delete"):
        reply = await server.post(action, {"rollout_ids": ["r", key]})
        assert code(reply) == (400, "invalid_rollout_id")
    assert list(tmp_path.iterdir()) == [tmp_path / "ledgers"]
    assert files(tmp_path / "ledgers") == {}


BODIES: list[Any] = [
    {},
    {"rollout_ids": []},
    {"rollout_ids": "abc"},
    {"rollout_ids": [1]},
    {"rollout_ids": ["r"], "more": 1},
    {"rollout_ids": [f"r{number}" for number in range(4097)]},
    ["r"],
    b"{",
    b"\xff",
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body)[:20])
async def test_a_body_of_another_form_is_422(server: Server, body: Any) -> None:
    """L25."""
    for action in ("retire", "delete"):
        assert code(await server.post(action, body)) == (422, "invalid_request")


async def test_a_body_larger_than_any_batch_is_413(server: Server) -> None:
    longest = {"rollout_ids": [f"{number:0200}" for number in range(4096)]}
    assert (await server.post("retire", longest)).status == 200
    assert code(await server.post("delete", b" " * (1 << 20) + b"{}")) == (
        413,
        "request_too_large",
    )


async def test_nothing_is_removed_while_a_checkpoint_is_open(server: Server) -> None:
    """L24."""
    server.ledger.record("r", row(0))
    server.blocked = "checkpoint ck-1 is open; repeat after its resume"
    for action in ("retire", "delete"):
        reply = await server.post(action, {"rollout_ids": ["r"]})
        assert code(reply) == (409, "checkpoint_conflict")
        assert "ck-1" in reply.json["error"]["detail"]
    assert len((await server.get("r")).json["records"]) == 1
    server.blocked = None
    reply = await server.post("retire", {"rollout_ids": ["r"]})
    assert reply.json["removed"] == ["r"]


async def test_nobody_without_the_token_learns_or_changes_anything(server: Server) -> None:
    server.ledger.record("r", row(0))
    for given in ("", "Bearer", "Bearer wrong", TOKEN):
        assert code(await server.get("r", authorization=given)) == (401, "unauthorized")
        assert code(await server.get("..", authorization=given)) == (401, "unauthorized")
        for action in ("retire", "delete"):
            reply = await server.post(action, {"rollout_ids": ["r"]}, authorization=given)
            assert code(reply) == (401, "unauthorized")
    assert server.ledger.has_rows("r")


def test_there_are_no_routes_without_a_token(server: Server) -> None:
    with pytest.raises(ValueError, match="token"):
        ledger_routes(LedgerControl(server.ledger), token="", removal_blocked=lambda: None)


async def test_a_damaged_ledger_is_500_and_tells_nothing(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ledgers" / "r.lineage.jsonl").write_bytes(b"secret\nsecret\n")
    reply = await server.get("r")
    assert code(reply) == (500, "internal_error")
    assert b"secret" not in reply.body


def test_both_sides_bound_a_batch_alike() -> None:
    assert ledger_wire.MAX_BATCH_KEYS == limits.MAX_BATCH_KEYS


# The client


@contextlib.asynccontextmanager
async def client_of(app: Starlette, *, token: str = TOKEN) -> AsyncIterator[LedgerClient]:
    async with serving(app) as url, aiohttp.ClientSession() as session:
        yield LedgerClient(session, url, token=token, timeout_s=30)


async def test_the_client_reads_and_removes(server: Server) -> None:
    server.ledger.record("r", row(0))
    async with client_of(server.app) as client:
        manifest = await client.manifest("r")
        assert len(manifest["records"]) == 1
        assert (await client.retire(["r"])).removed == ["r"]
        with pytest.raises(RolloutRetiredError):
            await client.manifest("r")
        assert (await client.delete(["r"])).absent == ["r"]
        server.blocked = "later"
        with pytest.raises(LedgerCallError) as caught:
            await client.retire(["r"])
        assert caught.value.status == 409


async def test_the_client_splits_after_it_checked_and_de_duplicated(server: Server) -> None:
    """L25."""
    keys = [f"r{number}" for number in range(5000)]
    server.ledger.record("r1", row(0))
    server.ledger.record("r4999", row(0))
    async with client_of(server.app) as client:
        for bad in ([*keys, "../r"], [*keys, "x-a1-a2"]):
            with pytest.raises(NameRefusedError):
                await client.retire(bad)
        for text in ("abc", b"abc"):
            with pytest.raises(InvalidRequestError):
                await client.retire(text)  # type: ignore[arg-type]
        assert server.ledger.has_rows("r1")
        result = await client.delete([*keys, *keys])
        assert result.removed == ["r1", "r4999"]
        assert len(result.absent) == 4998
        assert await client.retire([]) == ledger_wire.RemovalReply([], [])


async def test_the_client_tells_no_reply_from_a_refusal(server: Server) -> None:
    async def text(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    async with client_of(server.app, token="wrong") as client:
        with pytest.raises(LedgerCallError) as caught:
            await client.manifest("r")
        assert caught.value.status == 401
    path = f"{LEDGER_PREFIX}/r/manifest"
    async with client_of(Starlette(routes=[Route(path, text)])) as client:
        with pytest.raises(TransportError, match="form"):
            await client.manifest("r")
    async with aiohttp.ClientSession() as session:
        nowhere = LedgerClient(session, "http://127.0.0.1:1", token=TOKEN, timeout_s=30)
        with pytest.raises(TransportError, match="manifest"):
            await nowhere.manifest("r")
