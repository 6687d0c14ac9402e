"""Restores of a job that go wrong, and a controller that falls silent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from examples.job.controller import Controller, connected
from examples.job.processes import Processes, start
from examples.job.setup import KINDS, Journal
from examples.job.tasks import Task
from participant import coordination
from participant.core.phases import Phase
from participant.errors import CoordinationError
from tests.support.job_lives import (
    Lives,
    eventually,
    phase_of,
    playing,
    run_to_its_checkpoint,
    small_tasks,
    status_of,
    until_steps,
)


@pytest.fixture(scope="module")
def killed_job(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """A job that was killed once ``ck-1`` was there, with all of its episodes in flight."""
    job = Lives(tmp_path_factory.mktemp("killed"), small_tasks(6))
    run_to_its_checkpoint(job)
    return job


async def phases(controller: Controller) -> dict[str, Phase]:
    """The phase of each server that lives, by its kind."""
    return {
        member.participant.kind: await phase_of(controller, member.server)
        for member in controller.fleet.members
    }


def test_a_restore_that_fails_on_one_server_is_undone_on_all(
    killed_job: Lives, whole_job: Path
) -> None:
    """P111, for each kind; the others stay fresh, so that the next one succeeds."""
    job = killed_job.copy("undone")
    with job.life("ck-1") as processes:

        async def story() -> None:
            async with connected(processes.setup, job.tasks) as controller:
                for kind in KINDS:
                    dead = processes.setup.addresses[kind]
                    processes.kill(kind)
                    with pytest.raises(CoordinationError) as caught:
                        await controller.restore(f"fails-{kind}")
                    assert caught.value.operation == "restore"
                    assert set(caught.value.failures) == {dead}
                    processes.replace(kind)
                    assert set((await phases(controller)).values()) == {Phase.IDLE}
                    for server in controller.fleet.servers:
                        counts = (await status_of(controller, server))["report"]["counts"]
                        assert not any(counts.values())
                assert await controller.restore("succeeds") > 3
                await controller.play()

        asyncio.run(story())
        job.rename(processes)
    job.judge(whole_job, most_lost=1)


async def dies_restored(processes: Processes, tasks: dict[str, Task], kind: str) -> None:
    """Everybody is restored; then one dies before the resume."""
    async with connected(processes.setup, tasks) as controller:
        control, fleet = controller.control, controller.fleet
        source = await coordination.find_source(control, controller.store, 30)
        assert source is not None
        await coordination.restore(control, fleet, "back", source, 30)
        assert set((await phases(controller)).values()) == {Phase.RESTORED}
        processes.kill(kind)
        with pytest.raises(CoordinationError) as caught:
            await coordination.resume(control, fleet, "back", 10)
        assert set(caught.value.failures) == {processes.setup.addresses[kind]}
        for server in set(fleet.servers) - set(caught.value.failures):
            assert await phase_of(controller, server) is Phase.IDLE


def test_servers_that_die_between_restore_and_resume(killed_job: Lives, whole_job: Path) -> None:
    """Resume names each, and opens the others; the same checkpoint is restored once more."""
    job = killed_job.copy("restored")
    for kind in KINDS:
        with job.life("ck-1") as processes:
            asyncio.run(dies_restored(processes, job.tasks, kind))
    with job.life("ck-1") as processes:
        job.play(processes, "--restore", "back")
    job.judge(whole_job, most_lost=1)


def test_leases_that_run_out_free_everybody(tmp_path: Path, whole_job: Path) -> None:
    """P49, P50: whether prepared or committed; and its controller comes back too late."""
    tasks = small_tasks(6)
    with start(tmp_path, lease_grace_s=0.5) as processes:

        async def story() -> dict[str, object]:
            async with playing(processes, tasks) as controller:
                control, fleet, store = controller.control, controller.fleet, controller.store
                await until_steps(tmp_path, 10)
                with controller.paused():
                    assert (await coordination.prepare(control, fleet, "ck", 5)).prepared
                    some = coordination.Fleet(fleet.members[:2])
                    place, scope = store.checkpoint_dir("ck"), controller.scope
                    await coordination.commit(control, some, "ck", place, scope, 5)
                    assert set((await phases(controller)).values()) == {
                        Phase.PREPARED, Phase.COMMITTED,
                    }  # fmt: skip
                    await eventually(lambda: all_idle(controller))
                    with pytest.raises(CoordinationError, match="stale_checkpoint") as caught:
                        await coordination.commit(control, fleet, "ck", place, scope, 5)
                    assert set(caught.value.failures) == set(fleet.servers)
                await controller.finished(len(tasks))
                return controller.results

        results = asyncio.run(story())
    whole = {line["rollout"]: line["result"] for line in Journal.read(whole_job / "results.jsonl")}
    assert json.dumps(results, sort_keys=True) == json.dumps(whole, sort_keys=True)
    assert not (tmp_path / "run" / "ck" / "checkpoint.json").exists()


async def all_idle(controller: Controller) -> bool:
    """Whether every server is."""
    return set((await phases(controller)).values()) == {Phase.IDLE}
