"""A checkpoint of a whole job over HTTP: how long it is closed, and how long a restore takes.

A resources server holds the sessions, each of an episode of its own; beside it stands the
policy server that every job has.  A controller takes a checkpoint; then both are killed,
and fresh ones restored.  The reference of :mod:`benchmarks.ways` commits and restores the
same sessions in the same processes, before ours and after ours in turn.

Run it by ``python benchmarks/job.py --help``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

if not __package__:
    # As a script, this file's own folder is on the path instead of the project's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp

from benchmarks import sets
from benchmarks.measure import load_average
from ckptfmt.identity import EpisodeId
from examples.job.processes import Processes, start
from participant import coordination
from participant.attribution import prefixed
from participant.coordination import Control, Run
from participant.http.control_pool import ControlPool

__all__ = ["SCHEMA", "main", "measure"]

SCHEMA: Final = "bench/job/1"

_PROGRAMS: Final = {"resources": "benchmarks.job_resources", "model": "examples.job.model"}
_BUDGET_S: Final = 600.0
_AT_ONCE: Final = 32
_PARTS: Final = (
    "prepare", "commit", "publish", "resume", "prepare to resume", "commit_reference",
    "restore", "restore_reference",
)  # fmt: skip


@dataclass(slots=True)
class _Clock:
    """The seconds of each part, one a round."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in _PARTS})

    @contextlib.contextmanager
    def times(self, part: str) -> Iterator[None]:
        """Time a block."""
        begin = time.perf_counter()
        yield
        self.seconds[part].append(time.perf_counter() - begin)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000, help="default: 1000")
    parser.add_argument("--repeat", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--set", choices=sets.NAMES, default="real", help="default: real")
    parser.add_argument("--dir", type=Path, help="where to write; default: the temporary folder")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    load = load_average()
    medians = measure(options.set, options.sessions, options.repeat, options.dir)
    if options.json:
        print(json.dumps(_members(options.set, options.sessions, options.repeat, medians)))
        return
    print(f"{options.sessions} sessions, {options.set} set, medians of {options.repeat} rounds, "
          f"load average {load:.2f}")  # fmt: skip
    for part in _PARTS:
        print(f"{part.replace('_', ', '):20} {medians[part]:8.3f} s")
    for operation, ratio in _ratios(medians).items():
        print(f"{operation}: {ratio:.2f} times as fast as the reference")


def _ratios(medians: Mapping[str, float]) -> dict[str, float]:
    return {op: medians[f"{op}_reference"] / medians[op] for op in ("commit", "restore")}


def _members(name: str, sessions: int, repeat: int, medians: Mapping[str, float]) -> dict[str, Any]:
    seconds = {f"{part.replace(' ', '_')}_s": round(medians[part], 6) for part in _PARTS}
    ratios = {f"{op}_ratio": round(ratio, 3) for op, ratio in _ratios(medians).items()}
    result = {"set": name, "sessions": sessions, "repeat": repeat, **seconds, **ratios}
    return {"schema": SCHEMA, "results": [result]}


def measure(name: str, sessions: int, repeat: int, folder: Path | None = None) -> dict[str, float]:
    """The median seconds of each part, of ``repeat`` rounds in fresh processes each."""
    clock = _Clock()
    for number in range(repeat):
        with TemporaryDirectory(dir=folder, prefix="job-") as place:
            _round(clock, Path(place), name, sessions, is_reference_first=bool(number % 2))
    return {part: median(seconds) for part, seconds in clock.seconds.items()}


def _round(
    clock: _Clock, folder: Path, name: str, sessions: int, *, is_reference_first: bool
) -> None:
    with start(folder, programs=_PROGRAMS) as processes:
        sha256 = asyncio.run(_commit(clock, processes, name, sessions, is_reference_first))
    with start(folder, programs=_PROGRAMS) as processes:
        asyncio.run(_restore(clock, processes, sha256, sessions, is_reference_first))


@dataclass(frozen=True, slots=True)
class _Job:
    """The controller's side of it."""

    control: Control
    fleet: coordination.Fleet
    run: Run
    session: aiohttp.ClientSession
    resources: str

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, processes: Processes) -> AsyncIterator[_Job]:
        """A job of running servers."""
        setup = processes.setup
        timeout = aiohttp.ClientTimeout(total=_BUDGET_S)
        # Each session has a cookie of its own, and nobody asks for it again.
        jar = aiohttp.DummyCookieJar()
        async with (
            ControlPool(setup.token) as pool,
            aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session,
        ):
            control = Control(pool)
            fleet = await coordination.discover(control, setup.addresses.values())
            run = Run(place=str(setup.folder / "run"))
            yield cls(control, fleet, run, session, setup.addresses["resources"])

    async def get(self, path: str, **query: Any) -> Any:
        """What a probe of the resources server answers."""
        async with self.session.get(self.resources + path, params=query) as response:
            response.raise_for_status()
            return await response.json()

    async def seed(self, session_id: str, key: str) -> None:
        """Begin a session."""
        url = prefixed(f"{self.resources}/seed_session", EpisodeId.from_capture_key(key))
        async with self.session.post(url, json={"session_id": session_id}) as response:
            response.raise_for_status()


async def _commit(
    clock: _Clock, processes: Processes, name: str, sessions: int, is_reference_first: bool
) -> str:
    """Take a checkpoint; the SHA-256 of what the reference wrote."""
    async with _Job.of(processes) as job:
        keys = await job.get("/build", set=name, sessions=sessions)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def seed(session_id: str, key: str) -> None:
            async with slots:
                await job.seed(session_id, key)

        await asyncio.gather(*(seed(*item) for item in keys.items()))
        if not is_reference_first:
            await _checkpoint(clock, job, list(map(EpisodeId.from_capture_key, keys.values())))
        reference = await job.get("/commit_reference")
        clock.seconds["commit_reference"].append(reference["seconds"])
        if is_reference_first:
            await _checkpoint(clock, job, list(map(EpisodeId.from_capture_key, keys.values())))
        return str(reference["sha256"])


async def _checkpoint(clock: _Clock, job: _Job, scope: list[EpisodeId]) -> None:
    control, fleet, place = job.control, job.fleet, job.run.checkpoint_dir("ck")
    with clock.times("prepare to resume"):
        with clock.times("prepare"):
            prepared = await coordination.prepare(control, fleet, "ck", _BUDGET_S)
        assert prepared.prepared
        with clock.times("commit"):
            commits = await coordination.commit(control, fleet, "ck", place, scope, _BUDGET_S)
        with clock.times("publish"):
            # There is no environment that would own the episodes.
            await coordination.publish(
                control, fleet, commits, job.run, _BUDGET_S, allow_unowned=True
            )
        with clock.times("resume"):
            await coordination.resume(control, fleet, "ck", _BUDGET_S)


async def _restore(
    clock: _Clock, processes: Processes, sha256: str, sessions: int, is_reference_first: bool
) -> None:
    async with _Job.of(processes) as job:

        async def reference() -> None:
            restored = await job.get("/restore_reference", sha256=sha256)
            assert restored["records"] == sessions
            clock.seconds["restore_reference"].append(restored["seconds"])

        if is_reference_first:
            await reference()
        with clock.times("restore"):
            source = await coordination.find_source(job.control, job.run, _BUDGET_S)
            assert source is not None
            restored = await coordination.restore(job.control, job.fleet, "back", source, _BUDGET_S)
        assert len(restored) == sessions
        await coordination.resume(job.control, job.fleet, "back", _BUDGET_S)
        if not is_reference_first:
            await reference()


if __name__ == "__main__":
    main()
