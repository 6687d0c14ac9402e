"""Joint rules of the machine that a story would not show: amounts, order, precedence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ckptfmt.identity import EpisodeId
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.messages import PrepareReply
from participant.core.phases import Phase
from participant.core.state import REMEMBERED_IDS, Limits
from participant.testing.machine_world import MachineWorld, episodes_of


def kinds(effects: list[ef.Effect]) -> list[type[ef.Effect]]:
    """The sorts of effects, in order."""
    return [type(effect) for effect in effects if not isinstance(effect, ef.Note)]


def test_5000_blockers_are_counted_and_100_listed() -> None:
    """P20."""
    world = MachineWorld()
    for number in range(5000):
        world.step(ev.Enter(world.number(), EpisodeId(f"r{number:04}")))
    world.call(world.request("prepare", within_s=10), 9999)
    world.wait(10)
    reply = world.replies[9999]
    assert isinstance(reply, PrepareReply)
    assert reply.report.blocker_count == 5000
    assert reply.report.blockers == tuple(f"r{number:04}" for number in range(100))
    assert len(msgspec.json.encode(reply)) < 4000


def test_blockers_are_listed_at_most_twice_for_twenty_wake_ups() -> None:
    """P21."""
    world = MachineWorld()
    for number in range(50):
        world.step(ev.Enter(number, EpisodeId(f"r{number}")))
    world.call(world.request("prepare", within_s=10), 9999)
    for _ in range(10):
        world.step(ev.Notify())
    world.wait(10)
    assert world.replies[9999].phase is Phase.PREPARING  # type: ignore[attr-defined]
    assert world.census.asked >= 20
    assert world.census.listings <= 2


class Unscanned(dict[Any, Any]):
    """A table that may be looked up, and not gone through."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("readiness scans a table")

    items = values = keys = __iter__  # type: ignore[assignment]


def test_readiness_costs_no_scan_of_ten_thousand_executions() -> None:
    """P21, P26."""
    world = MachineWorld()
    for number in range(10_000):
        world.step(ev.Enter(number, EpisodeId(f"r{number}")))
    world.call(world.request("prepare"), 99_999)
    state = world.machine._state
    state.gate._calls = Unscanned(state.gate._calls)
    state.blockers._reasons = Unscanned(state.blockers._reasons)
    for number in range(9_999):
        world.step(ev.Boundary(number))
        world.step(ev.Notify())
    assert world.replies == {}
    world.step(ev.Boundary(9_999))
    assert world.replies[99_999].report.counts["parked"] == 10_000  # type: ignore[attr-defined]


def test_readiness_is_polled_every_second_though_nobody_notifies() -> None:
    world = MachineWorld()
    world.census.keys = ["r"]
    world.call(world.request("prepare", within_s=30), 1)
    world.census.keys = []
    assert world.machine.wakeup() == 1.0
    world.wait(1.0)
    assert world.replies[1].phase is Phase.PREPARED  # type: ignore[attr-defined]


def test_the_last_64_resumed_ids_are_remembered() -> None:
    """P51: the 65th resume forgets the first."""
    world = MachineWorld()
    for number in range(REMEMBERED_IDS + 1):
        world.call(world.request("resume", f"ck{number}"))
    world.call(world.request("prepare", "ck1"), 901)
    world.call(world.request("prepare", f"ck{REMEMBERED_IDS}"), 902)
    assert (world.refusals[901], world.refusals[902]) == ("stale_checkpoint",) * 2
    world.call(world.request("prepare", "ck0"), 903)
    assert 903 in world.replies


def test_100000_cycles_of_register_and_retire_leave_only_unexpired_fences() -> None:
    """P66, P74."""
    world = MachineWorld(Limits(retire_fence_s=60.0))
    for number in range(100_000):
        episode = EpisodeId(f"r{number}")
        world.step(ev.Enter(number, episode))
        world.call(world.request("retire", "any", episodes=[episode]), number)
        world.step(ev.Stopped(episode))
        world.step(ev.Leave(number))
        world.step(ev.Freed(episode))
        world.now += 0.1
    sizes = world.machine.table_sizes
    assert sizes.pop("fences") == 600
    assert set(sizes.values()) == {0}
    world.wait(60)
    assert set(world.machine.table_sizes.values()) == {0}


def test_admission_is_closed_before_anything_is_exported_and_opened_before_the_reply() -> None:
    world = MachineWorld()
    assert kinds(world.call(world.request("prepare"))) == [ef.CloseAdmission, ef.Answer]
    assert kinds(world.call(world.request("commit", episodes=None))) == [ef.Export]
    assert kinds(world.step(ev.Exported(1, frozenset(), {}))) == [ef.Write]
    assert kinds(world.call(world.request("resume"))) == [ef.Refuse, ef.Abandon]
    end = world.step(ev.Abandoned(1, clear=True))
    assert kinds(end) == [ef.Forget, ef.OpenAdmission, ef.Answer]


def test_a_write_is_called_off_before_admission_opens_also_when_nobody_waits() -> None:
    """The lease ran out: no resume waits, so both stand in one step, in this order."""
    world = MachineWorld()
    world.call(world.request("prepare"))
    world.call(world.request("commit", episodes=None))
    world.step(ev.Exported(1, frozenset(), {}))
    effects = kinds(world.wait(1000))
    assert effects.index(ef.Abandon) < effects.index(ef.OpenAdmission)


def test_a_step_after_the_lease_does_nothing_for_the_checkpoint_though_no_tick_came() -> None:
    """A timer that is late lets nothing in."""
    world = MachineWorld()
    world.call(world.request("prepare", within_s=1))
    world.now += 601
    world.call(world.request("commit", episodes=None), 77)
    assert world.refusals[77] == "stale_checkpoint"


def test_the_wall_clock_steps_and_neither_deadline_nor_lease_notices() -> None:
    """P28."""
    world = MachineWorld()
    world.census.keys = ["r"]
    world.call(world.request("prepare", within_s=30), 1)
    world.wall_offset_s += 3600
    world.wait(29)
    assert world.machine.phase is Phase.PREPARING
    assert 1 not in world.replies
    told = world.machine.status(world.now, world.now + world.wall_offset_s).lease_expires_at
    assert told == pytest.approx(world.now + world.wall_offset_s + 601)
    world.wall_offset_s -= 7200
    world.wait(1)
    assert 1 in world.replies


def test_a_commit_names_what_keeps_it_from_being_ready() -> None:
    """P22: nothing is exported."""
    world = MachineWorld()
    world.call(world.request("prepare"))
    world.census.keys = ["r7"]
    effects = world.call(world.request("commit", episodes=None), 5)
    refusal = effects[-1]
    assert isinstance(refusal, ef.Refuse)
    assert "r7" in refusal.error.detail
    assert kinds(effects) == [ef.Refuse]


def test_where_a_scope_is_needed_a_commit_without_one_begins_nothing() -> None:
    """P48: the same id may be committed with one, and refused without one in every phase."""
    world = MachineWorld()
    world.census.wants_scope = True
    world.call(world.request("prepare"))
    effects = world.call(world.request("commit", episodes=None), 5)
    assert (kinds(effects), world.refusals[5]) == ([ef.Refuse], "invalid_request")
    assert kinds(world.call(world.request("commit"), 6)) == [ef.Export]
    world.call(world.request("commit", episodes=None), 7)
    assert world.refusals[7] == "invalid_request"
    world.call(world.request("resume"))
    world.call(world.request("commit", episodes=None), 8)
    world.call(world.request("commit"), 9)
    assert (world.refusals[8], world.refusals[9]) == ("invalid_request", "stale_checkpoint")


def test_the_records_of_an_attempt_that_is_being_retired_are_not_stored() -> None:
    """P47: an export that returns what was retired fails."""
    world = MachineWorld()
    (episode,) = episodes_of("r1")
    world.call(world.request("retire", "any", episodes=[episode]))
    world.step(ev.Stopped(episode))
    world.step(ev.Freed(episode))
    world.call(world.request("prepare"))
    world.call(world.request("commit", episodes=None), 5)
    world.step(ev.Exported(1, frozenset({episode}), {}))
    assert world.refusals[5] == "invalid_checkpoint_state"


def test_a_restore_lifts_the_fence_of_what_it_installs() -> None:
    world = MachineWorld()
    (attempt,) = episodes_of("r1-a1")
    world.call(world.request("retire", "any", episodes=[attempt]))
    world.step(ev.Stopped(attempt))
    world.step(ev.Freed(attempt))
    assert world.machine.table_sizes["fences"] == 1
    world.call(world.request("restore", episodes=episodes_of("r1")))
    world.step(ev.Loaded(1, "source", frozenset(episodes_of("r1"))))
    world.step(ev.Installed(1))
    assert ef.Wait(9) in world.step(ev.Enter(9, attempt))


def test_overlapping_retires_cancel_once_and_each_batch_answers_as_a_whole() -> None:
    world = MachineWorld()
    r1, r2, r3 = episodes_of("r1,r2,r3")
    world.step(ev.Enter(1, r1))
    first = world.call(world.request("retire", "any", episodes=[r1, r2]), 10)
    second = world.call(world.request("retire", "any", episodes=[r2, r1, r3]), 11)
    assert kinds(first + second).count(ef.Cancel) == 1
    assert kinds(first + second).count(ef.Stop) == 3
    for episode in (r1, r2, r3):
        world.step(ev.Stopped(episode))
    world.step(ev.Leave(1))
    world.step(ev.Freed(r1))
    assert world.replies == {}
    world.step(ev.Freed(r2))
    assert list(world.replies) == [10]
    world.step(ev.Enter(2, r1))
    world.step(ev.Freed(r3))
    assert list(world.replies) == [10, 11]
    assert world.machine.table_sizes["retiring"] == 0


def test_a_command_whose_caller_hung_up_is_answered_to_nobody() -> None:
    world = MachineWorld()
    world.census.keys = ["r"]
    world.call(world.request("prepare", within_s=5), 1)
    world.step(ev.HangUp(1))
    world.wait(20)
    assert world.replies == {}
    assert world.machine.table_sizes["commands"] == 0
    assert world.machine.phase is Phase.PREPARING


def test_late_ends_of_jobs_that_were_given_up_change_nothing() -> None:
    world = MachineWorld()
    world.call(world.request("prepare"))
    world.call(world.request("commit", episodes=None))
    world.call(world.request("resume"))
    status = world.machine.status(0, 0)
    error = ev.Failed(1, world_error())
    for event in (
        ev.Exported(1, frozenset(), {}), ev.Written(1, msgspec.Raw(b"{}")), error,
        ev.Loaded(1, "x", frozenset()), ev.Installed(1), ev.Released(1), ev.Settled(1),
        ev.Abandoned(1, clear=True), ev.Closed(),
        ev.Stopped(EpisodeId("r")), ev.Freed(EpisodeId("r")),
        ev.RetireFailed(EpisodeId("r"), world_error()), ev.Leave(4), ev.Retry(4),
    ):  # fmt: skip
        assert kinds(world.step(event)) == []
    assert world.machine.status(0, 0) == status


def world_error() -> ef.ParticipantError:
    """Some error."""
    return ef.ParticipantError("x")
