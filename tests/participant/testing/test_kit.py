"""The kit for those who test with participants: clock, cluster, scenarios."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from participant.clock import SystemClock
from participant.testing.clock import FakeClock, settle
from participant.testing.cluster import Delivery, MemoryCluster
from participant.testing.scenario import run_scenario
from participant.transport import TransportError

pytestmark = pytest.mark.anyio


async def test_the_clock_wakes_sleepers_in_order_and_only_when_it_is_told() -> None:
    clock = FakeClock(monotonic=0.0, wall=100.0)
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, when: float) -> None:
        await clock.sleep_until(when)
        woken.append((name, clock.monotonic()))

    tasks = [asyncio.ensure_future(sleep(n, t)) for n, t in (("b", 7.0), ("a", 5.0), ("c", 9.0))]
    tasks[2].cancel()
    await settle()
    await clock.advance(8.0)
    assert woken == [("a", 5.0), ("b", 7.0)]
    clock.step_wall(-50.0)
    assert (clock.monotonic(), clock.wall()) == (8.0, 58.0)


async def test_the_system_clock_sleeps_until_its_moment() -> None:
    clock = SystemClock()
    when = clock.monotonic() + 0.01
    await clock.sleep_until(when)
    assert clock.monotonic() >= when
    assert clock.wall() > 1.6e9


class Echo:
    """An app that counts its calls and says how many there were."""

    calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve anything."""
        self.calls += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"path":"%s"}' % scope["raw_path"]})


async def test_the_cluster_loses_doubles_and_delays_as_it_is_told() -> None:
    clock, echo = FakeClock(), Echo()
    cluster = MemoryCluster(clock, "token")
    cluster.add("s", echo)
    reply = await cluster.call("s", "status", None, 5.0)
    assert (reply.status, reply.members) == (200, {"path": "/ng-control/v1/checkpoint/status"})
    cluster.deliver = lambda server, command: Delivery(copies=2, loses_reply=True)
    with pytest.raises(TransportError, match="lost"):
        await cluster.call("s", "status", None, 5.0)
    assert echo.calls == 3
    cluster.deliver = lambda server, command: Delivery(delay_s=10.0)
    late = asyncio.ensure_future(cluster.call("s", "status", {}, 5.0))
    await clock.advance(6.0)
    with pytest.raises(TransportError, match=r"no reply within 5\.0 s"):
        await late
    assert echo.calls == 3
    await clock.advance(5.0)
    assert echo.calls == 4
    cluster.remove("s")
    cluster.deliver = lambda server, command: Delivery()
    with pytest.raises(TransportError, match="nobody listens"):
        await cluster.call("s", "status", None, 5.0)


def test_a_scenario_is_played_back_with_what_came_of_it() -> None:
    told = "# Why.\nenter r1\nprepare ck within=5\n----\nwrong\n\nleave t1\n----\n"
    assert run_scenario(told) == (
        "# Why.\nenter r1\nprepare ck within=5\n----\nt1 runs\nclose ck\n\n"
        "leave t1\n----\nc1 prepared: 0 block\n"
    )


def test_an_unknown_command_of_a_scenario_is_an_error() -> None:
    with pytest.raises(KeyError):
        run_scenario("dance\n----\n")
