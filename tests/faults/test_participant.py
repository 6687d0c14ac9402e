"""A participant whose controller, hooks, network and disk fail in turn.

Whatever happens, it ends idle, with admission open, its tables empty, and nothing half
published.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
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
from participant.testing.storage import MemoryStorage
from tests.support.participants import Hang, ServerWorld, until

pytestmark = pytest.mark.anyio
R1, R2 = EpisodeId("r1"), EpisodeId("r2")


async def check_at_rest(world: ServerWorld) -> None:
    """Idle, open, empty."""
    await until(lambda: world.leftovers == {})
    status = world.participant.status()
    assert (status.phase, status.checkpoint_id, status.publication) == (Phase.IDLE, None, None)
    assert not world.participant.is_closed
    async with asyncio.timeout(10), world.participant.admission.enter(EpisodeId("probe")):
        pass


def published(world: ServerWorld) -> list[str]:
    """The checkpoints of which a manifest stands somewhere."""
    return [s.checkpoint_id for s in world.storage.stored.values() if s.records is not None]


async def prepared_world(**settings: Any) -> ServerWorld:
    """A server with two states, in prepared."""
    world = ServerWorld(**settings)
    world.hooks[R1], world.hooks[R2] = {"step": 1}, {"step": 2}
    await world.send("prepare")
    return world


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


class BadHooks(StateTable):
    """Hooks whose export or install does what a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.export_does: Any = None
        self.install_does: Any = None
        self.released: list[frozenset[EpisodeId]] = []

    async def export(self, scope: Scope) -> Export:
        """As the test wants, or as always."""
        if self.export_does is not None:
            result = await self.export_does(scope)
            if result is not None:
                return result  # type: ignore[no-any-return]
        return await super().export(scope)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As always, and then as the test wants."""
        await super().install(records, episodes)
        if self.install_does is not None:
            await self.install_does()

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As always, and remembered."""
        self.released.append(episodes)
        await super().release(episodes)


async def raising(scope: Scope | None = None) -> None:
    """Fail with a text that is nobody's business."""
    raise RuntimeError("secret-detail")


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
    export = await outside(scope)
    return Export([*export.records, *export.records])


def _table() -> StateTable:
    table = StateTable()
    table[R1] = 1
    return table


async def outside(scope: Scope) -> Export:
    """Ignore the scope."""
    return await StateTable.export(_table(), Scope.of(None))


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
    await until(lambda: world.participant.table_sizes["tasks"] <= 1)
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


async def restorable() -> MemoryStorage:
    """Storage with a checkpoint of two episodes in ``dir``."""
    world = await prepared_world()
    await world.send("commit")
    await world.send("resume")
    return world.storage


async def test_a_restore_that_fails_leaves_the_server_as_it_was_and_a_good_one_works() -> None:
    """P54."""
    world = ServerWorld(storage=await restorable())
    with pytest.raises(InvalidCheckpointStateError):
        await world.send("restore", "a", episodes=[R1], checkpoint_dir="elsewhere")
    assert world.participant.status().phase is Phase.IDLE
    assert not world.participant.is_closed
    assert (await world.send("resume", "a")).idempotent  # type: ignore[attr-defined]
    reply = await world.send("restore", "b", episodes=[R1, EpisodeId("unknown")])
    assert reply.restored == ("r1-a1",)  # type: ignore[attr-defined]
    assert list(world.hooks.episodes()) == [R1.continuation]
    await world.send("resume", "b")


async def test_a_server_that_served_or_holds_something_refuses_a_restore_by_name() -> None:
    """P53."""
    storage = await restorable()
    served = ServerWorld(storage=storage)
    async with served.participant.admission.enter(R1):
        pass
    with pytest.raises(InvalidPhaseError, match="served"):
        await served.send("restore", "a", episodes=[R1])
    await check_at_rest(served)
    holding = ServerWorld(storage=storage)
    holding.hooks[R2] = 1
    with pytest.raises(InvalidPhaseError, match="holds r2"):
        await holding.send("restore", "a", episodes=[R1])
    await check_at_rest(holding)


async def test_probes_and_untagged_calls_do_not_end_freshness() -> None:
    world = ServerWorld(storage=await restorable())
    async with world.participant.admission.enter(None):
        pass
    await world.send("restore", "a", episodes=[R1])
    await world.send("resume", "a")


async def test_an_install_that_raises_is_freed_again() -> None:
    """P60: the whole restore fails, and half of it never runs."""
    hooks = BadHooks()
    hooks.install_does = raising
    world = ServerWorld(hooks, await restorable())
    with pytest.raises(InternalError):
        await world.send("restore", "a", episodes=[R1, R2])
    await settle()
    assert hooks.released == [frozenset({R1.continuation, R2.continuation})]
    assert len(hooks) == 0
    await check_at_rest(world)


async def test_an_install_that_outlives_its_restore_keeps_admission_closed_until_it_ends() -> None:
    """P59."""
    hooks = BadHooks()
    go = asyncio.Event()

    async def slow() -> None:
        await go.wait()

    hooks.install_does = slow
    world = ServerWorld(hooks, await restorable())
    restore = world.begin("restore", "a", within_s=5.0, episodes=[R1])
    await until(lambda: len(hooks) == 1)
    await world.clock.advance(5)
    with pytest.raises(DeadlineExceededError):
        await restore
    retire = world.begin("retire", "a", within_s=5.0, episodes=[R1.continuation])
    await settle()
    assert not retire.done()
    assert world.participant.is_closed
    go.set()
    await retire
    assert len(hooks) == 0
    assert not world.participant.is_closed
    await world.send("restore", "b", episodes=[R1])
    await world.send("resume", "b")
    assert world.participant.table_sizes["fences"] == 0


async def test_reading_that_hangs_is_given_up_and_its_thread_joined_by_a_retry() -> None:
    storage = await restorable()
    world = ServerWorld(storage=storage)
    loads = itertools.count()
    hang = Hang(storage, "load")
    inner = storage.before

    def before(step: str) -> None:
        if step == "load":
            next(loads)
        inner(step)

    storage.before = before
    restore = world.begin("restore", "a", within_s=5.0, episodes=[R1])
    await until(hang.reached.is_set)
    await world.clock.advance(5)
    with pytest.raises(DeadlineExceededError):
        await restore
    assert not world.participant.is_closed
    retry = world.begin("restore", "a", within_s=5.0, episodes=[R1])
    await settle()
    hang.release()
    await retry
    assert next(loads) == 1
    await world.send("resume", "a")


async def test_a_restore_that_runs_out_of_its_lease_never_starts_running() -> None:
    world = ServerWorld(storage=await restorable())
    await world.send("restore", "a", episodes=[R1, R2])
    call = asyncio.ensure_future(_enter(world, R1.continuation))
    await world.clock.advance(631)
    assert len(world.hooks) == 0
    with pytest.raises(ParticipantError) as caught:
        await call
    assert caught.value.code == "stale_attempt"
    await check_at_rest(world)


async def test_a_commit_frees_the_restored_episodes_that_its_scope_leaves_out() -> None:
    """P45, and P44 for those that it names."""
    world = ServerWorld(storage=await restorable())
    await world.send("restore", "a", episodes=[R1, R2])
    await world.send("resume", "a")
    await world.send("prepare", "b")
    await world.send("commit", "b", episodes=[R1.continuation], checkpoint_dir="second")
    assert list(world.hooks.episodes()) == [R1.continuation]
    await world.send("resume", "b")
    async with world.participant.admission.enter(R2.continuation):
        pass
    second = ServerWorld(storage=world.storage)
    reply = await second.send("restore", "c", episodes=[R1.continuation], checkpoint_dir="second")
    assert reply.restored == ("r1-a2",)  # type: ignore[attr-defined]


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


async def _enter(world: ServerWorld, episode: EpisodeId) -> None:
    async with world.participant.admission.enter(episode):
        pass


async def _work_forever(world: ServerWorld, episode: EpisodeId) -> None:
    async with world.participant.admission.enter(episode):
        await asyncio.sleep(1e6)
