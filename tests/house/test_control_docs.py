"""docs/control.md and the guides say what the code says, and their code runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from participant.core import errors
from participant.core.messages import REQUESTS
from participant.core.phases import diagram
from participant.http.replies import STATUS_OF
from participant.settings import Settings
from tests.support.guides import write_pages
from tests.support.tools import ROOT

CONTROL = (ROOT / "docs/control.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/guides/embed.md").read_text(encoding="utf-8")


def rows(text: str, cells: int) -> list[list[str]]:
    """The rows of the tables of ``text`` with that many cells."""
    split = [
        line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")
    ]
    return [[c.strip().strip("`") for c in row] for row in split if len(row) == cells]


def test_the_state_diagram_is_drawn_from_the_table() -> None:
    (drawn,) = re.findall(r"```mermaid\n(.*?)```", CONTROL, re.DOTALL)
    assert drawn == diagram()


def test_the_table_of_codes_is_that_of_the_code() -> None:
    listed = {r[0]: int(r[1]) for r in rows(CONTROL, 4) if r[1].isdecimal()}
    assert listed == STATUS_OF
    assert set(listed) == {getattr(errors, name).code for name in errors.__all__}


def test_the_table_of_routes_names_every_command() -> None:
    routes = [row[0] for row in rows(CONTROL, 3)]
    assert {f"POST `{command}" for command in REQUESTS} | {"GET `status"} <= set(routes)


def test_the_table_of_settings_has_every_member_and_its_default() -> None:
    listed = {row[0]: row[1] for row in rows(CONTROL, 3) if row[0] in Settings.__struct_fields__}
    defaults = {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    words = {None: "null", False: "false", "ckptfmt": '"ckptfmt"'}
    assert listed == {name: str(words.get(value, value)) for name, value in defaults.items()}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder with every file that the guide shows."""
    write_pages(GUIDE, tmp_path)
    return tmp_path


def test_the_server_of_the_guide_is_the_example(pages: Path) -> None:
    shown = (pages / "counter_server.py").read_text(encoding="utf-8")
    assert shown == (ROOT / "examples/counter_server.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["try_it.py"], "restored 3, counted on to 4"),
        (["many_steps.py"], "parked and went on"),
        (["-m", "pytest", "-q", "test_counter_hooks.py"], "11 passed"),
    ],
    ids=["try_it", "many_steps", "hooks"],
)
def test_the_code_of_the_guide_runs(pages: Path, arguments: list[str], says: str) -> None:
    command = [sys.executable, *arguments]
    run = subprocess.run(
        command, cwd=pages, capture_output=True, text=True, timeout=120, check=False
    )
    assert says in run.stdout, run.stdout + run.stderr
    assert run.returncode == 0
