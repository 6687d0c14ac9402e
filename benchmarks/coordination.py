"""How long a controller takes to prepare many participants, beside what it cannot avoid.

Every server listens on loopback and holds executions that step for a random time and park
at their next boundary.  Kinds are prepared one after the other and the members of a kind
together, so what cannot be avoided is the sum, over the kinds, of the time that the slowest
member took, as its own server measures it.  The ratio says what the way there and the
controller add.

Run it by ``python benchmarks/coordination.py --help``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

if not __package__:
    # As a script, this file's own folder is on the path instead of the project's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import participant
from benchmarks.measure import load_average
from ckptfmt.identity import EpisodeId
from participant.coordination import Control, discover, prepare, resume
from participant.coordination.orders import KINDS, ORDERS
from participant.hooks import DefaultHooks
from participant.http.control_pool import ControlPool
from participant.runtime.shell import Participant
from participant.settings import Settings

__all__ = ["RATIO_BAR", "Round", "main", "measure"]

RATIO_BAR: Final = 1.5
_TOKEN: Final = "of-a-benchmark"
_BUDGET_S: Final = 120.0
_LONGEST_STEP_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """One prepare: how long it took, and the sum over kinds of the slowest answer."""

    wall_s: float
    slowest_sum_s: float

    @property
    def ratio(self) -> float:
        """How many times as long as what cannot be avoided."""
        return self.wall_s / self.slowest_sum_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--participants", type=int, default=64, help="default: 64")
    parser.add_argument("--executions", type=int, default=10_000, help="in all; default: 10000")
    parser.add_argument("--processes", type=int, default=4, help="default: 4")
    parser.add_argument("--repeat", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    load = load_average()
    rounds = measure(options.participants, options.executions, options.processes, options.repeat)
    ratio = median(item.ratio for item in rounds)
    passed = ratio <= RATIO_BAR
    if options.json:
        listed = [
            {"wall_s": r.wall_s, "slowest_sum_s": r.slowest_sum_s, "ratio": r.ratio} for r in rounds
        ]
        result = {"schema": "bench/coordination/1", "passed": passed, "ratio": ratio}
        print(json.dumps({**result, "bar": RATIO_BAR, "load": load, "rounds": listed}))
        return
    print(
        f"{options.participants} participants, {options.executions} live executions, "
        f"{os.cpu_count()} cores, load average {load:.2f}"
    )
    for number, item in enumerate(rounds, 1):
        print(
            f"prepare {number}: {item.wall_s:6.3f} s, slowest members "
            f"{item.slowest_sum_s:6.3f} s, ratio {item.ratio:.2f}"
        )
    print(f"{'kept' if passed else 'MISSED'}: median ratio {ratio:.2f}, at most {RATIO_BAR}")


def measure(participants: int, executions: int, processes: int, repeat: int) -> list[Round]:
    """The rounds of ``participants`` servers that hold ``executions`` executions in all."""
    shares = [
        {n: executions // participants + (n < executions % participants) for n in numbers}
        for numbers in (range(first, participants, processes) for first in range(processes))
    ]
    with contextlib.ExitStack() as stack:
        pipes = [stack.enter_context(_serving(share)) for share in shares]
        urls = [url for pipe in pipes for url in pipe.recv()]
        walls = asyncio.run(_walls(urls, executions, repeat))
        took_s: dict[str, list[float]] = {}
        for pipe in pipes:
            pipe.send("tell")
            took_s |= pipe.recv()
    slowest = [
        sum(max(took_s[url][number] for url in stage) for stage in walls.stages)
        for number in range(repeat)
    ]
    return [Round(*times) for times in zip(walls.walls_s, slowest, strict=True)]


@dataclass(frozen=True, slots=True)
class _Walls:
    """The prepares as the controller sees them, and the servers of each stage."""

    walls_s: Sequence[float]
    stages: Sequence[Sequence[str]]


@contextlib.contextmanager
def _serving(share: Mapping[int, int]) -> Iterator[Connection]:
    """A pipe to a process of servers, which ends with the block; it says their addresses."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(share, theirs), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        ours.send("end")
        process.join(30)
        process.kill()


def _serve(share: Mapping[int, int], pipe: Connection) -> None:
    asyncio.run(_serve_all(share, pipe))


async def _serve_all(share: Mapping[int, int], pipe: Connection) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(_server(*item)) for item in share.items()]
        pipe.send([url for url, _ in servers])
        while await asyncio.to_thread(pipe.recv) == "tell":
            pipe.send({url: timed.took_s for url, timed in servers})


class _Timed:
    """An app that notes how long it took to answer each prepare."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self.took_s: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = time.perf_counter()
        await self._app(scope, receive, send)
        if scope["path"].endswith("/prepare"):
            self.took_s.append(time.perf_counter() - begin)


@contextlib.asynccontextmanager
async def _server(number: int, executions: int) -> AsyncIterator[tuple[str, _Timed]]:
    app = Starlette()
    timed = _Timed(app)
    installed = participant.install(
        app,
        DefaultHooks(),
        Settings(enabled=True, control_auth_token=_TOKEN),
        kind=KINDS[number % len(KINDS)],
        instance=f"server-{number}",
    )
    assert installed is not None
    tasks = [asyncio.create_task(_work(installed, number, n)) for n in range(executions)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(timed, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", timed
        server.should_exit = True
        await serving
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await installed.close()


async def _work(server: Participant, number: int, execution: int) -> None:
    """Step for ever; each step takes its own random time."""
    steps = random.Random(f"{number}/{execution}")
    async with server.admission.enter(EpisodeId(f"{number}-{execution}")) as running:
        while True:
            async with running.step():
                await asyncio.sleep(steps.uniform(0, _LONGEST_STEP_S))
            await running.boundary(None)


async def _walls(urls: Sequence[str], executions: int, repeat: int) -> _Walls:
    async with ControlPool(_TOKEN) as pool:
        control = Control(pool)
        fleet = await discover(control, urls)
        walls_s = []
        for number in range(repeat):
            begin = time.perf_counter()
            prepared = await prepare(control, fleet, f"ck{number}", _BUDGET_S)
            walls_s.append(time.perf_counter() - begin)
            parked = sum(reply.report.counts["parked"] for reply in prepared.replies.values())
            if not prepared.prepared or parked != executions:
                raise RuntimeError(f"{parked} of {executions} executions are parked")
            await resume(control, fleet, f"ck{number}", _BUDGET_S)
            await asyncio.sleep(_LONGEST_STEP_S)
        return _Walls(walls_s, [fleet.of(kinds) for kinds in ORDERS["prepare"].stages])


if __name__ == "__main__":
    main()
