"""Commit and restore of a thousand sessions: this project beside the reference.

Run it by ``make bench`` or ``python benchmarks/commit_restore.py --help``;
``benchmarks/README.md`` says what is measured, and holds the last table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

if not __package__:
    # As a script, this file's own folder is on the path instead of the project's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import sets, ways
from benchmarks.measure import QUIET_LOAD, PeakMemory, Timing, alternate, in_child, load_average
from benchmarks.report import Row, as_json, machine, table
from ckptfmt.stream import StreamFacts

__all__ = ["main", "measure"]


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
        for row in measure(name, options.sessions, options.repeat, options.dir)
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


def measure(name: str, sessions: int, repeat: int, folder: Path | None = None) -> list[Row]:
    """Commit, restore and peak memory of one set; files go below ``folder`` and are removed."""
    with TemporaryDirectory(dir=folder, prefix="commit-restore-") as own:
        return list(_measure(name, sessions, repeat, Path(own)))


def _measure(name: str, count: int, repeat: int, folder: Path) -> Iterator[Row]:
    plain, bare, stream = (folder / file for file in ("reference", "bare", "stream"))
    _say(f"{name}: {count} sessions, commit")
    sessions = sets.build(name, count)
    commits = alternate(
        {
            "reference": partial(ways.commit_reference, sessions, plain),
            "bare": partial(ways.commit_bare, sessions, bare),
            "ours": partial(ways.commit_stream, sessions, stream),
        },
        repeat=repeat,
        before=partial(_empty, folder),
    )
    _empty(folder)
    sha256, facts = ways.commit_reference(sessions, plain), ways.commit_stream(sessions, stream)
    # A server that restores holds no exported sessions, for the collector to walk.
    del sessions
    restores = {
        collector: _restores(name, collector, repeat, plain, sha256, stream, facts)
        for collector in ("on", "off")
    }
    _say(f"{name}: peak memory")
    commit_peak = in_child(_commit_peak, name, count, folder / "peak")
    read_peak, longest = in_child(_read_peak, stream, facts)
    row = partial(Row, set=name, longest_line_bytes=longest)
    yield row(op="commit", gc="on", ways=commits, peak_extra_bytes=commit_peak)
    for collector, timings in restores.items():
        for way in ("lazy", "full"):
            yield row(
                op=f"restore_{way}",
                gc=collector,
                ways={"reference": timings["reference"], "ours": timings[way]},
                peak_extra_bytes=read_peak if (way, collector) == ("lazy", "on") else None,
            )


def _restores(
    name: str,
    collector: str,
    repeat: int,
    plain: Path,
    sha256: str,
    stream: Path,
    facts: StreamFacts,
) -> dict[str, Timing]:
    _say(f"{name}: restore, collector {collector}")
    return alternate(
        {
            "reference": partial(ways.restore_reference, plain, sha256),
            "lazy": partial(ways.restore_stream_lazy, stream, facts),
            "full": partial(ways.restore_stream_full, stream, facts),
        },
        repeat=repeat,
        collector_on=collector == "on",
    )


def _commit_peak(name: str, count: int, path: Path) -> int | None:
    sessions = sets.build(name, count)
    with PeakMemory() as peak:
        ways.commit_stream(sessions, path)
    return peak.extra_bytes


def _read_peak(path: Path, facts: StreamFacts) -> tuple[int | None, int]:
    """The peak of a reader that keeps nothing, and the length of the longest line."""
    with PeakMemory() as peak:
        longest_bytes = ways.read_stream(path, facts)
    return peak.extra_bytes, longest_bytes


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


if __name__ == "__main__":
    main()
