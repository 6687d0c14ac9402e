"""What the libraries alone need for a commit: the floor under this project's own time.

One thread makes the calls that every commit has to make, and nothing else; each kind of
call has a clock of its own.  Their sum, spread over the processors as if no thread ever
waited, is the floor; beside it stand the bare way and the record stream, as in
:mod:`benchmarks.commit_restore`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

if not __package__:
    # As a script, this file's own folder is on the path instead of the project's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import google_crc32c
import orjson
import ormsgpack
from rich.console import Console
from rich.table import Table

from benchmarks import sets, ways
from benchmarks.layers import StreamLayer
from benchmarks.measure import alternate, empty_folder, load_average
from benchmarks.report import machine
from benchmarks.sets import Session
from ckptfmt.stream.codec import Compressor
from ckptfmt.wire import BLOCK_TARGET_BYTES

__all__ = ["Clocks", "commit_calls", "main"]

_LEVEL: Final = 1
_PROCESSORS: Final = 2


class Clocks:
    """Seconds by name, added up over many short calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add what the block takes to ``name``."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def commit_calls(sessions: Sequence[Session], path: Path) -> dict[str, float]:
    """Make a commit's library calls in one thread, write and fsync; seconds of each kind."""
    clocks, compressor = Clocks(), Compressor(_LEVEL)
    file_hash = hashlib.sha256()
    with path.open("wb") as file:

        def put(lines: list[bytes]) -> None:
            with clocks.time("join, zstd"):
                frame = compressor.compress(b"\n".join(lines))
            with clocks.time("SHA-256"):
                file_hash.update(frame)
            with clocks.time("write, fsync"):
                file.write(frame)

        for lines in _blocks(sessions, clocks):
            put(lines)
        with clocks.time("write, fsync"):
            file.flush()
            os.fsync(file.fileno())
    return clocks.seconds


def _blocks(sessions: Sequence[Session], clocks: Clocks) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    for session in sessions:
        with clocks.time("check of types"):
            ormsgpack.packb(session.state, option=ormsgpack.OPT_PASSTHROUGH_TUPLE)
        with clocks.time("encode"):
            lines.append(orjson.dumps(session.state))
        with clocks.time("SHA-256"):
            hashlib.sha256(lines[-1]).digest()
        with clocks.time("crc32c"):
            google_crc32c.value(lines[-1])
        if sum(map(len, lines)) >= BLOCK_TARGET_BYTES:
            yield lines
            lines = []
    if lines:
        yield lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000, help="default: 1000")
    parser.add_argument("--repeat", type=int, default=5, help="rounds, default: 5")
    options = parser.parse_args(arguments)
    console = Console()
    console.print(machine())
    rounds = f"{options.sessions} sessions, median of {options.repeat}"
    console.print(f"{rounds}, load average {load_average():.2f}")
    for name in sets.NAMES:
        with TemporaryDirectory(prefix="floor-") as folder:
            console.print(_table(name, options.sessions, options.repeat, Path(folder)))


def _table(name: str, count: int, repeat: int, folder: Path) -> Table:
    sessions = sets.build(name, count)
    calls: list[dict[str, float]] = []
    timings = alternate(
        {
            "bare": partial(ways.commit_bare, sessions, folder / "bare"),
            "floor": lambda: calls.append(commit_calls(sessions, folder / "calls")),
            "stream": partial(StreamLayer.commit, sessions, folder),
        },
        repeat=repeat,
        before=partial(empty_folder, folder),
    )
    bare_s = timings["bare"].median_s
    table = Table("set", "what", "s", "of bare")
    for kind in calls[0]:
        table.add_row(name, kind, f"{median(run[kind] for run in calls):.3f}", "")
    floor_s = median(sum(run.values()) for run in calls) / _PROCESSORS
    for what, seconds in (
        ("floor", floor_s),
        ("stream", timings["stream"].median_s),
        ("bare", bare_s),
    ):
        table.add_row(name, what, f"{seconds:.3f}", f"{seconds / bare_s:.2f}")
    return table


if __name__ == "__main__":
    main()
