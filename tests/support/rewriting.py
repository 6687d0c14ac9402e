"""A second process that reads a stream and writes what it read in three ways.

Run as a program it answers requests, one a line: the folder of ``source.zst``.  It writes
there ``unchanged.zst``, the records as they were read; ``spliced.zst``, copies of them
that are put together from their payloads; ``anew.zst``, records made from the decoded
values; and ``shown.txt``, what :func:`shown` says of each record's values.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record
from ckptfmt.stream import FileSource, StreamReader, StreamWriter
from ckptfmt.testing.same import dumped

__all__ = ["Rewriter", "Rewritten", "read_lines", "shown", "write_lines"]

_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"ensure_ascii": False, "separators": (",", ":")},
    {"indent": 1, "skipkeys": True},
)


def shown(values: Mapping[str, object]) -> str:
    """A digest of how Python shows the values: types, order, signs, ``json.dumps`` bytes."""
    texts = [repr(values), *(dumped(values, **options) for options in _OPTIONS)]
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def write_lines(path: Path, lines: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    """A whole stream of these keys and lines."""
    with (
        path.open("wb") as sink,
        StreamWriter(sink, kind="agent", instance="a", checkpoint_id="c") as writer,
    ):
        for key, line in lines:
            writer.add(key, line)
        writer.close()


def read_lines(path: Path) -> list[bytes]:
    """The lines of a stream, strictly verified."""
    with StreamReader(FileSource.open(path)) as reader:
        return [stored.line for stored in reader.lines()]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What the second process made of a stream, record by record."""

    unchanged: list[bytes]
    spliced: list[bytes]
    anew: list[bytes]
    shown: list[str]


class Rewriter:
    """The second process, kept for many streams."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rewrite(self, records: Iterable[Record]) -> Rewritten:
        """Send records through a file and the process."""
        write_lines(
            self._folder / "source.zst", ((record.key, record.line()) for record in records)
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(self._folder, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "done\n", "the second process failed"
        return Rewritten(
            *(
                read_lines(self._folder / f"{name}.zst")
                for name in ("unchanged", "spliced", "anew")
            ),
            (self._folder / "shown.txt").read_text().split(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()


def _answer(folder: Path) -> None:
    records = [Record.from_line(line) for line in read_lines(folder / "source.zst")]
    values = [{name: p.value() for name, p in record.members.items()} for record in records]
    (folder / "shown.txt").write_text("\n".join(map(shown, values)))
    made = [
        replace(record, members={name: JsonPayload.from_value(v) for name, v in own.items()})
        for record, own in zip(records, values, strict=True)
    ]
    for name, written in (
        ("unchanged", records),
        ("spliced", map(replace, records)),
        ("anew", made),
    ):
        write_lines(folder / f"{name}.zst", ((record.key, record.line()) for record in written))


def _serve() -> None:
    for request in sys.stdin:
        _answer(Path(request.rstrip("\n")))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
