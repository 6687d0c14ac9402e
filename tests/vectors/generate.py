"""Writes ``fixtures/vectors/v1`` and ``fixtures/hostile`` anew; `make vectors`.

A vector that exists never changes: what is written is held against ``SHA256SUMS``, to which new
cases are added.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from itertools import chain
from pathlib import Path
from typing import Final

import zstandard

from tests.vectors.building import write_cases
from tests.vectors.cases import FIXTURES
from tests.vectors.golden import golden_cases
from tests.vectors.hostile_checkpoints import hostile_checkpoints
from tests.vectors.hostile_records import hostile_records
from tests.vectors.hostile_streams import hostile_streams

__all__ = ["SUMS", "checksums", "generate", "zstd_version"]


SUMS: Final = "SHA256SUMS"


def zstd_version() -> str:
    """The zstd library that compresses here: frames are equal only where it is."""
    return ".".join(map(str, zstandard.ZSTD_VERSION))


def generate(folder: Path) -> None:
    """Write both trees into ``folder``."""
    vectors = folder / "vectors/v1"
    write_cases(golden_cases(), vectors)
    (vectors / "ZSTD_VERSION").write_text(zstd_version() + "\n")
    (vectors / SUMS).write_text(checksums(vectors))
    hostile = chain(hostile_streams(), hostile_records(), hostile_checkpoints())
    write_cases(hostile, folder / "hostile")


def checksums(folder: Path) -> str:
    """What ``sha256sum -c`` takes: a line a file, sorted by name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in files
    )


def _main() -> None:
    new = FIXTURES / "new"
    generate(new)
    stored = FIXTURES / "vectors/v1" / SUMS
    old = set(stored.read_text().splitlines()) if stored.exists() else set()
    if lost := old - set((new / "vectors/v1" / SUMS).read_text().splitlines()):
        shutil.rmtree(new)
        sys.exit("frozen files would change:\n" + "\n".join(sorted(lost)))
    for made in new.iterdir():
        shutil.rmtree(FIXTURES / made.name, ignore_errors=True)
        made.rename(FIXTURES / made.name)
    new.rmdir()


if __name__ == "__main__":
    _main()
