"""Threads that may hang: bounded, joined by key, and left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from participant.core.errors import CheckpointFailedError
from participant.runtime.bounded_io import BoundedIo
from tests.support.participants import until

pytestmark = pytest.mark.anyio


async def test_a_second_caller_joins_the_first_and_both_get_the_outcome() -> None:
    io, go, calls = BoundedIo(), threading.Event(), [0]

    def work() -> int:
        calls[0] += 1
        go.wait(30)
        return calls[0]

    first = asyncio.ensure_future(io.run("k", work))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(io.run("k", work))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert await second == 1
    assert await io.run("k", work) == 2
    assert len(io) == 0


async def test_an_error_reaches_its_callers_and_nobody_else() -> None:
    io = BoundedIo()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await io.run("k", fail)
    alone = asyncio.ensure_future(io.run("k", fail))
    await asyncio.sleep(0)
    alone.cancel()
    await until(lambda: len(io) == 0)


async def test_work_beyond_the_bound_is_refused_at_once() -> None:
    io, go = BoundedIo(max_threads=2), threading.Event()
    hung = [asyncio.ensure_future(io.run(n, lambda: go.wait(30))) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(CheckpointFailedError, match="all 2 storage threads"):
        await io.run("more", lambda: True)
    go.set()
    assert await asyncio.gather(*hung) == [True, True]
    assert await io.run("more", lambda: True)


def test_a_thread_that_outlives_the_loop_does_no_harm() -> None:
    go, ended = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(30)
        ended.set()

    async def main() -> None:
        task = asyncio.ensure_future(BoundedIo().run("k", work))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    go.set()
    assert ended.wait(30)
