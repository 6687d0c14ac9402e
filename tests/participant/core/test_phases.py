"""Every phase with every command: what the table permits happens, anything else changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec
import pytest

from participant.core import events as ev
from participant.core.phases import TABLE, Move, Phase
from participant.testing.machine_world import MachineWorld, episodes_of

R1 = frozenset(episodes_of("r1"))


AGREED = """
           | idle      preparing prepared  committed restored
prepare    | preparing preparing prepared  -         -
commit     | -         -         committed committed -
renew      | -         preparing prepared  committed restored
retire     | idle      -         -         -         restored
restore    | restored  -         -         -         restored
resume     | idle      idle      idle      idle      idle
READY      | -         prepared  -         -         -
FAIL       | -         idle      -         -         -
EXPIRE     | -         idle      idle      idle      idle
"""


def test_the_table_is_the_one_that_was_agreed_on() -> None:
    head, *lines = [line.replace("|", " ").split() for line in AGREED.strip().splitlines()]
    agreed = {
        (Phase(start), Move[name.upper()]): Phase(end)
        for name, *ends in lines
        for start, end in zip(head, ends, strict=True)
        if end != "-"
    }
    assert agreed == TABLE


def idle(world: MachineWorld) -> None:
    """Nothing has happened."""


def preparing(world: MachineWorld) -> None:
    """A hook blocks, so prepare waits."""
    world.census.keys = ["r9"]
    world.call(world.request("prepare"))


def prepared(world: MachineWorld) -> None:
    world.call(world.request("prepare"))


def committed(world: MachineWorld) -> None:
    prepared(world)
    world.call(world.request("commit", episodes=None))
    world.step(ev.Exported(1, frozenset(), {}))
    world.step(ev.Written(1, msgspec.Raw(b"{}")))


def restored(world: MachineWorld) -> None:
    world.call(world.request("restore", episodes=R1))
    world.step(ev.Loaded(1, "source", R1))
    world.step(ev.Installed(1))


REACH: dict[Phase, Callable[[MachineWorld], None]] = {
    Phase.IDLE: idle,
    Phase.PREPARING: preparing,
    Phase.PREPARED: prepared,
    Phase.COMMITTED: committed,
    Phase.RESTORED: restored,
}
COMMANDS = ["prepare", "commit", "renew", "retire", "restore", "resume"]


def pairs(phases: Iterable[Phase], commands: Iterable[str]) -> list[tuple[Phase, str]]:
    """Every phase with every command."""
    return list(itertools.product(phases, commands))


EPISODES = {"commit": None, "restore": R1, "retire": R1}


def in_phase(phase: Phase) -> MachineWorld:
    """A world whose machine is in ``phase``, with checkpoint ``ck`` open unless idle."""
    world = MachineWorld()
    REACH[phase](world)
    assert world.machine.phase is phase
    return world


def carry_out(world: MachineWorld, command: str, number: int) -> None:
    """Send a command, and let whatever it starts end well."""
    jobs = 2 if world.machine.phase is Phase.COMMITTED else 1
    world.call(world.request(command, episodes=EPISODES.get(command, ())), number)
    if command == "commit":
        world.step(ev.Exported(jobs, frozenset(), {}))
        world.step(ev.Written(jobs, msgspec.Raw(b"{}")))
    elif command == "restore":
        world.step(ev.Loaded(jobs, "source", R1))
        world.step(ev.Installed(jobs))
    elif command == "retire":
        for episode in R1:
            world.step(ev.Stopped(episode))
            world.step(ev.Freed(episode))


@pytest.mark.parametrize(("phase", "command"), pairs(Phase, COMMANDS))
def test_a_command_leads_where_the_table_says_or_is_refused(phase: Phase, command: str) -> None:
    world = in_phase(phase)
    before = world.machine.status(world.now, world.now)
    closed = world.machine.is_closed
    carry_out(world, command, 99)
    if command == "prepare" and phase in (Phase.IDLE, Phase.PREPARING):
        # Ready follows in the same step where nothing blocks.
        expected = Phase.PREPARED if phase is Phase.IDLE else Phase.PREPARING
        assert world.machine.phase is expected
    elif (phase, Move(command)) in TABLE:
        assert world.machine.phase is TABLE[phase, Move(command)]
        assert 99 in world.replies
    else:
        assert world.refusals[99] == "invalid_phase"
        assert world.machine.status(world.now, world.now) == before
        assert world.machine.is_closed is closed


@pytest.mark.parametrize(("phase", "command"), pairs(list(Phase)[1:], COMMANDS))
def test_a_command_of_another_checkpoint_disturbs_nothing(phase: Phase, command: str) -> None:
    """P17; and retire in restored, P70."""
    world = in_phase(phase)
    before = world.machine.status(world.now, world.now)
    world.call(world.request(command, "other", episodes=EPISODES.get(command, ())), 99)
    assert world.refusals[99] == "checkpoint_conflict"
    assert world.machine.status(world.now, world.now) == before


@pytest.mark.parametrize(("phase", "command"), pairs(Phase, COMMANDS))
def test_a_spent_id_is_refused_before_anything_else_is_looked_at(
    phase: Phase, command: str
) -> None:
    """P51, and the order of refusals: stale comes before conflict, deadline and phase."""
    world = MachineWorld()
    world.call(world.request("resume", "spent"))
    REACH[phase](world)
    before = world.machine.status(world.now, world.now)
    request = world.request(command, "spent", within_s=-1, episodes=EPISODES.get(command, ()))
    world.call(request, 99)
    if command == "resume":
        assert world.replies[99].idempotent  # type: ignore[attr-defined]
    elif command == "retire":
        # Not bound to an id: a rollback may come after the lease has spent its restore's.
        in_idle = phase is Phase.IDLE
        assert world.refusals[99] == ("deadline_exceeded" if in_idle else "checkpoint_conflict")
    else:
        assert world.refusals[99] == "stale_checkpoint"
    assert world.machine.status(world.now, world.now) == before


@pytest.mark.parametrize(("phase", "command"), pairs(Phase, ["commit", "retire"]))
def test_a_deadline_in_the_past_comes_before_the_phase(phase: Phase, command: str) -> None:
    """P27."""
    world = in_phase(phase)
    before = world.machine.status(world.now, world.now)
    request = world.request(command, within_s=-1, episodes=EPISODES[command])
    world.call(request, 99)
    assert world.refusals[99] == "deadline_exceeded"
    assert world.machine.status(world.now, world.now) == before


@pytest.mark.parametrize("phase", Phase)
def test_a_prepare_past_its_deadline_changes_nothing_and_tells_the_phase(phase: Phase) -> None:
    """P27."""
    world = in_phase(phase)
    before = world.machine.status(world.now, world.now)
    world.call(world.request("prepare", within_s=0), 99)
    assert world.replies[99].phase is phase  # type: ignore[attr-defined]
    assert world.machine.status(world.now, world.now) == before


@pytest.mark.parametrize("phase", list(Phase)[1:])
def test_the_lease_frees_every_phase_that_has_one(phase: Phase) -> None:
    """P49: idle, admission open, the id spent, nothing left in any table but fences."""
    world = in_phase(phase)
    world.census.keys = []
    if phase is Phase.PREPARING:
        world.census.keys = ["r9"]
    world.wait(10_000)
    world.census.keys = []
    if phase is Phase.RESTORED:
        assert world.machine.is_closed
        world.step(ev.Released(2))
    assert world.machine.phase is Phase.IDLE
    assert not world.machine.is_closed
    world.call(world.request("commit", episodes=None), 99)
    assert world.refusals[99] == "stale_checkpoint"
    world.wait(100)
    assert {name: size for name, size in world.machine.table_sizes.items() if size} == {}


def test_idle_has_no_lease() -> None:
    world = MachineWorld()
    world.wait(1e6)
    assert world.machine.status(world.now, 0).lease_expires_at is None
    assert world.machine.wakeup() is None
