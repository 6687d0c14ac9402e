"""Where fuzzing starts: the vectors, the hostile cases, and the corpus of earlier runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.vectors.cases import FIXTURES, HOSTILE, VECTORS

__all__ = ["CORPUS", "seeds"]

CORPUS: Final = FIXTURES / "corpus"
_SEAL_BYTES: Final = 83


def seeds(target: str) -> Iterator[bytes]:
    """The inputs of a target that are not of its own corpus."""
    for tree in (VECTORS, HOSTILE):
        for path in sorted(tree.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield from _of(target, path)


def _of(target: str, path: Path) -> Iterator[bytes]:
    match target, path.name:
        case "stream", name if name.endswith(".zst"):
            yield path.read_bytes()
        case "manifest", "manifest.json" | "checkpoint.json":
            yield path.read_bytes()
            yield path.read_bytes()[:-_SEAL_BYTES]
        case "exact", "expected.json":
            for record in json.loads(path.read_text()).get("records", ()):
                yield record["line"].encode()
                yield from (text.encode() for text in record["texts"].values())
