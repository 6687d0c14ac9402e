"""All or nothing; the orders are told in ``scenarios/coordination/restore.txt``."""

from __future__ import annotations

import asyncio

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.coordination import Source, restore
from participant.coordination.restoring import MIN_ROLL_BACK_S
from participant.errors import CoordinationError, CoordinationFatalError
from tests.support.fleets import ScriptedServers, in_time

pytestmark = pytest.mark.anyio

R1, R2 = EpisodeId("r1"), EpisodeId("r2", 1)


def source_of(servers: ScriptedServers) -> Source:
    """A checkpoint of these servers."""
    return Source("ck", "run/ck", servers.fleet.participants, (R1, R2))


async def test_everything_that_the_checkpoint_continues_unless_less_is_named() -> None:
    servers = ScriptedServers()
    source = source_of(servers)
    both = await restore(servers.control, servers.fleet, "re", source, 30.0)
    assert both == (EpisodeId("r1", 1), EpisodeId("r2", 2))
    one = await restore(servers.control, servers.fleet, "re", source, 30.0, [R2])
    assert one == (EpisodeId("r2", 2),)
    assert await restore(servers.control, servers.fleet, "re", source, 30.0, []) == ()


@pytest.mark.parametrize("extra", [True, False])
async def test_a_fleet_of_other_participants_is_refused_before_anybody_is_asked(
    extra: bool,
) -> None:
    servers = ScriptedServers()
    listed = set(servers.fleet.participants)
    other = ParticipantId("agent", "a")
    participants = listed - {other} if extra else listed | {ParticipantId("agent", "b")}
    source = Source("ck", "run/ck", tuple(sorted(participants)), (R1,))
    with pytest.raises(CoordinationFatalError, match=r"agent/a has no part|agent/b: it has a part"):
        await restore(servers.control, servers.fleet, "re", source, 30.0)
    assert servers.take_asked() == []


async def test_undoing_has_half_a_minute_however_little_time_is_left() -> None:
    servers = ScriptedServers()
    servers.script["restore", "a"] = "hangs"
    with pytest.raises(CoordinationError):
        await in_time(
            servers.clock, restore(servers.control, servers.fleet, "re", source_of(servers), 5.0)
        )
    waited = dict(zip(servers.take_asked(), servers.timeouts_s, strict=True))
    assert waited["restore", "e"] == 10.0
    assert {waited["retire", server] for server in "ema"} == {MIN_ROLL_BACK_S + 5.0}
    retired = [body["episode_ids"] for body in servers.bodies if "episode_ids" in body][5:]
    attempts = [{"rollout_id": "r1", "attempt": 1}, {"rollout_id": "r2", "attempt": 2}]
    assert retired == [attempts] * 5


async def test_the_original_error_is_raised_and_later_ones_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """P111."""
    servers = ScriptedServers()
    servers.script["restore", "t1"] = "refuses invalid_checkpoint_state"
    servers.script["retire", "e"] = "lost"
    servers.script["resume", "m"] = "refuses unauthorized"
    with pytest.raises(CoordinationFatalError, match=r"^restore failed: t1: invalid_checkpoint"):
        await restore(servers.control, servers.fleet, "re", source_of(servers), 5.0)
    assert "e: retire of e: the connection was lost" in caplog.text
    assert "m: unauthorized" in caplog.text
    asked = servers.take_asked()
    assert {server for command, server in asked if command == "resume"} == set(servers.participants)


async def test_a_failed_restore_of_nothing_retires_nothing_and_resumes() -> None:
    servers = ScriptedServers()
    servers.script["restore", "t1"] = "lost"
    with pytest.raises(CoordinationError):
        await restore(servers.control, servers.fleet, "re", source_of(servers), 5.0, [])
    assert [command for command, _ in servers.take_asked()] == ["restore"] * 5 + ["resume"] * 5


async def test_a_controller_that_is_cancelled_undoes_the_restore_first() -> None:
    servers = ScriptedServers()
    servers.script["restore", "t1"] = "hangs"
    work = restore(servers.control, servers.fleet, "re", source_of(servers), 30.0)
    task = asyncio.ensure_future(work)
    await servers.clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [c for c, _ in servers.take_asked()] == [
        command for command in ("restore", "retire", "resume") for _ in range(5)
    ]
