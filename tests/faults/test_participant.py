"""A participant whose controller, hooks, network and disk fail in turn.

Whatever happens, it ends idle, with admission open, its tables empty, and nothing half
published.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ckptfmt.identity import EpisodeId
from participant.core.errors import (
    CheckpointFailedError,
    DeadlineExceededError,
    InternalError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    ParticipantError,
    StaleCheckpointError,
)
from participant.core.phases import Phase
from participant.hooks import Export, Scope
from participant.roles.generic import StateTable
from participant.testing.clock import settle
from tests.support.participants import (
    R1,
    R2,
    BadHooks,
    Hang,
    ServerWorld,
    check_at_rest,
    prepared_world,
    published,
    raising,
    until,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("step", ["write", "claim"])
async def test_resume_while_the_disk_hangs_before_publication(step: str) -> None:
    """P40: resume does not wait, and nothing appears once the disk goes on."""
    world = await prepared_world()
    hang = Hang(world.storage, step)
    commit = world.begin("commit")
    await until(hang.reached.is_set)
    assert world.participant.status().phase is Phase.PREPARED
    await world.send("resume")
    with pytest.raises(StaleCheckpointError):
        await commit
    hang.release()
    await check_at_rest(world)
    assert published(world) == []


async def test_a_write_that_was_called_off_publishes_nothing_into_the_next_checkpoint() -> None:
    """The next one is open, with a lease of its own, when the disk goes on."""
    world = await prepared_world()
    hang = Hang(world.storage, "claim")
    commit = world.begin("commit")
    await until(hang.reached.is_set)
    await world.send("resume")
    await world.send("prepare", "next")
    hang.release()
    await until(lambda: world.participant.table_sizes["tasks"] == 0)
    assert published(world) == []
    await world.send("resume", "next")
    await asyncio.gather(commit, return_exceptions=True)
    await check_at_rest(world)


async def test_resume_while_publication_is_claimed_waits_for_its_end() -> None:
    """P40."""
    world = await prepared_world()
    hang = Hang(world.storage, "publish")
    commit = world.begin("commit")
    await until(hang.reached.is_set)
    resume = world.begin("resume")
    await settle()
    assert not resume.done()
    hang.release()
    await resume
    assert published(world) == ["ck"]
    await asyncio.gather(commit, return_exceptions=True)
    await check_at_rest(world)


async def test_a_claimed_publication_that_hangs_past_the_resume_is_shown_as_unknown() -> None:
    """P40: settled when the disk goes on."""
    world = await prepared_world()
    hang = Hang(world.storage, "publish")
    commit = world.begin("commit", within_s=5.0)
    await until(hang.reached.is_set)
    resume = world.begin("resume", within_s=10.0)
    await world.clock.advance(10)
    await resume
    await asyncio.gather(commit, return_exceptions=True)
    assert world.participant.status().publication == "unknown"
    assert not world.participant.is_closed
    await world.send("prepare", "next")
    await world.send("resume", "next")
    hang.release()
    await check_at_rest(world)


async def test_an_unknown_publication_is_closed_by_a_tombstone_after_resume() -> None:
    world = await prepared_world()
    Hang(world.storage, "publish", CheckpointFailedError("the connection was lost")).release()
    with pytest.raises(CheckpointFailedError):
        await world.send("commit")
    await world.send("resume")
    (stored,) = world.storage.stored.values()
    assert stored.records is None
    await check_at_rest(world)


async def test_settling_is_tried_again_until_the_storage_answers() -> None:
    world = await prepared_world()
    failures = iter([CheckpointFailedError("lost"), CheckpointFailedError("lost")])

    def before(step: str) -> None:
        if step in ("publish", "settle") and (error := next(failures, None)):
            raise error

    world.storage.before = before
    with pytest.raises(CheckpointFailedError):
        await world.send("commit")
    resume = world.begin("resume", within_s=1.0)
    await until(lambda: world.participant.table_sizes["tasks"] > 0)
    await world.clock.advance(1)
    await resume
    assert world.participant.status().publication == "unknown"
    while world.participant.status().publication:
        await world.clock.advance(5)
        await asyncio.sleep(0.001)
    await check_at_rest(world)


async def test_a_hung_disk_stops_neither_status_nor_renew_and_a_retry_waits_for_it() -> None:
    """P15, P37: the retry awaits the same thread, and what changed meanwhile is not in it."""
    world = await prepared_world()
    hang = Hang(world.storage, "write")
    commit = world.begin("commit", within_s=5.0)
    await until(hang.reached.is_set)
    world.hooks[R1] = {"step": 99}
    await world.clock.advance(5)
    with pytest.raises(DeadlineExceededError):
        await commit
    assert world.participant.status().phase is Phase.PREPARED
    await world.send("renew", within_s=100.0)
    retry = world.begin("commit", within_s=5.0)
    await settle()
    hang.release()
    await retry
    (stored,) = world.storage.stored.values()
    assert stored.records is not None
    states = [record.members["state"].value() for record in stored.records]  # type: ignore[attr-defined]
    assert states == [{"step": 1}, {"step": 2}]
    await world.send("resume")
    await check_at_rest(world)


async def test_a_full_disk_and_the_retry_stores_the_records_of_the_first_export() -> None:
    """P38."""
    world = await prepared_world()
    Hang(world.storage, "write", CheckpointFailedError("no space left")).release()
    with pytest.raises(CheckpointFailedError):
        await world.send("commit")
    world.hooks[R1] = {"step": 99}
    world.hooks.discard(R2)
    await world.send("commit")
    (stored,) = world.storage.stored.values()
    assert stored.records is not None
    assert [record.key for record in stored.records] == ["r1", "r2"]
    await world.send("resume")
    await check_at_rest(world)


async def test_too_many_hung_threads_fail_new_work_at_once() -> None:
    world = ServerWorld()
    hang = Hang(world.storage, "write")
    for number in range(8):
        await world.send("prepare", f"ck{number}")
        asyncio.ensure_future(world.send("commit", f"ck{number}")).add_done_callback(
            lambda task: task.exception()
        )
        await settle()
        await world.send("resume", f"ck{number}")
    await world.send("prepare", "last")
    with pytest.raises(CheckpointFailedError, match="busy"):
        await world.send("commit", "last")
    hang.release()
    await world.send("resume", "last")
    await check_at_rest(world)
    assert published(world) == []


async def cancelled(scope: Scope) -> None:
    """Await something that was cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def not_records(scope: Scope) -> Export:
    """Return something that is no record."""
    return Export([{"episode_id": "r1"}])  # type: ignore[list-item]


async def twice(scope: Scope) -> Export:
    """Return a record twice."""
    table = StateTable()
    table[R2] = 1
    export = await table.export(scope)
    return Export([*export.records, *export.records])


async def outside(scope: Scope) -> Export:
    """Ignore the scope."""
    table = StateTable()
    table[R1] = 1
    return await table.export(Scope.of(None))


BAD_EXPORTS = [
    (raising, InternalError),
    (cancelled, InternalError),
    (not_records, InvalidCheckpointStateError),
    (twice, InvalidCheckpointStateError),
    (outside, InvalidCheckpointStateError),
]


@pytest.mark.parametrize(("export", "error"), BAD_EXPORTS, ids=lambda value: value.__name__)
async def test_an_export_that_fails_or_returns_bad_records(
    export: Any, error: type[ParticipantError], caplog: pytest.LogCaptureFixture
) -> None:
    hooks = BadHooks()
    hooks[R2] = 1
    world = ServerWorld(hooks)
    await world.send("prepare")
    hooks.export_does = export
    with pytest.raises(error) as caught:
        await world.send("commit", episodes=[R2])
    assert "secret-detail" not in caught.value.detail
    assert published(world) == []
    hooks.export_does = None
    await world.send("commit", episodes=[R2])
    await world.send("resume")
    await check_at_rest(world)


async def test_a_state_that_cannot_be_stored_is_named() -> None:
    world = ServerWorld()
    world.hooks[R1], world.hooks[R2] = {"fine": 1}, {"day": {1, 2}}
    await world.send("prepare")
    with pytest.raises(InvalidCheckpointStateError, match=r"'r2'.*/day"):
        await world.send("commit")
    await world.send("resume")
    await check_at_rest(world)


async def test_an_export_that_hangs_is_not_waited_for_by_resume() -> None:
    hooks = BadHooks()
    world = ServerWorld(hooks)
    await world.send("prepare")
    hooks.export_does = lambda scope: asyncio.sleep(1e6)
    commit = world.begin("commit", within_s=5.0)
    await world.clock.advance(6)
    with pytest.raises(DeadlineExceededError):
        await commit
    await world.send("resume")
    await check_at_rest(world)
    assert published(world) == []


async def test_an_export_that_outlives_its_deadline_is_joined_by_the_retry() -> None:
    hooks = BadHooks()
    hooks[R1] = 1
    world = ServerWorld(hooks)
    await world.send("prepare")
    calls = 0
    go = asyncio.Event()

    async def slow(scope: Scope) -> None:
        nonlocal calls
        calls += 1
        await go.wait()

    hooks.export_does = slow
    commit = world.begin("commit", within_s=5.0)
    await world.clock.advance(5)
    with pytest.raises(DeadlineExceededError):
        await commit
    retry = world.begin("commit", within_s=5.0)
    await settle()
    go.set()
    await retry
    assert calls == 1
    await world.send("resume")
    await check_at_rest(world)


@pytest.mark.parametrize("commits", [False, True])
async def test_the_controller_dies(commits: bool) -> None:
    """P49: in prepared and in committed, the lease frees the server, and one event is counted."""
    world = await prepared_world()
    if commits:
        await world.send("commit")
    await world.clock.advance(631)
    assert (
        world.telemetry.events.count(("lease_expired", "committed" if commits else "prepared")) == 1
    )
    with pytest.raises(StaleCheckpointError):
        await world.send("commit")
    await check_at_rest(world)


async def test_the_controller_dies_in_preparing() -> None:
    """P49."""
    world = ServerWorld()
    async with world.participant.admission.enter(R1):
        prepare = world.begin("prepare")
        await world.clock.advance(631)
        assert (await prepare).phase is Phase.PREPARING  # type: ignore[attr-defined]
        assert world.participant.status().phase is Phase.IDLE
    await check_at_rest(world)


async def test_the_lease_runs_out_while_the_disk_hangs_and_nothing_is_published() -> None:
    """The claim is refused also where the event loop was too late to call the write off."""
    world = await prepared_world()
    hang = Hang(world.storage, "claim")
    commit = world.begin("commit", within_s=5.0)
    await until(hang.reached.is_set)
    await world.clock.advance(5)
    await asyncio.gather(commit, return_exceptions=True)
    world.clock._now += 1000  # The loop is stuck: no timer fires.
    hang.release()
    await until(lambda: world.participant.table_sizes["tasks"] == 0)
    assert published(world) == []
    await world.clock.advance(0)
    await world.clock.advance(1)
    await check_at_rest(world)


async def test_renewals_hold_a_checkpoint_past_its_first_lease() -> None:
    """P50."""
    world = await prepared_world(lease_grace_seconds=20)
    for _ in range(30):
        await world.clock.advance(10)
        await world.send("renew", within_s=10.0)
    await world.send("commit")
    await world.send("resume")
    await check_at_rest(world)


async def test_a_straggler_is_led_out_by_resume_retire_and_another_prepare() -> None:
    """P69."""
    world = ServerWorld()
    straggler = asyncio.ensure_future(_work_forever(world, R1))
    await settle()
    prepare = world.begin("prepare", "a", 5.0)
    await world.clock.advance(5)
    assert (await prepare).report.blockers == ("r1",)  # type: ignore[attr-defined]
    with pytest.raises(InvalidPhaseError, match="resume first"):
        await world.send("retire", "a", episodes=[R1])
    await world.send("resume", "a")
    await world.send("retire", "a", episodes=[R1])
    await asyncio.gather(straggler, return_exceptions=True)
    assert (await world.send("prepare", "b")).phase is Phase.PREPARED  # type: ignore[attr-defined]
    await world.send("resume", "b")
    await check_at_rest(world)


async def test_a_member_that_cannot_stop_blocks_the_next_checkpoint_and_is_named() -> None:
    """P68."""
    world = ServerWorld()
    go = asyncio.Event()

    async def stubborn() -> None:
        async with world.participant.admission.enter(R1):
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue

    task = asyncio.ensure_future(stubborn())
    await settle()
    retire = world.begin("retire", "any", 5.0, [R1, R2])
    await world.clock.advance(5)
    with pytest.raises(DeadlineExceededError, match="1 attempts have not stopped: r1"):
        await retire
    assert world.participant.status().retiring == 1
    prepare = world.begin("prepare", "a", 5.0)
    await world.clock.advance(5)
    assert (await prepare).report.blockers == ("r1",)  # type: ignore[attr-defined]
    await world.send("resume", "a")
    go.set()
    await world.send("retire", "any", 5.0, [R1, R2])
    await asyncio.gather(task, return_exceptions=True)
    await check_at_rest(world)


async def test_a_hook_that_fails_to_close_opens_admission_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(StateTable):
        def closed(self, checkpoint_id: str, budget_s: float) -> None:
            raise RuntimeError("secret-detail")

    caplog.set_level(logging.CRITICAL)
    world = ServerWorld(Failing())
    for command in ("prepare", "restore"):
        with pytest.raises(InternalError) as caught:
            await world.send(command, "a", episodes=[R1])
        assert "secret-detail" not in caught.value.detail
        await check_at_rest(world)


async def _work_forever(world: ServerWorld, episode: EpisodeId) -> None:
    async with world.participant.admission.enter(episode):
        await asyncio.sleep(1e6)
