"""The end of an episode: held, cleaned up, retired."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from participant.core.errors import (
    StaleAttemptError,
)
from participant.core.steps import StepMode
from participant.roles.environment import EpisodeRun
from participant.testing.clock import settle
from tests.support.participants import R1
from tests.support.role_worlds import (
    TASK,
    EnvironmentServer,
    boundary_of,
    counting,
)

pytestmark = pytest.mark.anyio
R1_NEXT = R1.continuation


async def test_the_end_of_a_run_is_held_ahead_of_its_clean_ups() -> None:
    """P32, P84: what is exported can be continued, since nothing of it is closed yet."""
    server, go, closed = EnvironmentServer(), asyncio.Event(), list[str]()

    async def close() -> None:
        closed.append("session")

    async def work(run: EpisodeRun) -> str:
        run.clean_up(close)
        await run.boundary({"session": "s"})
        async with run.step(StepMode.REPLAY):
            await go.wait()
        return "result"

    task = server.run(work)
    await settle()
    await server.send("prepare")
    go.set()
    await settle()
    assert (task.done(), closed) == (False, [])
    assert server.participant.status().report.ready
    await server.send("resume")
    assert await task == "result"
    assert closed == ["session"]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_a_run_came_to_is_held_until_resume(fails: bool) -> None:
    """P32, P36: a failure too; its clean-ups had begun and are waited for."""
    server, go = EnvironmentServer(), asyncio.Event()

    async def work(run: EpisodeRun) -> str:
        run.clean_up(go.wait)
        await run.boundary({"result": 7})
        if fails:
            raise ConnectionError("the model server is gone")
        return "result"

    task = server.run(work)
    await settle()
    prepare = asyncio.create_task(server.send("prepare"))
    await settle()
    assert not prepare.done()
    go.set()
    await prepare
    (record,) = await server.saved(R1)
    assert (boundary_of(record), task.done()) == ({"result": 7}, False)
    await server.send("resume")
    if fails:
        with pytest.raises(ConnectionError):
            await task
    else:
        assert await task == "result"
    assert server.leftovers == {}


async def test_clean_ups_run_last_first_and_each_of_them_once_though_one_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, order = EnvironmentServer(), list[str]()

    def clean(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def work() -> None:
            order.append(name)
            if name == "b":
                raise RuntimeError("no such session")

        return work

    async def work(run: EpisodeRun) -> None:
        for name in "abc":
            run.clean_up(clean(name))
        raise ConnectionError("the agent is gone")

    with pytest.raises(ConnectionError):
        await server.run(work)
    assert order == ["c", "b", "a"]
    assert "a clean-up failed" in caplog.text


async def test_a_retire_waits_for_the_clean_up_and_does_not_interrupt_it() -> None:
    """P72, P83: nor does a client's going away; its bookkeeping stays until the end."""
    server, go, done = EnvironmentServer(), asyncio.Event(), list[str]()

    async def close() -> None:
        await go.wait()
        done.append("closed")

    async def work(run: EpisodeRun) -> None:
        run.clean_up(close)

    task = server.run(work)
    await settle()
    retire = asyncio.create_task(server.send("retire", "any", episodes=[R1]))
    await settle()
    task.cancel()
    await settle()
    assert (retire.done(), done, list(server.hooks.held())) == (False, [], ["r1"])
    go.set()
    await retire
    assert done == ["closed"]
    assert list(server.hooks.held()) == []
    with pytest.raises((StaleAttemptError, asyncio.CancelledError)):
        await task
    assert server.leftovers == {}


async def test_a_retire_during_the_clean_up_is_told_by_the_run_and_not_by_what_follows() -> None:
    server, go = EnvironmentServer(), asyncio.Event()
    after: list[str] = []

    async def main() -> None:
        with contextlib.suppress(StaleAttemptError):
            async with server.hooks.begin(R1, TASK) as run:
                run.clean_up(go.wait)
        await asyncio.sleep(0)
        after.append("undisturbed")

    task = asyncio.create_task(main())
    await settle()
    retire = asyncio.create_task(server.send("retire", "any", episodes=[R1]))
    await settle()
    go.set()
    await retire
    await task
    assert after == ["undisturbed"]


async def test_a_retire_of_a_running_episode_runs_its_clean_ups() -> None:
    """P64, P71."""
    server, done = EnvironmentServer(), list[str]()

    async def close() -> None:
        await asyncio.sleep(0)
        done.append("closed")

    async def work(run: EpisodeRun) -> None:
        run.clean_up(close)
        run.create_task(asyncio.sleep(1e6))
        await asyncio.sleep(1e6)

    task = server.run(work)
    await settle()
    await server.send("retire", "any", episodes=[R1])
    assert done == ["closed"]
    with pytest.raises(StaleAttemptError):
        await task
    with pytest.raises(StaleAttemptError):
        await server.run(counting)
    assert server.leftovers == {}


async def test_all_clean_ups_are_under_one_time_out(caplog: pytest.LogCaptureFixture) -> None:
    server, order = EnvironmentServer(), list[str]()

    async def hangs() -> None:
        order.append("hangs")
        await asyncio.sleep(1e6)

    async def never() -> None:
        order.append("never")

    async def work(run: EpisodeRun) -> str:
        run.clean_up(never)
        run.clean_up(hangs)
        return "result"

    task = server.run(work)
    await settle()
    await server.clock.advance(59)
    assert not task.done()
    await server.clock.advance(2)
    assert await task == "result"
    assert order == ["hangs"]
    assert "clean-ups have not ended within 60.0 s" in caplog.text


async def test_a_part_that_is_finishing_is_not_interrupted_by_a_retire() -> None:
    """P72."""
    server, go, done = EnvironmentServer(), asyncio.Event(), list[str]()

    async def work(run: EpisodeRun) -> None:
        with run.finishing():
            await go.wait()
            done.append("finished")

    task = server.run(work)
    await settle()
    retire = asyncio.create_task(server.send("retire", "any", episodes=[R1]))
    await settle()
    assert not retire.done()
    go.set()
    await retire
    await asyncio.gather(task, return_exceptions=True)
    assert done == ["finished"]
