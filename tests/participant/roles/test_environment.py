"""An environment server's episodes: begun, parked, continued."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ckptfmt.commit import Committed
from ckptfmt.errors import CorruptError, ValueRefusedError
from ckptfmt.identity import EpisodeId
from ckptfmt.layout import Folder
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import EnvironmentRecord
from ckptfmt.store import LocalStore
from participant.core.errors import (
    AdmissionClosedError,
    CheckpointParkedError,
    InvalidCheckpointStateError,
    InvalidRequestError,
    RolloutIdRequiredError,
)
from participant.core.steps import StepMode
from participant.hooks import Scope
from participant.roles.environment import EnvironmentHooks, EpisodeRun, task_digest
from participant.runtime.saving import storage_of
from participant.testing.clock import settle
from tests.support.participants import R1, R2
from tests.support.role_worlds import (
    TASK,
    EnvironmentServer,
    at,
    boundary_of,
    counting,
    record_of_r1,
    saved_at,
)

pytestmark = pytest.mark.anyio
R1_NEXT = R1.continuation


def test_the_digest_of_a_task_is_that_of_its_compact_json_with_sorted_keys() -> None:
    import hashlib

    text = b'{"a":[1,2.5,"\\u00e9"],"b":null}'
    assert task_digest({"b": None, "a": [1, 2.5, "é"]}) == hashlib.sha256(text).hexdigest()
    with pytest.raises(InvalidRequestError, match="spelled as JSON"):
        task_digest({"a": {1, 2}})


async def test_a_run_without_a_rollout_is_refused_before_any_side_effect() -> None:
    """P5."""
    server = EnvironmentServer()
    with pytest.raises(RolloutIdRequiredError):
        async with server.hooks.begin(None, TASK):
            pytest.fail("it ran")
    async with server.hooks.begin(R1, TASK):
        pass
    assert server.leftovers == {}


async def test_where_checkpointing_is_off_runs_go_through_and_nothing_is_kept() -> None:
    """P10."""
    hooks = EnvironmentHooks()
    cleaned: list[str] = []

    async def clean() -> None:
        cleaned.append("up")

    for episode in (None, R1):
        async with hooks.begin(episode, {"no": {"digest"}}) as run, run.time_limit(60):
            run.clean_up(clean)
            assert (run.restored, run.episode) == (None, episode)
            assert await counting(run) == 3
            assert list(hooks.held()) == []
    assert cleaned == ["up", "up"]


async def test_a_run_that_arrives_while_closed_waits_and_runs_once() -> None:
    """P29."""
    server, steps = EnvironmentServer(), list[int]()
    await server.send("prepare")
    task = server.run(lambda run: counting(run, steps=steps))
    await settle()
    assert steps == []
    assert server.participant.status().report.counts == {"episodes": 0}
    await server.send("resume")
    assert await task == 3
    assert steps == [1, 2, 3]
    assert server.leftovers == {}


async def test_a_second_request_for_a_run_is_not_carried_out() -> None:
    """P33: neither while the first waits, nor while it runs."""
    server = EnvironmentServer()
    await server.send("prepare")
    first = server.run(counting)
    await settle()
    with pytest.raises(CheckpointParkedError, match="waits"):
        await server.run(counting)
    await server.send("resume")
    await first
    running = server.run(at(1))
    await settle()
    with pytest.raises(CheckpointParkedError, match="running"):
        await server.run(counting)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert server.leftovers == {}


async def test_a_run_whose_client_goes_away_while_it_waits_is_dropped() -> None:
    server, left = EnvironmentServer(), asyncio.Event()

    async def gone() -> None:
        await left.wait()

    await server.send("prepare")
    task = server.run(counting, gone=gone)
    await settle()
    left.set()
    with pytest.raises(AdmissionClosedError, match="went away"):
        await task
    again = server.run(counting, gone=gone)
    running = server.run(counting, R2, gone=asyncio.Event().wait)
    await server.send("resume")
    assert await running == 3
    assert await again == 3
    assert server.leftovers == {}


async def test_a_client_that_goes_away_while_its_run_runs_does_not_stop_it() -> None:
    server, left = EnvironmentServer(), asyncio.Event()
    task = server.run(counting, gone=left.wait)
    left.set()
    assert await task == 3


async def test_a_step_in_flight_is_waited_for_and_the_boundary_after_it_is_exported() -> None:
    """P75."""
    server, go = EnvironmentServer(), asyncio.Event()

    async def work(run: EpisodeRun) -> None:
        await run.boundary({"count": 1})
        async with run.step():
            await go.wait()
        await run.boundary({"count": 2})
        await go.wait()

    task = server.run(work)
    await settle()
    prepare = asyncio.create_task(server.send("prepare"))
    await settle()
    assert not prepare.done()
    go.set()
    assert (await prepare).phase == "prepared"
    (record,) = await server.saved(R1)
    assert (boundary_of(record), record.task_digest) == ({"count": 2}, task_digest(TASK))
    await server.send("resume")
    await task


async def test_a_replay_step_in_flight_is_not_waited_for_and_runs_again_after_a_crash() -> None:
    """P75, P76: it does not become a blocker again when it ends."""
    server, go = EnvironmentServer(), asyncio.Event()

    async def work(run: EpisodeRun) -> None:
        await run.boundary({"count": 1})
        async with run.step(StepMode.REPLAY):
            await go.wait()
        await asyncio.sleep(0)
        await run.boundary({"count": 2})

    task = server.run(work)
    await settle()
    (record,) = await server.saved(R1)
    assert boundary_of(record) == {"count": 1}
    go.set()
    await settle()
    report = server.participant.status().report
    assert report.ready
    assert not task.done()
    fresh = await server.restarted(R1)
    steps: list[int] = []
    assert await fresh.run(lambda run: counting(run, steps=steps), R1_NEXT) == 3
    assert steps == [2, 3]
    await server.send("resume")
    await task


async def test_a_woken_episode_stays_parked_for_a_checkpoint_that_closes_first() -> None:
    """P77."""
    server, steps = EnvironmentServer(), list[int]()

    async def work(run: EpisodeRun) -> None:
        await asyncio.sleep(0)
        await run.boundary({"count": 1})
        steps.append(1)

    task = server.run(work)
    await asyncio.sleep(0)
    await server.send("prepare", "a")
    await asyncio.gather(server.send("resume", "a"), server.send("prepare", "b"))
    await settle()
    assert (steps, server.participant.status().phase) == ([], "prepared")
    await server.send("resume", "b")
    await task
    assert steps == [1]


async def test_parked_time_does_not_count_against_the_limit_of_an_episode() -> None:
    """P78."""
    server = EnvironmentServer(lease_grace_seconds=5000)

    async def work(run: EpisodeRun) -> None:
        async with run.time_limit(100):
            await server.clock.sleep_until(server.clock.monotonic() + 60)
            await run.boundary({})
            await server.clock.sleep_until(server.clock.monotonic() + 60)

    task = server.run(work)
    await settle()
    prepare = asyncio.create_task(server.send("prepare", within_s=100))
    await server.clock.advance(60)
    await prepare
    await server.clock.advance(600)
    await server.send("resume")
    await settle()
    await server.clock.advance(39)
    assert not task.done()
    await server.clock.advance(2)
    with pytest.raises(TimeoutError):
        await task
    assert server.leftovers == {}


async def test_an_episode_without_a_boundary_starts_over_and_one_with_it_goes_on() -> None:
    """P80, P81: at the last step too, where nothing is left to do."""
    server, go = EnvironmentServer(), asyncio.Event()

    async def early(run: EpisodeRun) -> None:
        async with run.step(StepMode.REPLAY):
            await go.wait()

    r3 = EpisodeId("r3")
    tasks = [server.run(early), server.run(at(2), R2), server.run(at(3), r3)]
    # The two at a boundary have to park there for the checkpoint.
    await asyncio.sleep(0)
    await server.send("prepare")
    records = {r.episode_id: boundary_of(r) for r in await server.saved(R1, R2, r3)}
    assert records == {R1: None, R2: {"count": 2}, r3: {"count": 3}}
    fresh = await server.restarted(R1, R2, r3)
    told: dict[EpisodeId, list[int]] = {}
    for episode in (R1, R2, r3):
        steps = told[episode] = []
        work = lambda run, steps=steps: counting(run, steps=steps)  # noqa: E731
        assert await fresh.run(work, episode.continuation) == 3
    assert told == {R1: [1, 2, 3], R2: [3], r3: []}
    assert fresh.leftovers == {}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_another_task_is_refused_and_the_record_kept() -> None:
    """P82: for the next start, and for the next checkpoint."""
    fresh = await (await saved_at(2, R1)).restarted(R1)
    with pytest.raises(InvalidRequestError, match="r1-a1 was restored with the task"):
        await fresh.run(counting, R1_NEXT, {"question": "another"})
    assert fresh.participant.status().extras == {"restored_pending": 1}
    (record,) = (await fresh.hooks.export(Scope.of([R1_NEXT]))).records
    assert boundary_of(record) == {"count": 2}  # type: ignore[arg-type]
    steps: list[int] = []
    await fresh.run(lambda run: counting(run, steps=steps), R1_NEXT)
    assert steps == [3]
    assert fresh.participant.status().extras == {"restored_pending": 0}
    assert list(fresh.hooks.held()) == []


async def test_a_replacement_that_is_refused_after_it_waited_consumes_nothing() -> None:
    """P82: the record arrives while the call waits already."""
    server = await saved_at(2, R1)
    fresh = EnvironmentServer(server.storage)
    await fresh.send("prepare", "first")
    wrong = fresh.run(counting, R1_NEXT, {"question": "another"})
    right = fresh.run(counting, R1_NEXT, gone=asyncio.Event().wait)
    await settle()
    assert isinstance(right.exception(), CheckpointParkedError)
    # It waits from before the restore: admission is not opened in between.
    records = [record_of_r1(boundary={"count": 2})]
    await fresh.hooks.install(records, frozenset({R1_NEXT}))
    await fresh.send("resume", "first")
    with pytest.raises(InvalidRequestError):
        await wrong
    assert list(fresh.hooks.held()) == ["r1-a1"]
    assert fresh.leftovers == {}


async def test_a_replacement_that_waits_has_not_consumed_its_record() -> None:
    """P82, P44: a checkpoint meanwhile has it still, under the replacement's attempt."""
    server = await saved_at(2, R1)
    fresh = EnvironmentServer(server.storage)
    await fresh.send("restore", "back", episodes=[R1])
    task = fresh.run(counting, R1_NEXT)
    await settle()
    await asyncio.gather(fresh.send("resume", "back"), fresh.send("prepare", "second"))
    await settle()
    await fresh.send("commit", "second", episodes=[R1_NEXT], checkpoint_dir="dir2")
    stored = server.storage.stored["dir2", fresh.participant.participant]  # type: ignore[attr-defined]
    assert [r.episode_id for r in stored.records] == [R1_NEXT]
    assert not task.done()
    await fresh.send("resume", "second")
    assert await task == 3
    again = EnvironmentServer(server.storage)
    await again.send("restore", "x", episodes=[R1_NEXT], checkpoint_dir="dir2")
    await again.send("resume", "x")
    steps: list[int] = []
    await again.run(lambda run: counting(run, steps=steps), R1_NEXT.continuation)
    assert steps == [3]


async def test_one_that_was_restored_is_at_its_boundary_until_it_makes_another() -> None:
    """P80: a checkpoint between its start and its first step loses nothing."""
    fresh = await (await saved_at(2, R1)).restarted(R1)
    go = asyncio.Event()

    async def work(run: EpisodeRun) -> None:
        async with run.step(StepMode.REPLAY):
            await go.wait()

    task = fresh.run(work, R1_NEXT)
    await settle()
    await fresh.send("prepare", "second")
    (record,) = (await fresh.hooks.export(Scope.of(None))).records
    assert (record.episode_id, boundary_of(record)) == (R1_NEXT, {"count": 2})  # type: ignore[arg-type]
    go.set()
    await fresh.send("resume", "second")
    await task


async def test_a_later_attempt_does_not_consume_the_record_of_an_earlier_one() -> None:
    """P4."""
    fresh = await (await saved_at(2, R1)).restarted(R1)
    steps: list[int] = []
    await fresh.run(lambda run: counting(run, steps=steps), R1_NEXT.continuation)
    assert steps == [1, 2, 3]
    assert fresh.participant.status().extras == {"restored_pending": 1}


async def test_a_scope_that_leaves_a_restored_episode_out_releases_it() -> None:
    """P45: no fence stays; it may start over as the same attempt."""
    fresh = await (await saved_at(2, R1, R2)).restarted(R1, R2)
    await fresh.send("prepare", "second")
    await fresh.send("commit", "second", episodes=[R2.continuation], checkpoint_dir="dir2")
    await fresh.send("resume", "second")
    assert list(fresh.hooks.held()) == [R2.continuation.capture_key]
    steps: list[int] = []
    await fresh.run(lambda run: counting(run, steps=steps), R1_NEXT)
    assert steps == [1, 2, 3]


async def test_a_boundary_is_a_dictionary_that_can_be_carried_exactly() -> None:
    server = EnvironmentServer()

    async def work(run: EpisodeRun) -> None:
        with pytest.raises(TypeError, match="not list"):
            await run.boundary([1])  # type: ignore[arg-type]
        await run.boundary({"seen": {1, 2}})
        await asyncio.sleep(1e6)

    task = server.run(work)
    await settle()
    with pytest.raises(ValueRefusedError, match="set") as caught:
        await server.hooks.export(Scope.of(None))
    assert "r1" in str(caught.value)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_record_of_another_kind_or_one_that_cannot_be_decoded_installs_nothing() -> None:
    """P55, P60."""
    hooks = EnvironmentHooks()
    attempts = frozenset({R1_NEXT, R2.continuation})
    with pytest.raises(InvalidCheckpointStateError, match="r2 is no record"):
        await hooks.install([record_of_r1(), Record(episode_id=R2, members={})], attempts)
    broken = JsonPayload.stored(b'{"a":[1]}', b'[["/b","tuple"]]')
    record = EnvironmentRecord(episode_id=R2, task_digest=task_digest(TASK), boundary=broken)
    with pytest.raises(CorruptError):
        await hooks.install([record_of_r1(), record], attempts)
    assert list(hooks.held()) == []


async def test_members_of_a_later_release_come_with_a_record_that_has_not_started() -> None:
    hooks = EnvironmentHooks()
    extra = {"later": JsonPayload.from_value([1])}
    record = EnvironmentRecord(
        episode_id=R1, task_digest=task_digest(TASK), boundary=None, extras=extra
    )
    await hooks.install([record], frozenset({R1_NEXT}))
    (again,) = (await hooks.export(Scope.of(None))).records
    assert again == EnvironmentRecord(
        episode_id=R1_NEXT, task_digest=task_digest(TASK), boundary=None, extras=extra
    )


async def test_a_thousand_episodes_leave_nothing(tmp_path: Path) -> None:
    """P26, P74: through the files of a real checkpoint."""
    storage = storage_of("ckptfmt")
    server = EnvironmentServer(storage)
    episodes = [EpisodeId(f"r{number}") for number in range(1000)]
    tasks = [server.run(lambda run: counting(run, 5), episode) for episode in episodes]
    await asyncio.sleep(0)
    place = str(tmp_path / "ck")
    assert (await server.send("prepare")).report.counts == {"episodes": 1000}
    await server.send("commit", episodes=episodes, checkpoint_dir=place)
    members = [server.participant.participant]
    outcome = publish_checkpoint(LocalStore(tmp_path), Folder("ck"), "ck", members)
    assert isinstance(outcome, Committed)
    await server.send("resume")
    assert set(await asyncio.gather(*tasks)) == {5}
    assert (server.leftovers, list(server.hooks.held())) == ({}, [])
    fresh = EnvironmentServer(storage)
    await fresh.send("restore", "back", episodes=episodes, checkpoint_dir=place)
    assert fresh.participant.status().extras == {"restored_pending": 1000}
    await fresh.send("retire", "back", episodes=[e.continuation for e in episodes])
    await fresh.send("resume", "back")
    await settle()
    assert (fresh.leftovers, list(fresh.hooks.held())) == ({}, [])
