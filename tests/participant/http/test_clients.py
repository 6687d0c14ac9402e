"""The reserved control pool and the client of episodes, against a server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import participant
from ckptfmt.identity import EpisodeId
from participant.attribution import current_episode
from participant.hooks import GatedRoute
from participant.http.control_pool import ControlPool
from participant.http.episode_client import EpisodeClient
from participant.roles.generic import StateTable
from participant.settings import PoolSettings, Settings
from participant.transport import TransportError
from tests.support.participants import TOKEN
from tests.support.serving import serving

pytestmark = pytest.mark.anyio


class Hooks(StateTable):
    """One gated route."""

    gated_routes = (GatedRoute("/run"),)


async def run(request: Request) -> PlainTextResponse:
    """Say for whom."""
    episode = current_episode.get()
    return PlainTextResponse("nobody" if episode is None else episode.capture_key)


@contextlib.asynccontextmanager
async def participating() -> AsyncIterator[str]:
    """A participant on loopback."""
    routes = [Route(path, run, methods=["POST"]) for path in ("/run", "/free")]
    app = Starlette(routes=routes)
    settings = Settings(enabled=True, control_auth_token=TOKEN)
    installed = participant.install(app, Hooks(), settings, kind="agent", instance="a")
    assert installed is not None
    async with serving(app) as url:
        yield url
    await installed.close()


def body(within_s: float = 30.0) -> dict[str, object]:
    """What every command carries."""
    import time

    return {"checkpoint_id": "ck", "deadline_ts": time.time() + within_s}


async def test_control_gets_through_while_every_data_connection_is_held() -> None:
    """P113: one data connection a host, parked by a checkpoint; the resume that frees it passes."""
    async with (
        participating() as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as data,
        ControlPool(TOKEN) as control,
    ):
        await control.call(url, "prepare", body(), 35)
        client = EpisodeClient(data, is_enabled=True)

        async def call(key: str) -> str:
            episode = EpisodeId.from_capture_key(key)
            async with client.request("POST", f"{url}/run", episode=episode) as response:
                return await response.text()

        parked = [asyncio.create_task(call(key)) for key in ("r1", "r2-a1")]
        async with asyncio.timeout(20):
            while not (await control.call(url, "status", None, 5)).members["report"]["counts"][
                "waiting"
            ]:
                await asyncio.sleep(0.01)
        assert (await control.call(url, "resume", body(), 35)).members["phase"] == "idle"
        assert await asyncio.gather(*parked) == ["r1", "r2-a1"]


async def test_refusals_are_replies_and_silence_is_an_error() -> None:
    async with participating() as url, ControlPool("wrong") as control:
        reply = await control.call(url, "status", None, 5)
        assert (reply.status, reply.members["error"]["code"]) == (401, "unauthorized")
    with pytest.raises(TransportError, match="status of"):
        async with ControlPool(TOKEN) as control:
            await control.call(url, "status", None, 5)


async def test_a_server_without_a_participant_is_404_and_bad_json_an_error() -> None:
    """P112."""

    async def text(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    path = "/ng-control/v1/checkpoint/status"
    async with ControlPool(TOKEN) as control:
        async with serving(Starlette()) as url:
            assert (await control.call(url, "status", None, 5)).status == 404
        async with serving(Starlette(routes=[Route(path, text)])) as url:
            with pytest.raises(TransportError, match="no JSON"):
                await control.call(url, "status", None, 5)


async def test_a_call_without_an_answer_ends_at_its_time_out() -> None:
    """P114."""
    never = asyncio.Event()

    async def hang(request: Request) -> PlainTextResponse:
        await never.wait()
        return PlainTextResponse("")

    path = "/ng-control/v1/checkpoint/status"
    async with serving(Starlette(routes=[Route(path, hang)])) as url, ControlPool(TOKEN) as control:
        with pytest.raises(TransportError, match="TimeoutError"):
            await control.call(url, "status", None, 0.05)
        never.set()


async def test_the_pool_takes_its_limits_and_shows_no_token() -> None:
    pool = ControlPool(TOKEN, PoolSettings(global_aiohttp_control_connector_limit_per_host=3))
    assert TOKEN not in repr(pool)
    connector = pool._open().connector
    assert isinstance(connector, aiohttp.TCPConnector)
    assert (connector.limit, connector.limit_per_host) == (0, 3)
    await pool.close()
    await pool.close()


async def test_the_episode_served_is_the_episode_called_for() -> None:
    """P7: by default, unless the path says otherwise, and only where it is enabled."""
    async with participating() as url, aiohttp.ClientSession() as session:
        enabled = EpisodeClient(session, is_enabled=True)
        disabled = EpisodeClient(session, is_enabled=False)

        async def text(client: EpisodeClient, path: str) -> str:
            async with client.request("POST", url + path) as response:
                return await response.text()

        assert await text(enabled, "/free") == "nobody"
        token = current_episode.set(EpisodeId("r", 4))
        assert await text(enabled, "/free") == "r-a4"
        assert await text(enabled, "/ng-rollout/mine/free") == "mine"
        assert await text(disabled, "/free") == "nobody"
        current_episode.reset(token)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_a_call_whose_reply_is_lost_is_not_sent_again(method: str) -> None:
    """P35: also on a connection that was kept alive, where its breaking may be no news."""
    heard = 0

    async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                heard += 1
                if heard == 2:
                    break
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(lose, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mutate"
    async with aiohttp.ClientSession() as session:
        client = EpisodeClient(session, is_enabled=True)
        async with client.request(method, url, episode=EpisodeId("r")) as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            async with client.request(method, url, episode=EpisodeId("r")):
                pass
    assert heard == 2
    server.close()
    await server.wait_closed()
