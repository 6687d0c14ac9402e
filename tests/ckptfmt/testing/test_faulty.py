"""The faulty store does what its plan says, the same each time, and says that it did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ckptfmt.errors import (
    CkptError,
    CommitUnknownError,
    ExistsError,
    MissingError,
    StorageFailedError,
    TransientError,
)
from ckptfmt.store import LocalStore, MemoryStore, Store
from ckptfmt.testing.faulty import (
    OPERATIONS,
    Crash,
    Delay,
    Fail,
    Fault,
    FaultyStore,
    LandLate,
    LoseReply,
    Plan,
    Rule,
    SimulatedCrash,
    Tear,
)


def faulty(*rules: Rule) -> tuple[FaultyStore, MemoryStore]:
    inner = MemoryStore()
    return FaultyStore(inner, Plan(rules)), inner


def names(store: Store) -> list[str]:
    return [entry.name for entry in store.entries()]


def test_a_failure_before_the_operation_leaves_it_undone() -> None:
    store, inner = faulty(Rule("create", 2, Fail(StorageFailedError)))
    store.create("a", b"1")
    with pytest.raises(StorageFailedError, match="create number 2 was not carried out"):
        store.create("b", b"2")
    assert names(inner) == ["a"]
    store.create("b", b"2")


def test_a_lost_reply_to_a_creation_is_unknown_and_it_took_place() -> None:
    """S18."""
    store, inner = faulty(Rule("create", 1, LoseReply()))
    with pytest.raises(CommitUnknownError, match="got no reply"):
        store.create("a", b"1")
    assert inner.read_small("a", 1) == b"1"
    with pytest.raises(ExistsError):
        store.create("a", b"1")


def test_a_lost_reply_to_a_refused_creation_is_unknown_too() -> None:
    store, inner = faulty(Rule("create", 1, LoseReply()))
    inner.create("a", b"theirs")
    with pytest.raises(CommitUnknownError):
        store.create("a", b"ours")
    assert inner.read_small("a", 6) == b"theirs"


def test_a_lost_reply_to_anything_else_is_transient() -> None:
    store, inner = faulty(Rule("delete", 1, LoseReply()), Rule("read_small", 1, LoseReply()))
    inner.create("a", b"1")
    with pytest.raises(TransientError):
        store.read_small("a", 1)
    with pytest.raises(TransientError):
        store.delete("a")
    with pytest.raises(MissingError):
        store.delete("a")


def test_a_creation_lands_late_unless_a_tombstone_is_first() -> None:
    store, inner = faulty(Rule("create", 1, LandLate(2)), Rule("create", 2, LandLate(99)))
    with pytest.raises(CommitUnknownError):
        store.create("a", b"late")
    assert store.entries() == []
    assert names(store) == ["a"]
    with pytest.raises(CommitUnknownError):
        store.create("b", b"late")
    inner.create("b", b"tomb")
    store.land()
    assert (inner.read_small("a", 4), inner.read_small("b", 4)) == (b"late", b"tomb")


def test_a_delay_waits_and_changes_nothing() -> None:
    slept: list[float] = []
    plan = Plan((Rule("create", 1, Delay(2.5)),))
    store = FaultyStore(MemoryStore(), plan, sleep=slept.append)
    store.create("a", b"1")
    assert (slept, store.read_small("a", 1)) == ([2.5], b"1")


@pytest.mark.parametrize(("after", "left"), [(False, []), (True, ["a"])])
def test_a_crash_ends_everything(after: bool, left: list[str]) -> None:
    store, inner = faulty(Rule("create", 1, Crash(after=after)))
    with pytest.raises(SimulatedCrash):
        store.create("a", b"1")
    assert store.crashed
    for act in (store.entries, store.capabilities, lambda: store.size("a")):
        with pytest.raises(SimulatedCrash):
            act()
    assert names(inner) == left


def test_a_torn_creation_leaves_its_first_bytes() -> None:
    """S12: a zero-byte manifest."""
    for keep_bytes in (0, 2):
        store, inner = faulty(Rule("create", 1, Tear(keep_bytes)))
        with pytest.raises(SimulatedCrash):
            store.create("a", b"1234")
        assert inner.read_small("a", 4) == b"1234"[:keep_bytes]


def write(store: Store) -> None:
    with store.open_data("a") as writer:
        writer.write(b"12")
        writer.write(b"34")
        writer.finish()


def test_a_dead_writer_cleans_nothing_up(tmp_path: str) -> None:
    inner = LocalStore(tmp_path)
    with pytest.raises(SimulatedCrash):
        write(FaultyStore(inner, Plan((Rule("write", 2, Tear(1)),))))
    assert inner.read_small("a", 4) == b"123"


@pytest.mark.parametrize("operation", ["write", "finish"])
def test_a_data_object_whose_writing_failed_is_gone(operation: str) -> None:
    """S22."""
    store, inner = faulty(Rule(operation, 1, Fail()))
    with pytest.raises(TransientError):
        write(store)
    assert names(inner) == []
    write(store)


def test_reads_of_an_open_source_fail_by_plan() -> None:
    store, inner = faulty(Rule("read_at", 2, Fail()))
    inner.create("a", b"12")
    with store.open_source("a") as source:
        assert source.read_at(0, 1) == b"1"
        with pytest.raises(TransientError):
            source.read_at(1, 1)
        assert source.read_at(1, 1) == b"2"


def play(seed: int) -> list[str]:
    """What a fixed sequence of calls meets under a drawn plan."""
    faults: tuple[Fault, ...] = (Fail(), LoseReply(), LandLate(1), Crash(), Tear(1))
    store = FaultyStore(MemoryStore(), Plan.drawn(seed, faults, rules=12, calls=3))
    met: list[str] = []
    calls: list[Callable[[], object]] = [
        lambda: store.create(f"n{len(met)}", b"12"),
        lambda: names(store),
        lambda: write(store),
        lambda: store.read_small("a", 4),
        lambda: store.delete("a"),
    ]
    for act in calls * 3:
        try:
            met.append(repr(act()))
        except (CkptError, SimulatedCrash) as error:
            met.append(str(error))
    return met


def test_one_seed_is_one_run_and_every_planned_error_names_it() -> None:
    runs = {seed: play(seed) for seed in range(20)}
    assert runs == {seed: play(seed) for seed in range(20)}
    assert len({tuple(run) for run in runs.values()}) > 10
    planned = [line for run in runs.values() for line in run if "planned fault" in line]
    assert planned
    assert all(" of seed " in line for line in planned)


def test_a_plan_shows_its_seed_and_rules() -> None:
    plan = Plan.drawn(7, (Fail(),), rules=2, calls=5)
    text = repr(FaultyStore(MemoryStore(), plan))
    assert "seed=7" in text
    assert text.count("Rule(") == 2
    assert {rule.operation for rule in plan.rules} <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("operation", "nth", "fault"),
    [("rename", 1, Fail()), ("create", 0, Fail()), ("size", 1, Tear(1)), ("write", 1, LandLate(1))],
)
def test_a_rule_that_can_never_apply_is_refused(operation: str, nth: int, fault: Fault) -> None:
    with pytest.raises(ValueError, match="cannot strike"):
        Rule(operation, nth, fault)
