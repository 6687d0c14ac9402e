"""A controller process that kills itself at a chosen moment of its second checkpoint."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from ckptfmt.store import LocalStore
from examples.job.controller import Controller, connected, run_of
from examples.job.setup import Setup, end_with_parent
from participant import coordination
from tests.support.job_lives import until_steps

__all__ = ["MOMENTS"]

MOMENTS = ("after prepare", "after commit", "before publication", "after publication")


def die() -> None:
    """As by a crash."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(LocalStore):
    """Never gets to write ``checkpoint.json``."""

    def create(self, name: str, data: bytes | bytearray | memoryview) -> None:
        """As the store, but for the one file."""
        if name.endswith("checkpoint.json"):
            die()
        super().create(name, data)


async def die_in_a_checkpoint(controller: Controller, moment: str) -> None:
    """The moments, in order."""
    if moment == "after prepare":
        with controller.paused():
            prepared = await coordination.prepare(controller.control, controller.fleet, "ck-2", 30)
            assert prepared.prepared
            die()
    commits = await controller.commit("ck-2")
    if moment == "after commit":
        die()
    await controller.publish(commits)
    die()


async def main(tasks: Path, moment: str) -> None:
    """Plays, takes the first checkpoint, and dies in the second."""
    setup = Setup.read()
    async with connected(setup, json.loads(tasks.read_text())) as controller:
        play = asyncio.create_task(controller.play())
        await until_steps(setup.folder, 10)
        await controller.checkpoint("ck-1")
        await until_steps(setup.folder, 20)
        if moment == "before publication":
            store = DyingStore(Path(run_of(setup).place))
            controller.store = dataclasses.replace(controller.store, store=store)
        await die_in_a_checkpoint(controller, moment)
        await play


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
