"""Admission counts without scans, and lists no more than asked for."""

from __future__ import annotations

import pytest

from ckptfmt.identity import EpisodeId
from participant.core.errors import AdmissionClosedError
from participant.core.gate import Blockers, Gate, GateCounts
from participant.core.steps import StepMode


def test_one_episode_blocks_once_whatever_the_number_of_its_calls() -> None:
    blockers = Blockers()
    gate = Gate(10, blockers)
    for ticket in range(3):
        gate.enter(ticket, EpisodeId("r"), None)
    assert len(blockers) == 1
    for ticket in range(3):
        gate.leave(ticket)
    assert len(blockers) == 0


def test_no_more_than_max_waiting_wait() -> None:
    gate = Gate(2, Blockers())
    gate.closed = True
    assert not gate.enter(1, EpisodeId("r1"), None)
    assert not gate.enter(2, EpisodeId("r2"), None)
    with pytest.raises(AdmissionClosedError, match="2 calls wait"):
        gate.enter(3, EpisodeId("r3"), None)
    assert gate.enter(4, None, None)
    gate.leave(1)
    assert not gate.enter(5, EpisodeId("r3"), None)


def test_a_gate_that_everything_has_left_holds_nothing() -> None:
    blockers = Blockers()
    gate = Gate(10, blockers)
    gate.enter(1, EpisodeId("r1"), "k1")
    gate.enter(2, EpisodeId("r2"), None)
    gate.enter(3, None, None)
    gate.step_begins(1, StepMode.REPLAY)
    gate.closed = True
    gate.step_ends(1)
    gate.boundary(2)
    gate.enter(4, EpisodeId("r4"), "k4")
    assert gate.counts == GateCounts(executions=2, parked=1, untagged=1, waiting=1)
    for ticket in (1, 2, 3, 4):
        gate.leave(ticket)
    assert gate.leave(4) is None
    assert gate.counts == GateCounts(0, 0, 0, 0)
    assert (len(gate), len(blockers), gate.latest_attempt("r1")) == (0, 0, None)
    assert gate.open() == ()


def test_blockers_are_listed_in_order_and_at_most_a_hundred() -> None:
    """P20."""
    blockers = Blockers()
    for number in range(5000):
        blockers.add(EpisodeId(f"r{number:04}"))
    listed = blockers.listed(["a-label", "r0000"])
    assert len(blockers) == 5000
    assert listed == ("a-label", *(f"r{number:04}" for number in range(99)))


def test_an_exempt_execution_blocks_again_once_the_gate_has_opened() -> None:
    """P76: exempt from one checkpoint, not from the next."""
    blockers = Blockers()
    gate = Gate(10, blockers)
    gate.enter(1, EpisodeId("r"), None)
    gate.step_begins(1, StepMode.REPLAY)
    gate.closed = True
    gate.step_ends(1)
    assert len(blockers) == 0
    gate.open()
    assert len(blockers) == 1


def test_a_replay_step_that_ends_while_admission_is_open_is_no_exemption() -> None:
    blockers = Blockers()
    gate = Gate(10, blockers)
    gate.enter(1, EpisodeId("r"), None)
    gate.step_begins(1, StepMode.REPLAY)
    gate.step_ends(1)
    gate.closed = True
    assert len(blockers) == 1


def test_a_call_of_no_episode_is_never_parked_nor_exempt() -> None:
    """P91: whoever waits for it may be what a prepare waits for."""
    blockers = Blockers()
    gate = Gate(10, blockers)
    gate.enter(1, None, None)
    gate.step_begins(1, StepMode.REPLAY)
    gate.closed = True
    gate.step_ends(1)
    assert not gate.boundary(1)
    assert gate.counts == GateCounts(executions=0, parked=0, untagged=1, waiting=0)
    gate.leave(1)
    assert gate.open() == ()
