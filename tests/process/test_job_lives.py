"""A job whose processes are killed comes to what an uninterrupted one comes to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from examples.job.judging import MismatchError
from examples.job.processes import PROGRAMS
from participant import coordination
from tests.support.dying_controller import MOMENTS
from tests.support.job_lives import (
    Lives,
    playing,
    run_to_its_checkpoint,
    small_tasks,
    stored,
    until_steps,
    wait_until,
)


@pytest.fixture
def job(tmp_path: Path) -> Lives:
    """The job of the uninterrupted one, not begun yet."""
    return Lives(tmp_path / "job", small_tasks(6))


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_controller_that_is_killed_in_a_checkpoint(
    moment: str, job: Lives, whole_job: Path
) -> None:
    """What was not published does not count, and what was does; nothing in between."""
    with job.life() as processes:
        arguments = ["-m", "tests.support.dying_controller", str(job.tasks_file), moment]
        processes.start("controller", arguments)
        wait_until(processes, lambda: processes.was_killed("controller"))
    is_whole = moment == "after publication"
    assert job.is_published("ck-1")
    assert job.is_published("ck-2") == is_whole
    with job.life("ck-2" if is_whole else "ck-1") as processes:
        job.play(processes, "--restore", "back")
    job.judge(whole_job, most_lost=1 if is_whole else None)


def test_a_checkpoint_right_after_a_restore_has_what_has_not_started_yet(
    job: Lives, whole_job: Path
) -> None:
    """P44: restored episodes are exported again, under the attempt that continues them."""
    run_to_its_checkpoint(job)
    with job.life("ck-1") as processes:

        async def story() -> None:
            options = {"restore_id": "back-1", "at_once": 1}
            async with playing(processes, job.tasks, **options) as controller:
                await controller.finished(1)
                await controller.last_checkpoint("ck-2")
                assert len(controller.scope) > 2
                assert {episode.attempt for episode in controller.scope} == {1}

        asyncio.run(story())
        processes.kill()
    with job.life("ck-2") as processes:
        job.play(processes, "--restore", "back-2")
    job.judge(whole_job, most_lost=1)


def test_the_same_checkpoint_is_restored_twice(job: Lives, whole_job: Path) -> None:
    """The second time after the first continuation has died without a checkpoint."""
    run_to_its_checkpoint(job)
    with job.life("ck-1") as processes:

        async def story() -> None:
            options = {"restore_id": "back-1", "at_once": 2}
            async with playing(processes, job.tasks, **options) as controller:
                await controller.finished(1)
                processes.kill()

        asyncio.run(story())
    with job.life("ck-1") as processes:
        job.play(processes, "--restore", "back-2")
    job.judge(whole_job, most_lost=None)


def test_a_scope_that_leaves_episodes_out(job: Lives, whole_job: Path) -> None:
    """They are not stored; after the restore they start over, as later attempts."""
    with job.life() as processes:

        async def story() -> list[str]:
            async with playing(processes, job.tasks) as controller:
                await until_steps(job.folder, 10)
                with controller.paused():
                    everything = controller.scope
                    kept = everything[::2]
                    published = await coordination.checkpoint(
                        controller.control, controller.fleet, controller.store, "ck-1",
                        lambda: [e for e in kept if e in controller.scope],
                    )  # fmt: skip
                    assert published.sequence == 1
                    processes.kill()
                return [e.rollout_id for e in everything if e not in kept]

        left_out = asyncio.run(story())
    kept = stored(job.folder / "run" / "ck-1")
    assert left_out
    assert kept
    assert not kept & set(left_out)
    with job.life("ck-1") as processes:
        job.play(processes, "--restore", "back")
    job.judge(whole_job, most_lost=None)


@pytest.mark.parametrize("kind", ["resources", "agent"])
def test_a_participant_that_restores_wrongly_is_noticed(
    kind: str, job: Lives, whole_job: Path
) -> None:
    """One forgets the last step of its sessions, the other the boundary of its loops."""
    run_to_its_checkpoint(job)
    with job.life("ck-1", {**PROGRAMS, kind: f"tests.support.forgetful_{kind}"}) as processes:
        job.play(processes, "--restore", "back")
    with pytest.raises(MismatchError):
        job.judge(whole_job, most_lost=None)
