"""The controller: dispatches the episodes, takes checkpoints, and restores from the last one.

Run as a process it plays the tasks of its folder.  What it must not forget is durable: each
dispatch before it is made, each result as it comes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import aiohttp

from ckptfmt.identity import EpisodeId
from examples.job.setup import Journal, Setup, end_with_parent
from examples.job.tasks import Task
from participant import coordination
from participant.coordination import Commits, Control, Fleet, Patience, Published, Run
from participant.errors import CoordinationRetryError
from participant.http.control_pool import ControlPool

__all__ = ["PATIENCE", "Controller", "EpisodeFailedError", "connected", "main", "run_of"]

PATIENCE: Final = Patience(prepare_s=60, commit_s=60, publish_s=60, resume_s=30)
"""How long each part of a checkpoint may take here."""


class EpisodeFailedError(Exception):
    """A run was refused or failed: that is no result."""


def run_of(setup: Setup) -> Run:
    """Where the checkpoints of the job lie."""
    return Run(place=str(setup.folder / "run"), run_id="job")


@contextlib.asynccontextmanager
async def connected(
    setup: Setup, tasks: dict[str, Task], *, at_once: int = 24, connections: int = 0
) -> AsyncIterator[Controller]:
    """A controller of the servers; ``connections`` is how many runs it has open, 0 any number."""
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=connections)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    async with (
        ControlPool(setup.token) as pool,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
    ):
        control = Control(pool)
        fleet = await coordination.discover(control, setup.addresses.values())
        yield Controller(setup, tasks, control, fleet, session, at_once)


class Controller:
    """Plays episodes, ``at_once`` of them at a time, each until it has a result.

    ``results`` are those that there are, by rollout, also from before a restart.
    """

    def __init__(
        self,
        setup: Setup,
        tasks: dict[str, Task],
        control: Control,
        fleet: Fleet,
        session: aiohttp.ClientSession,
        at_once: int,
    ) -> None:
        self.control = control
        self.fleet = fleet
        self.store = run_of(setup)
        self._url = setup.addresses["environment"] + "/run"
        self._tasks = tasks
        self._session = session
        self._slots = asyncio.Semaphore(at_once)
        self._dispatches = Journal(setup.folder / "dispatches.jsonl")
        self._journal = Journal(setup.folder / "results.jsonl")
        self.results = {
            line["rollout"]: line["result"] for line in Journal.read(setup.folder / "results.jsonl")
        }
        # What was dispatched before this process began may still be known under its attempt.
        self._next = {
            line["rollout"]: line["attempt"] + 1
            for line in Journal.read(setup.folder / "dispatches.jsonl")
        }
        self._flying: set[EpisodeId] = set()
        self._restored: set[EpisodeId] = set()
        self._goes = asyncio.Event()
        self._goes.set()
        self._changed = asyncio.Event()

    @property
    def scope(self) -> list[EpisodeId]:
        """All episodes that go on: those in flight, and restored ones that have not started."""
        return sorted(self._flying | self._restored)

    async def play(self) -> None:
        """Play every task that has no result yet.

        Raises:
            EpisodeFailedError: a run did not come to a result.
        """
        async with asyncio.TaskGroup() as group:
            for rollout_id, task in self._tasks.items():
                if rollout_id not in self.results:
                    group.create_task(self._play(rollout_id, task))

    async def _play(self, rollout_id: str, task: Task) -> None:
        async with self._slots:
            while not self._goes.is_set():
                await self._goes.wait()
            episode = EpisodeId(rollout_id, self._next.get(rollout_id, 0))
            self._dispatches.add(rollout=rollout_id, attempt=episode.attempt)
            self._flying.add(episode)
            self._restored.discard(episode)
            body = {"_ng_rollout_id": episode.capture_key, "task": task}
            try:
                async with self._session.post(self._url, json=body) as response:
                    text = await response.text()
            finally:
                self._flying.discard(episode)
            if response.status != 200:
                raise EpisodeFailedError(f"{episode.capture_key}: {response.status}: {text[:500]}")
            self.results[rollout_id] = json.loads(text)
            self._journal.add(rollout=rollout_id, result=self.results[rollout_id])
            self._changed.set()

    async def finished(self, count: int) -> None:
        """Wait until ``count`` episodes have a result."""
        while len(self.results) < count:
            self._changed.clear()
            await self._changed.wait()

    async def checkpoint(self, checkpoint_id: str, patience: Patience = PATIENCE) -> Published:
        """Take a checkpoint and go on."""
        with self.paused():
            return await coordination.checkpoint(
                self.control, self.fleet, self.store, checkpoint_id, lambda: self.scope, patience
            )

    async def last_checkpoint(self, checkpoint_id: str) -> Published:
        """Take a checkpoint after which nothing goes on: everybody stays parked."""
        return await self.publish(await self.commit(checkpoint_id))

    async def commit(self, checkpoint_id: str) -> Commits:
        """Prepare and commit, and stay there: from here on nothing is dispatched.

        Raises:
            CoordinationError: not everybody did.
        """
        self._goes.clear()
        await coordination.prepare_store(self.control, self.store, PATIENCE.storage_s)
        prepared = await coordination.prepare(
            self.control, self.fleet, checkpoint_id, PATIENCE.prepare_s
        )
        if not prepared.prepared:
            blocked = {server: str(r.blockers) for server, r in prepared.blockers.items()}
            raise CoordinationRetryError("prepare", blocked)
        place = self.store.checkpoint_dir(checkpoint_id)
        return await coordination.commit(
            self.control, self.fleet, checkpoint_id, place, self.scope, PATIENCE.commit_s
        )

    async def publish(self, commits: Commits) -> Published:
        """Publish what was committed, and stay there."""
        return await coordination.publish(
            self.control, self.fleet, commits, self.store, PATIENCE.publish_s
        )

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Dispatch nothing meanwhile."""
        self._goes.clear()
        try:
            yield
        finally:
            self._goes.set()

    async def restore(self, restore_id: str) -> int:
        """Restore what has no result yet, from the latest checkpoint; how many episodes."""
        source = await coordination.find_source(self.control, self.store, PATIENCE.storage_s)
        if source is None:
            return 0
        wanted = [e for e in source.episodes if e.rollout_id not in self.results]
        with self.paused():
            restored = await coordination.restore(
                self.control, self.fleet, restore_id, source, PATIENCE.commit_s, wanted
            )
            self._restored |= set(restored)
            self._next |= {episode.rollout_id: episode.attempt for episode in restored}
            await coordination.resume(self.control, self.fleet, restore_id, PATIENCE.resume_s)
        return len(restored)


def main() -> None:
    """The process of the controller."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=Path, required=True, help="a file of JSON")
    parser.add_argument(
        "--checkpoint-at", type=int, nargs="*", default=[], metavar="N",
        help="take one as soon as so many episodes have a result; after the last one stay parked",
    )  # fmt: skip
    parser.add_argument("--restore", metavar="ID", help="restore from the latest, under this id")
    options = parser.parse_args()
    end_with_parent()
    asyncio.run(_run(Setup.read(), options))


async def _run(setup: Setup, options: argparse.Namespace) -> None:
    tasks = json.loads(options.tasks.read_text())
    async with connected(setup, tasks) as controller:
        if options.restore is not None:
            await controller.restore(options.restore)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.play())
            for number, count in enumerate(options.checkpoint_at, 1):
                await controller.finished(count)
                if number < len(options.checkpoint_at):
                    await controller.checkpoint(f"ck-{number}")
                else:
                    await controller.last_checkpoint(f"ck-{number}")


if __name__ == "__main__":
    main()
