"""Commit and restore of a thousand sessions: this project beside the reference.

Run it by ``make bench`` or ``python benchmarks/commit_restore.py --help``;
``benchmarks/README.md`` says what is measured, and holds the last table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

if not __package__:
    # As a script, this file's own folder is on the path instead of the project's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import sets, ways
from benchmarks.layers import LAYERS, Layer, longest_line, restore_full, restore_lazy
from benchmarks.measure import (
    QUIET_LOAD,
    PeakMemory,
    Timing,
    alternate,
    empty_folder,
    in_child,
    load_average,
)
from benchmarks.report import Row, as_json, machine, table

__all__ = ["main", "measure"]

_RESTORES: Final = {"lazy": restore_lazy, "full": restore_full}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print a table or JSON."""
    options = _parser().parse_args(arguments)
    load = load_average()
    _say(f"load average {load:.2f} at the start")
    if load > QUIET_LOAD:
        _say(f"warning: above {QUIET_LOAD}, times are those of a busy machine")
    rows = [
        row
        for name in options.set or sets.NAMES
        for row in measure(
            name, options.sessions, options.repeat, options.layer or list(LAYERS), options.dir
        )
    ]
    if options.json:
        print(json.dumps(as_json(rows)))
        return
    print(machine())
    print(f"{options.sessions} sessions, median of {options.repeat}, load average {load:.2f}\n")
    print(table(rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sessions", type=_positive, default=1000, help="default: 1000")
    parser.add_argument("--repeat", type=_positive, default=5, help="rounds, default: 5")
    parser.add_argument("--set", action="append", choices=sets.NAMES, help="default: both")
    parser.add_argument("--layer", action="append", choices=LAYERS, help="default: both")
    parser.add_argument("--dir", type=Path, help="where to write; default: the temporary folder")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(
    name: str, sessions: int, repeat: int, layers: Sequence[str], folder: Path | None = None
) -> list[Row]:
    """Commit, restore and peak memory of one set; files go below ``folder`` and are removed."""
    with TemporaryDirectory(dir=folder, prefix="commit-restore-") as own:
        return list(_measure(name, sessions, repeat, layers, Path(own)))


def _measure(
    name: str, count: int, repeat: int, layers: Sequence[str], folder: Path
) -> Iterator[Row]:
    plain, bare = folder / "reference", folder / "bare"
    _say(f"{name}: {count} sessions, commit")
    sessions = sets.build(name, count)
    commits = alternate(
        {
            "reference": partial(ways.commit_reference, sessions, plain),
            "bare": partial(ways.commit_bare, sessions, bare),
            **{layer: partial(LAYERS[layer].commit, sessions, folder) for layer in layers},
        },
        repeat=repeat,
        before=partial(empty_folder, folder),
    )
    empty_folder(folder)
    sha256 = ways.commit_reference(sessions, plain)
    written = {layer: LAYERS[layer].commit(sessions, folder) for layer in layers}
    # A server that restores holds no exported sessions, for the collector to walk.
    del sessions
    restores = {
        collector: _restores(
            name, collector, repeat, partial(ways.restore_reference, plain, sha256), written
        )
        for collector in ("on", "off")
    }
    _say(f"{name}: peak memory")
    for layer in layers:
        commit_peak = in_child(_commit_peak, name, count, layer, folder)
        read_peak, longest = in_child(_read_peak, written[layer])
        row = partial(Row, layer=layer, set=name, longest_line_bytes=longest)
        yield row(op="commit", gc="on", ways=_beside(commits, layer), peak_extra_bytes=commit_peak)
        for collector, timings in restores.items():
            for way in _RESTORES:
                yield row(
                    op=f"restore_{way}",
                    gc=collector,
                    ways=_beside(timings, f"{layer} {way}"),
                    peak_extra_bytes=read_peak if (way, collector) == ("lazy", "on") else None,
                )


def _beside(timings: Mapping[str, Timing], ours: str) -> dict[str, Timing]:
    others = {name: timings[name] for name in ("reference", "bare") if name in timings}
    return {**others, "ours": timings[ours]}


def _restores(
    name: str,
    collector: str,
    repeat: int,
    reference: Callable[[], object],
    written: Mapping[str, Layer],
) -> dict[str, Timing]:
    _say(f"{name}: restore, collector {collector}")
    return alternate(
        {
            "reference": reference,
            **{
                f"{layer} {way}": partial(restore, place)
                for layer, place in written.items()
                for way, restore in _RESTORES.items()
            },
        },
        repeat=repeat,
        collector_on=collector == "on",
    )


def _commit_peak(name: str, count: int, layer: str, folder: Path) -> int | None:
    sessions = sets.build(name, count)
    with TemporaryDirectory(dir=folder) as own, PeakMemory() as peak:
        LAYERS[layer].commit(sessions, Path(own))
    return peak.extra_bytes


def _read_peak(written: Layer) -> tuple[int | None, int]:
    """The peak of a reader that keeps nothing, and the length of the longest line."""
    with PeakMemory() as peak:
        longest_bytes = longest_line(written)
    return peak.extra_bytes, longest_bytes


if __name__ == "__main__":
    main()
