"""The example job in several lives: played, killed, restored, and judged in the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.sets import generated_rollouts
from ckptfmt.checkpoint import open_checkpoint
from examples.job.controller import Controller, connected
from examples.job.judging import Life, Verdict, judge
from examples.job.processes import PROGRAMS, Processes, start
from examples.job.setup import Journal
from examples.job.tasks import Task, make_tasks
from participant.core.phases import Phase

__all__ = [
    "PATIENCE_S", "Lives", "eventually", "in_play", "phase_of", "playing", "run_to_its_checkpoint",
    "small_tasks", "status_of", "stored", "until_steps", "wait_until",
]  # fmt: skip

PATIENCE_S = 60.0
"""How long a test waits for what is sure to come, before it fails."""


def small_tasks(
    count: int, *, prefix: str = "", token_s: float = 0.003, step_s: float = 0.0
) -> dict[str, Task]:
    """Tasks whose rollouts begin with ``prefix``."""
    tasks = make_tasks(generated_rollouts()[:3], count, 7, token_s=token_s, step_s=step_s)
    for task in tasks.values():
        task["document"]["messages"] = task["document"]["messages"][:4]
    return {prefix + rollout_id: task for rollout_id, task in tasks.items()}


class Lives:
    """One job in its folder, and the lives that it has had."""

    def __init__(self, folder: Path, tasks: dict[str, Task]) -> None:
        self.folder = folder
        self.tasks = tasks
        self._lives: list[Life] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.tasks_file = folder / "tasks.json"
        self.tasks_file.write_text(json.dumps(tasks))

    @contextlib.contextmanager
    def life(
        self, checkpoint_id: str | None = None, programs: Mapping[str, str] = PROGRAMS
    ) -> Iterator[Processes]:
        """Fresh servers, which are going to be restored from a checkpoint."""
        with start(self.folder, programs=programs) as processes:
            pids = {kind: processes[kind] for kind in ("resources", "model")}
            place = None if checkpoint_id is None else self.folder / "run" / checkpoint_id
            self._lives.append(Life(pids, place, self.finished))
            yield processes

    def rename(self, processes: Processes) -> None:
        """The last life ends with these processes; the ones that they replaced wrote nothing."""
        pids = {kind: processes[kind] for kind in ("resources", "model")}
        self._lives[-1] = dataclasses.replace(self._lives[-1], processes=pids)

    def copy(self, name: str) -> Lives:
        """The same job up to now, in a folder beside its own."""
        copied = Lives(self.folder.with_name(f"{self.folder.name}-{name}"), self.tasks)
        shutil.copytree(self.folder, copied.folder, dirs_exist_ok=True)
        copied._lives = list(self._lives)
        return copied

    @property
    def finished(self) -> Collection[str]:
        """The rollouts that have a result."""
        return {line["rollout"] for line in Journal.read(self.folder / "results.jsonl")}

    def play(self, processes: Processes, *arguments: str) -> None:
        """A controller process plays to the end."""
        processes.start_controller("--tasks", str(self.tasks_file), *arguments)
        wait_until(processes, lambda: processes.ended("controller"))

    def is_published(self, checkpoint_id: str) -> bool:
        """Whether a checkpoint is there."""
        return (self.folder / "run" / checkpoint_id / "checkpoint.json").exists()

    def judge(self, whole: Path, *, most_lost: int | None) -> Verdict:
        """Compare with the uninterrupted job in the folder ``whole``."""
        return judge(whole, self.folder, self._lives, most_lost)


def run_to_its_checkpoint(job: Lives) -> None:
    """The first life: a checkpoint with all episodes in flight, and then everything is killed."""
    with job.life() as processes:

        async def story() -> None:
            async with playing(processes, job.tasks) as controller:
                await until_steps(job.folder, 10)
                await controller.last_checkpoint("ck-1")
                processes.kill()

        asyncio.run(story())
    scope = open_checkpoint(job.folder / "run" / "ck-1").manifest.scope
    assert scope is not None
    assert len(scope) > 3


def wait_until(processes: Processes, condition: Callable[[], bool]) -> None:
    """Wait for processes, none of which may fail meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        processes.check()
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait until it holds; it may be a coroutine function."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.01)


def stored(checkpoint: Path) -> set[str]:
    """The capture keys of which a checkpoint holds anything."""
    opened = open_checkpoint(checkpoint)
    return {key for p in opened.participants for key in opened.participant(p).episode_ids}


async def until_steps(folder: Path, count: int) -> None:
    """Wait until so many steps of tools were done."""
    await eventually(lambda: len(Journal.read(folder / "steps.jsonl")) >= count)


@contextlib.asynccontextmanager
async def playing(
    processes: Processes, tasks: dict[str, Task], *, restore_id: str | None = None, **options: Any
) -> AsyncIterator[Controller]:
    """A controller in this process that plays.

    With a ``restore_id`` it restores the latest checkpoint first.
    """
    async with connected(processes.setup, tasks, **options) as controller:
        if restore_id is not None:
            assert await controller.restore(restore_id)
        async with in_play(controller):
            yield controller


@contextlib.asynccontextmanager
async def in_play(controller: Controller) -> AsyncIterator[None]:
    """It plays meanwhile; what the death of its servers does to it is no failure."""
    play = asyncio.create_task(controller.play())
    try:
        yield
    finally:
        play.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await play


async def status_of(controller: Controller, server: str) -> Mapping[str, Any]:
    """The status of a server."""
    reply = await controller.control.transport.call(server, "status", None, PATIENCE_S)
    assert reply.status == 200, reply
    return reply.members


async def phase_of(controller: Controller, server: str) -> Phase:
    """The phase that a server is in."""
    return Phase((await status_of(controller, server))["phase"])
