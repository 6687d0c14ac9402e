"""Jobs: what a hook gives is read once, and what nobody wants any more leaves nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ckptfmt.record import Record
from participant.core.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidCheckpointStateError,
    ParticipantError,
    StaleCheckpointError,
)
from participant.core.messages import encode_reply
from participant.hooks import Export, Scope
from participant.roles.payloads import payload_of
from participant.testing.clock import settle
from participant.testing.storage import MemoryStorage
from tests.support.participants import (
    R1,
    R2,
    BadHooks,
    Hang,
    ServerWorld,
    check_at_rest,
    published,
    until,
)

pytestmark = pytest.mark.anyio


def record(episode: Any) -> Record:
    """A record as the generic hooks make it."""
    return Record(episode_id=episode, members={"state": payload_of(7, "x")})


async def exporting(make: Callable[[], Any]) -> ServerWorld:
    """A server in prepared whose export gives what ``make`` makes."""
    hooks = BadHooks()
    world = ServerWorld(hooks)
    hooks[R1], hooks[R2] = 1, 2

    async def export(scope: Scope) -> Any:
        return make()

    hooks.export_does = export
    await world.send("prepare")
    return world


async def test_records_that_can_be_looked_at_once_only_are_all_stored() -> None:
    world = await exporting(lambda: Export(iter([record(R1), record(R2)])))  # type: ignore[arg-type]
    committed: Any = await world.send("commit")
    assert committed.episode_ids == ("r1", "r2")
    (stored,) = world.storage.stored.values()
    assert stored.records is not None
    assert [r.episode_id for r in stored.records] == [R1, R2]
    await world.send("resume")
    await check_at_rest(world)


BAD: list[tuple[Any, type[ParticipantError]]] = [
    (lambda: [record(R1)], InternalError),
    (lambda: Export(None), InternalError),  # type: ignore[arg-type]
    (lambda: Export([record(R1)], extras=5), InternalError),  # type: ignore[arg-type]
    (lambda: Export([record(R1)], ledger_pins=None), InternalError),  # type: ignore[arg-type]
    (lambda: Export([record(R1)], extras={"x": object()}), InvalidCheckpointStateError),
    (lambda: Export([record(R1), record(R1)]), InvalidCheckpointStateError),
    (lambda: Export([R1]), InvalidCheckpointStateError),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("make", "error"), BAD)
async def test_an_export_that_is_none_is_told_at_once_and_a_repeat_may_do_better(
    make: Callable[[], Any], error: type[ParticipantError]
) -> None:
    """Not by the deadline; and nothing is published that no reply can tell."""
    world = await exporting(make)
    with pytest.raises(error):
        async with asyncio.timeout(10):
            await world.send("commit")
    assert published(world) == []
    assert isinstance(world.hooks, BadHooks)
    world.hooks.export_does = None
    assert b"committed" in encode_reply(await world.send("commit"))
    await world.send("resume")
    await check_at_rest(world)


async def test_a_load_that_ends_after_its_restore_was_given_up_leaves_no_records() -> None:
    saved = ServerWorld()
    saved.hooks[R1] = 7
    await saved.send("prepare")
    await saved.send("commit")
    fresh = ServerWorld(storage=saved.storage)
    hang = Hang(fresh.storage, "load")
    restore = fresh.begin("restore", "back", 5.0, [R1])
    await until(hang.reached.is_set)
    await fresh.clock.advance(6)
    with pytest.raises(DeadlineExceededError):
        await restore
    assert fresh.leftovers == {"tasks": 1}
    hang.release()
    await check_at_rest(fresh)


async def test_a_write_called_off_before_its_task_had_a_turn_publishes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And is no defect that a log would have to tell of."""
    caplog.set_level(logging.ERROR)
    resumes: list[asyncio.Task[Any]] = []

    def make() -> Export:
        # Ready to run before the task of the write, which this export is followed by.
        resumes.append(world.begin("resume"))
        # Its lease must not be taken for that of the first.
        resumes.append(world.begin("prepare", "next"))
        return Export([record(R1)])

    world = await exporting(make)
    with pytest.raises(StaleCheckpointError):
        await world.send("commit")
    await asyncio.gather(*resumes)
    await until(lambda: world.participant.table_sizes["tasks"] == 0)
    assert published(world) == []
    await world.send("resume", "next")
    await check_at_rest(world)
    assert caplog.text == ""


async def test_a_settling_that_fails_by_a_defect_is_tried_again() -> None:
    """Otherwise the status would say unknown for ever."""
    world = ServerWorld()
    world.hooks[R1] = 7
    hang = Hang(world.storage, "published", OSError("lost"))
    await world.send("prepare")
    commit = world.begin("commit", within_s=5.0)
    await until(hang.reached.is_set)
    await world.clock.advance(6)
    await asyncio.gather(commit, return_exceptions=True)
    settles = 0

    class Odd(MemoryStorage):
        def settle(self, order: Any) -> None:
            nonlocal settles
            settles += 1
            if settles == 1:
                raise KeyError("a defect")

    world.participant._jobs._storage = Odd()
    resume = world.begin("resume", within_s=1.0)
    await settle()
    await world.clock.advance(2)
    await resume
    assert world.participant.status().publication == "unknown"
    hang.release()
    await until(lambda: settles == 1)
    await settle()
    await world.clock.advance(10)
    await until(lambda: settles == 2)
    await check_at_rest(world)
