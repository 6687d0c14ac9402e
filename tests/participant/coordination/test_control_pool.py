"""Control has connections of its own, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import participant
from ckptfmt.identity import EpisodeId
from participant.coordination import (
    Control,
    Fleet,
    Run,
    commit,
    discover,
    prepare,
    publish,
    resume,
)
from participant.hooks import GatedRoute
from participant.http.control_pool import ControlPool
from participant.http.episode_client import EpisodeClient
from participant.settings import PoolSettings, Settings
from tests.support.jobs import KINDS, KindTable
from tests.support.participants import TOKEN
from tests.support.serving import serving

pytestmark = pytest.mark.anyio


class Hooks(KindTable):
    """One gated route."""

    gated_routes = (GatedRoute("/run"),)


async def run(request: Request) -> PlainTextResponse:
    """Answer, once it is admitted."""
    return PlainTextResponse("done")


async def test_control_passes_while_every_data_connection_is_held(tmp_path: Path) -> None:
    """P113: one data connection a host, each held by a call that waits for the resume."""
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for kind in KINDS:
            app = Starlette(routes=[Route("/run", run, methods=["POST"])])
            settings = Settings(enabled=True, control_auth_token=TOKEN)
            installed = participant.install(
                app, Hooks(kind), settings, kind=kind, instance=f"{kind}-1"
            )
            assert installed is not None
            stack.push_async_callback(installed.close)
            urls.append(await stack.enter_async_context(serving(app)))
        connector = aiohttp.TCPConnector(limit_per_host=1)
        data = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        limits = PoolSettings(global_aiohttp_control_connector_limit_per_host=1)
        pool = await stack.enter_async_context(ControlPool(TOKEN, limits))
        control = Control(pool)
        fleet = await discover(control, urls)
        assert (await prepare(control, fleet, "ck", 30)).prepared
        client = EpisodeClient(data, is_enabled=True)

        async def call(url: str) -> str:
            request = client.request("POST", f"{url}/run", episode=EpisodeId("r1"))
            async with request as response:
                return await response.text()

        # The second call of a server waits for the connection that the first one holds.
        parked = [asyncio.create_task(call(url)) for url in urls for _ in range(2)]
        await _until_all_wait(pool, fleet)
        assert (await prepare(control, fleet, "ck", 30)).prepared
        place = Run(place=str(tmp_path))
        commits = await commit(control, fleet, "ck", place.checkpoint_dir("ck"), [], 30)
        await publish(control, fleet, commits, place, 30)
        assert not any(task.done() for task in parked)
        await resume(control, fleet, "ck", 30)
        assert await asyncio.gather(*parked) == ["done"] * 8


async def _until_all_wait(pool: ControlPool, fleet: Fleet) -> None:
    async with asyncio.timeout(20):
        for server in fleet.servers:
            while True:
                status = (await pool.call(server, "status", None, 5)).members
                if status["report"]["counts"]["waiting"] == 1:
                    break
                await asyncio.sleep(0.01)
