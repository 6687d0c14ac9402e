"""Admission, boundaries and steps of real tasks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from ckptfmt.identity import EpisodeId
from participant.core.errors import (
    AdmissionClosedError,
    CheckpointParkedError,
    StaleAttemptError,
)
from participant.core.messages import Reply
from participant.core.phases import Phase
from participant.core.steps import StepMode
from participant.runtime.execution import Execution
from participant.testing.clock import settle
from tests.support.participants import R1, ServerWorld, enter

pytestmark = pytest.mark.anyio


async def test_a_call_that_arrives_while_closed_runs_exactly_once_after_resume() -> None:
    """P29."""
    world = ServerWorld()
    runs = 0

    async def call() -> None:
        nonlocal runs
        async with world.participant.admission.enter(R1):
            runs += 1

    await world.send("prepare")
    task = asyncio.create_task(call())
    await settle()
    assert (runs, world.participant.status().report.counts["waiting"]) == (0, 1)
    await world.send("resume")
    await task
    assert runs == 1
    assert world.leftovers == {}


async def test_a_checkpoint_that_closes_before_a_woken_call_has_run_keeps_it_waiting() -> None:
    """P24 the other way round: what waits for one checkpoint does not slip into the next."""
    world = ServerWorld()
    entered = asyncio.Event()

    async def call() -> None:
        async with world.participant.admission.enter(R1):
            entered.set()

    await world.send("prepare", "a")
    task = asyncio.create_task(call())
    await settle()
    # Both are sent before the call's task has had a turn.
    both = asyncio.gather(world.send("resume", "a"), world.send("prepare", "b"))
    await both
    await settle()
    assert world.participant.status().phase is Phase.PREPARED
    assert not entered.is_set()
    await world.send("resume", "b")
    await task


async def test_the_same_work_twice_is_parked_once() -> None:
    """P33."""
    world = ServerWorld()
    async with world.participant.admission.enter(R1, "run of r1"):
        with pytest.raises(CheckpointParkedError):
            async with world.participant.admission.enter(R1, "run of r1"):
                pytest.fail("it ran twice")
    async with world.participant.admission.enter(R1, "run of r1"):
        pass
    assert world.leftovers == {}


async def test_an_untagged_call_passes_while_closed() -> None:
    """P6, P91."""
    world = ServerWorld()
    await world.send("prepare")
    async with world.participant.admission.enter(None):
        report = world.participant.status().report
        assert (report.ready, report.counts["untagged"]) == (True, 1)


async def test_an_execution_parks_at_its_next_boundary_and_goes_on_after_resume() -> None:
    """P24, P77."""
    world = ServerWorld()
    steps: list[int] = []
    go = asyncio.Semaphore(0)

    async def work() -> None:
        async with world.participant.admission.enter(R1) as execution:
            for number in range(3):
                async with execution.step():
                    await go.acquire()
                    steps.append(number)
                await execution.boundary(number)

    task = asyncio.create_task(work())
    await settle()
    prepare = world.begin("prepare")
    await settle()
    assert not prepare.done()
    go.release()
    assert (await prepare).report.counts["parked"] == 1  # type: ignore[attr-defined]
    go.release()
    go.release()
    await settle()
    assert steps == [0]
    await world.send("resume")
    await task
    assert steps == [0, 1, 2]


async def test_a_replay_step_in_flight_does_not_hold_prepare_up() -> None:
    """P75, P76: the boundary before it is what is exported."""
    world = ServerWorld()
    go = asyncio.Event()
    seen: list[Execution] = []

    async def work() -> None:
        async with world.participant.admission.enter(R1) as execution:
            seen.append(execution)
            await execution.boundary("before")
            async with execution.step(StepMode.REPLAY):
                await go.wait()
            await execution.boundary("after")

    task = asyncio.create_task(work())
    await settle()
    await world.send("prepare")
    assert seen[0].boundary_state == "before"
    go.set()
    await settle()
    assert world.participant.status().report.ready
    assert not task.done()
    await world.send("resume")
    await task


async def test_parked_time_does_not_count_against_the_time_limit() -> None:
    """P78: ten minutes parked, none lost."""
    world = ServerWorld(lease_grace_seconds=5000)
    reached = asyncio.Event()

    async def work() -> None:
        async with world.participant.admission.enter(R1) as execution, execution.time_limit(100):
            await world.clock.sleep_until(world.clock.monotonic() + 60)
            await execution.boundary(None)
            reached.set()
            await world.clock.sleep_until(world.clock.monotonic() + 60)

    task = asyncio.create_task(work())
    await settle()
    prepare = world.begin("prepare", within_s=100)
    await world.clock.advance(60)
    await prepare
    await world.clock.advance(600)
    await world.send("resume")
    await settle()
    assert reached.is_set()
    await world.clock.advance(39)
    assert not task.done()
    await world.clock.advance(2)
    with pytest.raises(TimeoutError, match="longer than 100 s"):
        await task
    assert world.leftovers == {}


async def test_time_in_a_replay_step_does_not_count_while_a_checkpoint_is_open() -> None:
    world = ServerWorld(lease_grace_seconds=5000)

    async def work() -> None:
        async with (
            world.participant.admission.enter(R1) as execution,
            execution.time_limit(100),
            execution.step(StepMode.REPLAY),
        ):
            await world.clock.sleep_until(world.clock.monotonic() + 10_000)

    task = asyncio.create_task(work())
    await world.clock.advance(50)
    await world.send("prepare")
    await world.clock.advance(600)
    await world.send("resume")
    await world.clock.advance(49)
    assert not task.done()
    await world.clock.advance(1)
    with pytest.raises(TimeoutError):
        await task


async def test_a_retire_ends_the_inner_tasks_before_it_replies_and_cancels_once() -> None:
    """P64, P71: no old loop writes into its successor."""
    world = ServerWorld()
    cancels: list[str] = []
    ended = asyncio.Event()
    let_go = asyncio.Event()

    async def inner() -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            cancels.append("inner")
            await let_go.wait()
            ended.set()
            raise

    async def work() -> None:
        async with world.participant.admission.enter(R1) as execution:
            execution.create_task(inner())
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                cancels.append("outer")
                raise

    task = asyncio.create_task(work())
    await settle()
    first = world.begin("retire", "any", 10.0, [R1])
    await world.clock.advance(11)
    with pytest.raises(Exception, match="r1"):
        await first
    again = world.begin("retire", "any", 10.0, [R1])
    await settle()
    assert not again.done()
    with pytest.raises(StaleAttemptError):
        async with world.participant.admission.enter(R1):
            pytest.fail("a retired attempt runs")
    let_go.set()
    await again
    assert ended.is_set()
    assert sorted(cancels) == ["inner", "outer"]
    with pytest.raises(StaleAttemptError, match="retired while it ran"):
        await task
    assert world.leftovers == {}


async def test_a_retire_waits_for_the_final_clean_up_and_does_not_interrupt_it() -> None:
    """P72, P83."""
    world = ServerWorld()
    let_go = asyncio.Event()
    clean_ups = 0

    async def work() -> None:
        nonlocal clean_ups
        async with world.participant.admission.enter(R1) as execution:
            with execution.finishing():
                await let_go.wait()
                clean_ups += 1

    task = asyncio.create_task(work())
    await settle()
    retire = world.begin("retire", "any", episodes=[R1])
    await settle()
    assert not retire.done()
    let_go.set()
    await retire
    await asyncio.gather(task, return_exceptions=True)
    assert clean_ups == 1


async def test_a_call_that_waits_in_restored_is_woken_and_refused_when_it_is_retired() -> None:
    """P31."""
    world = ServerWorld()
    world.hooks[R1] = 7
    await world.send("prepare")
    await world.send("commit")
    fresh = ServerWorld(storage=world.storage)
    await fresh.send("restore", "x", episodes=[R1])
    call = asyncio.ensure_future(enter(fresh, R1.continuation))
    await settle()
    assert fresh.hooks[R1.continuation] == 7
    await fresh.send("retire", "x", episodes=[R1.continuation])
    with pytest.raises(StaleAttemptError):
        await call
    assert len(fresh.hooks) == 0
    await fresh.send("resume", "x")
    await settle()
    assert fresh.leftovers == {}


def impatient() -> Callable[[], None]:
    """A check that ends a call which asks again and again, instead of the test hanging."""
    asked = itertools.count()

    def check() -> None:
        assert next(asked) < 10, "the call spins"

    return check


async def test_a_call_that_was_woken_and_is_retired_before_it_has_run_is_turned_away() -> None:
    """P31, the race with resume: both commands come before the call's task has had a turn."""
    world = ServerWorld()

    async def call() -> None:
        async with world.participant.admission.enter(R1, check=impatient()):
            pytest.fail("a retired attempt runs")

    await world.send("prepare")
    task = asyncio.create_task(call())
    await settle()
    await asyncio.gather(world.send("resume"), world.send("retire", "any", episodes=[R1]))
    with pytest.raises(StaleAttemptError):
        await task
    assert world.leftovers == {}


async def test_a_call_whose_client_goes_in_the_moment_of_the_resume_ends_one_way() -> None:
    world = ServerWorld()
    gone = asyncio.Event()

    async def until_gone() -> None:
        await gone.wait()

    async def call() -> None:
        async with world.participant.admission.enter(R1, check=impatient(), gone=until_gone):
            pytest.fail("nobody waits for it any more")

    await world.send("prepare")
    task = asyncio.create_task(call())
    await settle()
    gone.set()
    await world.send("resume")
    with pytest.raises(AdmissionClosedError):
        await task
    assert world.leftovers == {}


async def test_an_execution_that_is_retired_as_its_time_runs_out_is_told_that_it_was_retired() -> (
    None
):
    """And not by a cancellation of nobody's, which would tear its connection down."""
    world = ServerWorld()

    async def work() -> None:
        async with (
            world.participant.admission.enter(R1) as execution,
            execution.time_limit(5),
        ):
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                retires.append(world.begin("retire", "any", episodes=[R1]))
                await settle()
                raise

    retires: list[asyncio.Task[Reply]] = []
    task = asyncio.create_task(work())
    await settle()
    await world.clock.advance(6)
    with pytest.raises(StaleAttemptError):
        await task
    await asyncio.gather(*retires)
    assert world.leftovers == {}


async def test_a_waiting_call_that_is_cancelled_leaves_nothing() -> None:
    world = ServerWorld()
    await world.send("prepare")
    call = asyncio.ensure_future(enter(world, R1))
    await settle()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await world.send("resume")
    assert world.leftovers == {}


async def test_ten_thousand_parked_executions_come_back() -> None:
    """P26 and more."""
    world = ServerWorld()
    done = 0

    async def work(number: int) -> None:
        nonlocal done
        async with world.participant.admission.enter(EpisodeId(f"r{number}")) as execution:
            await asyncio.sleep(0)
            await execution.boundary(number)
        done += 1

    tasks = [asyncio.create_task(work(number)) for number in range(10_000)]
    await asyncio.sleep(0)
    prepared = await world.send("prepare")
    assert prepared.report.counts["parked"] == 10_000  # type: ignore[attr-defined]
    await world.send("resume")
    await asyncio.gather(*tasks)
    assert done == 10_000
    assert world.leftovers == {}
