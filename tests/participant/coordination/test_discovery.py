"""Who takes part; the failures are told in ``scenarios/coordination/discover.txt``."""

from __future__ import annotations

import pytest

from ckptfmt.identity import ParticipantId
from participant.coordination import Member, discover
from tests.support.fleets import ScriptedServers, in_time

pytestmark = pytest.mark.anyio


async def test_members_are_sorted_bystanders_kept_and_each_server_asked_once() -> None:
    servers = ScriptedServers()
    servers.bystanders = {"judge"}
    fleet = await discover(servers.control, ["t2", "judge", "m", "e", "a", "t1", "m"])
    assert fleet == servers.fleet
    assert len(servers.take_asked()) == 6
    assert fleet.bystanders == ("judge",)
    assert fleet.members[0] == Member("a", ParticipantId("agent", "a"))
    assert fleet.participants == tuple(sorted(servers.participants.values()))


async def test_checkpoints_that_a_dead_controller_left_open_are_told() -> None:
    servers = ScriptedServers()
    for server in ("e", "m"):
        servers.script["status", server] = "says checkpoint_id left-open"
    assert (await discover(servers.control, servers.participants)).open_ids == ("left-open",)


@pytest.mark.parametrize(("lost", "tries"), [(1, 2), (2, 3), (3, 3)])
async def test_no_more_than_three_tries_within_a_minute(lost: int, tries: int) -> None:
    """P112."""
    servers = ScriptedServers()
    servers.script["status", "a"] = f"lost {lost}"
    before = servers.clock.monotonic()
    work = discover(servers.control, servers.participants)
    if lost == 3:
        with pytest.raises(Exception, match="discover failed: a"):
            await in_time(servers.clock, work)
    else:
        await in_time(servers.clock, work)
    assert servers.take_asked().count(("status", "a")) == tries
    assert servers.clock.monotonic() - before <= 60


async def test_a_server_that_hangs_costs_a_minute_at_most() -> None:
    servers = ScriptedServers()
    servers.script["status", "a"] = "hangs"
    before = servers.clock.monotonic()
    with pytest.raises(Exception, match="no reply"):
        await in_time(servers.clock, discover(servers.control, servers.participants))
    assert servers.take_asked().count(("status", "a")) == 3
    assert servers.clock.monotonic() - before <= 60
