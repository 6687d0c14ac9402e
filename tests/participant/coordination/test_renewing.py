"""Leases are renewed until the block ends, and a renewal that fails is told."""

from __future__ import annotations

import logging

import pytest

from participant.coordination import Lease, renewing
from participant.errors import CoordinationRetryError
from tests.support.fleets import ScriptedServers

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("grace_s", "interval_s"), [(600.0, 10.0), (12.0, 4.0), (30.0, 10.0)])
async def test_every_third_of_the_grace_and_every_ten_seconds_at_the_longest(
    grace_s: float, interval_s: float
) -> None:
    servers = ScriptedServers()
    async with renewing(servers.control, servers.fleet, "ck", grace_s) as lease:
        await servers.clock.advance(4 * interval_s)
        lease.check()
    times = sorted({at - servers.asked_at[0] for at in servers.asked_at})
    assert times == [n * interval_s for n in range(5)]
    await servers.clock.advance(100)
    assert len(servers.take_asked()) == 5 * 5


async def test_a_renewal_that_fails_is_told_logged_and_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P52."""
    servers = ScriptedServers()
    async with renewing(servers.control, servers.fleet, "ck", 600.0) as lease:
        await servers.clock.advance(15)
        lease.check()
        servers.script["renew", "t1"] = "refuses stale_checkpoint"
        servers.take_asked()
        await servers.clock.advance(60)
        assert len(servers.take_asked()) == 5
        with pytest.raises(CoordinationRetryError, match="renew failed: t1: stale_checkpoint"):
            lease.check()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "ck are not held" in caplog.text


async def test_the_error_of_the_block_ends_the_renewals() -> None:
    servers = ScriptedServers()
    leases: list[Lease] = []

    async def block() -> None:
        async with renewing(servers.control, servers.fleet, "ck", 600.0) as lease:
            leases.append(lease)
            await servers.clock.advance(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert leases[0].lost.cancelled()
