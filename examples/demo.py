"""A job of four servers and a controller that survives ``kill -9``; then a round trip.

Run it by ``make demo``.  The job plays its episodes twice on the same tasks: once as if
nothing happened, and once with checkpoints, a kill of every process, and a restore into
fresh ones.  Both have to come to the same, to the last byte.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.sets import rollouts
from examples.job.judging import Life, Verdict, judge
from examples.job.processes import Processes, start
from examples.job.setup import Journal
from examples.job.tasks import make_tasks
from examples.round_trip import round_trip
from examples.showing import Progress, inspect, say, step

_TOKEN_S: Final = 0.02
_POLL_S: Final = 0.02


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=64, help="at least 4; default: 64")
    parser.add_argument("--seed", type=int, default=1, help="of tasks and tools; default: 1")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="work there, and leave it")
    options = parser.parse_args()
    if options.episodes < 4:
        parser.error("with fewer than 4 episodes nothing is in mid-flight")
    if options.keep is not None:
        options.keep.mkdir(parents=True)
        _demo(options.keep.resolve(), options.episodes, options.seed)
        return
    with tempfile.TemporaryDirectory(prefix="ckptfmt-demo-") as scratch:
        _demo(Path(scratch), options.episodes, options.seed)


def _demo(folder: Path, episodes: int, seed: int) -> None:
    documents = rollouts()
    print(f"{episodes} episodes on {len(documents)} rollouts as documents, seed {seed}\n")
    tasks = folder / "tasks.json"
    tasks.write_text(json.dumps(make_tasks(documents, episodes, seed, token_s=_TOKEN_S)))
    job = _Job(folder, tasks, episodes)
    job.run_whole()
    job.run_until_killed()
    job.finish()
    job.compare()
    run = job.killed / "run"
    inspect("ls", str(run))
    inspect("info", f"{run}@latest")
    inspect("validate", "--level", "deep", f"{run}@latest")
    round_trip(folder / "round-trip")


class _Job:
    """The job, uninterrupted in the folder ``whole`` and interrupted in ``killed``."""

    def __init__(self, folder: Path, tasks: Path, episodes: int) -> None:
        self.whole = folder / "whole"
        self.killed = folder / "killed"
        self._tasks = tasks
        self._episodes = episodes
        self._lives: list[Life] = []
        self._checkpoint = self.killed / "run" / "ck-2"

    def run_whole(self) -> None:
        """What the other run has to come to."""
        with (
            step("run the job: four servers and a controller, each a process"),
            start(self.whole) as processes,
        ):
            self._play(processes, self.whole, lambda: processes.ended("controller"))
        say(f"{self._episodes} episodes, {_length(self.whole, 'calls')} model calls, "
            f"{_length(self.whole, 'steps')} steps of tools")  # fmt: skip

    def run_until_killed(self) -> None:
        """Two checkpoints: after the first the job goes on, after the second everything dies."""
        at = [str(self._episodes // 4), str(self._episodes // 2)]
        with start(self.killed) as processes:
            with step("run it again, and take two checkpoints in mid-flight"):
                self._lives.append(_life(processes))
                self._play(processes, self.killed, self._has_checkpoint, "--checkpoint-at", *at)
            say(f"{_length(self.killed, 'results')} episodes have ended, "
                f"{self._in_flight()} are in flight")  # fmt: skip
            with step("kill -9 every process"):
                killed = processes.kill()
            say(f"killed {', '.join(map(str, killed))}")

    def finish(self) -> None:
        """Fresh processes go on from the second checkpoint."""
        ended = [line["rollout"] for line in Journal.read(self.killed / "results.jsonl")]
        with (
            step("restore in fresh processes, and finish"),
            start(self.killed) as processes,
        ):
            self._lives.append(_life(processes, self._checkpoint, ended))
            self._play(
                processes, self.killed, lambda: processes.ended("controller"),
                "--restore", "restore-1",
            )  # fmt: skip
        say(f"{_length(self.killed, 'results')} episodes have ended")

    def compare(self) -> None:
        """Of both runs everything, exactly."""
        with step("compare both runs"):
            verdict: Verdict = judge(self.whole, self.killed, self._lives)
        print(f"    equal: {verdict.episodes} transcripts and rewards, "
              f"{verdict.calls} model calls, {verdict.steps} steps of tools")  # fmt: skip
        print("    nothing that was committed ran twice")
        say(f"in flight at the kill, and done again: {verdict.lost_calls} model calls, "
            f"{verdict.lost_steps} steps; at most one of each an episode")  # fmt: skip

    def _play(
        self, processes: Processes, folder: Path, is_over: Callable[[], bool], *arguments: str
    ) -> None:
        processes.start_controller("--tasks", str(self._tasks), *arguments)
        progress = Progress(self._episodes, "episodes have ended")
        while not is_over():
            progress.show(_length(folder, "results"))
            processes.check()
            time.sleep(_POLL_S)
        progress.end()

    def _has_checkpoint(self) -> bool:
        return (self._checkpoint / "checkpoint.json").exists()

    def _in_flight(self) -> int:
        manifest = json.loads((self._checkpoint / "checkpoint.json").read_text())
        return len(manifest["scope"])


def _life(
    processes: Processes, checkpoint: Path | None = None, finished: list[str] | None = None
) -> Life:
    pids = {kind: processes[kind] for kind in ("resources", "model")}
    return Life(pids, checkpoint, finished or [])


def _length(folder: Path, journal: str) -> int:
    """How many lines a journal has."""
    return len(Journal.read(folder / f"{journal}.jsonl"))


if __name__ == "__main__":
    main()
