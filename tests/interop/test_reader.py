"""The reader in JavaScript, written from docs/format.md alone, reads and refuses what ours does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools import require_folder, require_tool
from tests.vectors.cases import HOSTILE, VECTORS, case_folders

HERE = Path(__file__).parent


def run(folders: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    """The reader over these cases."""
    node = require_tool("node")
    require_folder(HERE / "node_modules", "npm ci --prefix tests/interop")
    return subprocess.run(
        [node, HERE / "reader.mjs", *folders], capture_output=True, text=True, check=False
    )


def read_all(folders: Sequence[Path]) -> dict[str, Any]:
    """What it prints of each case."""
    done = run(folders)
    assert done.stderr == ""
    # Not splitlines(): the lines hold characters that it takes for line ends.
    lines = [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]
    return {folder.name: found for folder, found in zip(folders, lines, strict=True)}


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    return read_all(case_folders(VECTORS))


@pytest.fixture(scope="module")
def hostile() -> dict[str, Any]:
    return read_all(case_folders(HOSTILE))


@pytest.mark.parametrize("folder", case_folders(VECTORS), ids=lambda folder: folder.name)
def test_it_reads_every_vector(vectors: dict[str, Any], folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    del expected["about"]
    found = vectors[folder.name]
    found.pop("why", None)
    assert found == expected


@pytest.mark.parametrize("folder", case_folders(HOSTILE), ids=lambda folder: folder.name)
def test_it_refuses_every_hostile_case(hostile: dict[str, Any], folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    assert hostile[folder.name].get("error") == expected["code"], hostile[folder.name]


def test_a_refusal_is_an_exit_code() -> None:
    assert run([VECTORS / "one-block"]).returncode == 0
    assert run([VECTORS / "one-block", HOSTILE / "grown-by-one"]).returncode == 1
