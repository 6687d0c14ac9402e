"""docs/coordination.md and its guide say what the code says, and their code runs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from participant import coordination
from participant.coordination.orders import ORDERS
from tests.support.guides import write_pages
from tests.support.tools import ROOT

PAGE = (ROOT / "docs/coordination.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/guides/controller.md").read_text(encoding="utf-8")


def test_the_table_of_orders_is_that_of_the_code() -> None:
    lines = (line.strip("|") for line in PAGE.splitlines() if line.startswith("| `"))
    rows = [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]
    told = {
        name: (tuple(tuple(cell.split(", ")) for cell in stages if cell), ends == "is the last one")
        for name, *stages, ends in rows
        if name in ORDERS
    }
    assert told == {name: (order.stages, order.stops) for name, order in ORDERS.items()}


def test_every_function_is_told_of() -> None:
    functions = [n for n in coordination.__all__ if inspect.isfunction(getattr(coordination, n))]
    assert [name for name in functions if f"`{name}`" not in PAGE + GUIDE] == ["checkpoint"]
    assert "`coordination.checkpoint`" in PAGE


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder with every file that the guide shows."""
    write_pages(GUIDE, tmp_path)
    return tmp_path


def test_the_code_of_the_guide_runs(pages: Path) -> None:
    run = subprocess.run(
        [sys.executable, "try_it.py"],
        cwd=pages, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.stdout == "continued and finished 8 episodes\n", run.stdout + run.stderr
    assert run.returncode == 0
