"""How things are measured: alternating runs, medians, CPU, and peak memory in a child."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, ParamSpec, TypeVar

__all__ = [
    "QUIET_LOAD",
    "PeakMemory",
    "Timing",
    "alternate",
    "empty_folder",
    "in_child",
    "load_average",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")

QUIET_LOAD: Final = 0.3
"""Load average, over one minute, above which times say more about the neighbours."""

_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Timing:
    """The runs of one way: seconds of the clock and of all processors."""

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of the clock."""
        return median(self.wall_s)

    @property
    def median_cpu_s(self) -> float:
        """The median of the processors, all threads together."""
        return median(self.cpu_s)


def alternate(
    ways: Mapping[str, Callable[[], object]],
    *,
    repeat: int,
    collector_on: bool = True,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """Run every way in turn, ``repeat`` rounds, and time each run.

    What a way returns is kept until its clock has stopped; freeing it, collecting, and
    ``before`` are outside the clock.
    """
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            before()
            gc.collect()
            with _collector(collector_on):
                runs[name].append(_timed(way))
            gc.collect()
    return {
        name: Timing(tuple(wall for wall, _ in own), tuple(cpu for _, cpu in own))
        for name, own in runs.items()
    }


def _timed(way: Callable[[], object]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    kept = way()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    del kept
    return wall, cpu


@contextmanager
def _collector(on: bool) -> Iterator[None]:
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        yield
    finally:
        (gc.enable if was_on else gc.disable)()


def empty_folder(folder: Path) -> None:
    """Remove what earlier runs left, so that each begins alike."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def in_child(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """``call(...)`` in a new process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(call, *args, **kwargs).result()


@dataclass(slots=True)
class PeakMemory:
    """The highest resident memory inside the block, beyond what was resident before.

    ``extra_bytes`` is None where the kernel does not reset its high-water mark (only
    Linux does, by ``/proc/self/clear_refs``).
    """

    extra_bytes: int | None = None
    _base_bytes: int | None = field(default=None, repr=False)

    def __enter__(self) -> PeakMemory:
        gc.collect()
        _give_free_memory_back()
        try:
            _CLEAR_REFS.write_text("5")
        except OSError:
            return self
        self._base_bytes = _status_bytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self._base_bytes is not None:
            self.extra_bytes = _status_bytes("VmHWM") - self._base_bytes


def _give_free_memory_back() -> None:
    """Without this, memory freed before would be used again and not be counted."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise LookupError(f"{_STATUS} does not state {name}")


def load_average() -> float:
    """Processes that wanted to run, on average over the last minute."""
    return os.getloadavg()[0]
