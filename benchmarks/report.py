"""What was measured, as a table for people and as JSON for machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Timing

__all__ = ["SCHEMA", "Row", "as_json", "machine", "table"]

SCHEMA: Final = "bench/commit_restore/1"

_LIBRARIES: Final = ("google-crc32c", "msgspec", "orjson", "ormsgpack", "zstandard")
_MIB: Final = 1 << 20
# Peak memory beyond the caller's objects: this, and so many times the longest line.
_PEAK_BYTES: Final = 64 * _MIB
_PEAK_LINES: Final = {"commit": 3, "restore_lazy": 1}
# At least so many times as fast as the reference: (operation, collector, set).
_FASTER: Final = {
    ("commit", "on", "real"): 2.5,
    ("commit", "on", "numeric"): 4.0,
    **{("restore_lazy", "on", name): 6.0 for name in ("real", "numeric")},
    **{("restore_lazy", "off", name): 4.0 for name in ("real", "numeric")},
    **{("restore_full", "on", name): 2.5 for name in ("real", "numeric")},
    **{("restore_full", "off", name): 1.3 for name in ("real", "numeric")},
}
# A commit takes at most so many times as long as the bare one.
_SLOWER: Final = {"real": 1.8, "numeric": 2.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation of one layer on one set.

    ``ways`` are ``reference``, ``ours`` and, of a commit, ``bare``.
    ``peak_extra_bytes`` is None where it was not measured; ``longest_line_bytes`` is of
    the set, and a part of the bar for it.
    """

    layer: str
    set: str
    op: str
    gc: str
    ways: Mapping[str, Timing]
    longest_line_bytes: int
    peak_extra_bytes: int | None = None

    @property
    def ratio(self) -> float:
        """How many times as fast as the reference."""
        return self.ways["reference"].median_s / self.ways["ours"].median_s

    @property
    def vs_bare(self) -> float | None:
        """How many times as long as the bare way; None of a restore."""
        bare = self.ways.get("bare")
        return None if bare is None else self.ways["ours"].median_s / bare.median_s


def as_json(rows: Iterable[Row]) -> dict[str, Any]:
    """The results for programs: members are only ever added."""
    return {"schema": SCHEMA, "results": [_result(row) for row in rows]}


def _result(row: Row) -> dict[str, Any]:
    bare, peak = row.ways.get("bare"), row.peak_extra_bytes
    return {
        "layer": row.layer,
        "set": row.set,
        "op": row.op,
        "reference_s": round(row.ways["reference"].median_s, 6),
        "ours_s": round(row.ways["ours"].median_s, 6),
        "bare_s": None if bare is None else round(bare.median_s, 6),
        "ratio": round(row.ratio, 3),
        "vs_bare": None if row.vs_bare is None else round(row.vs_bare, 3),
        "peak_extra_mib": None if peak is None else round(peak / _MIB, 1),
        "gc": row.gc,
    }


_HEADINGS: Final = (
    "layer", "set", "operation", "gc", "reference s", "bare s", "ours s",
    "faster than reference", "of bare", "CPU s", "peak MiB",
)  # fmt: skip


def table(rows: Iterable[Row]) -> str:
    """The results for people, as a Markdown table; ``!`` marks a bar that is missed."""
    lines = [_HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    ways = [row.ways.get(name) for name in ("reference", "bare", "ours")]
    cpu = " / ".join(f"{way.median_cpu_s:.2f}" for way in ways if way is not None)
    return (
        row.layer, row.set, row.op, row.gc, *map(_seconds, ways),
        _against(row.ratio, at_least=_FASTER[row.op, row.gc, row.set]),
        "" if row.vs_bare is None else _against(row.vs_bare, at_most=_SLOWER[row.set]),
        cpu, _peak(row),
    )  # fmt: skip


def _seconds(timing: Timing | None) -> str:
    if timing is None:
        return ""
    return f"{timing.median_s:.3f} ({min(timing.wall_s):.3f} to {max(timing.wall_s):.3f})"


def _peak(row: Row) -> str:
    if row.peak_extra_bytes is None:
        return ""
    bar_bytes = _PEAK_BYTES + _PEAK_LINES[row.op] * row.longest_line_bytes
    return _against(row.peak_extra_bytes / _MIB, at_most=bar_bytes / _MIB, digits=1)


def _against(
    value: float, *, at_least: float = 0.0, at_most: float = float("inf"), digits: int = 2
) -> str:
    bar = f"≥ {at_least:g}" if at_least else f"≤ {at_most:.4g}"
    missed = "" if at_least <= value <= at_most else "! "
    return f"{missed}{value:.{digits}f} ({bar})"


def machine() -> str:
    """What the times depend on besides the code: processor, kernel, versions."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return (
        f"{_processor()}, {os.cpu_count()} cores; {platform.system()} {platform.release()}; "
        f"Python {platform.python_version()}; {libraries}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
