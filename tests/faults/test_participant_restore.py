"""Restores that fail, outlive their deadline, or lose their controller."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from ckptfmt.identity import EpisodeId
from participant.core.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    ParticipantError,
)
from participant.core.phases import Phase
from participant.testing.clock import settle
from participant.testing.storage import MemoryStorage
from tests.support.participants import (
    R1,
    R2,
    BadHooks,
    Hang,
    ServerWorld,
    check_at_rest,
    enter,
    prepared_world,
    raising,
    until,
)

pytestmark = pytest.mark.anyio


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
    call = asyncio.ensure_future(enter(world, R1.continuation))
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
