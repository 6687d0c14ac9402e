"""docs/inspector.md says what the program does."""

from __future__ import annotations

import re

from ckptfmt.rules import RULES
from inspector.app import COMMANDS
from inspector.exit_codes import MEANINGS
from inspector.schemas import SCHEMAS
from tests.support.tools import ROOT


def rows(heading: str) -> list[list[str]]:
    """The cells of the last table below a heading, without its head."""
    text = (ROOT / "docs/inspector.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in table]
    return [[cell.strip() for cell in row] for row in cells[2:]]


def test_every_command_has_a_row() -> None:
    names = [re.match(r"`([a-z]+)", row[0]) for row in rows("Commands")]
    assert [name and name[1] for name in names] == list(COMMANDS)


def test_every_exit_code_has_a_row_with_its_meaning() -> None:
    """I39."""
    assert rows("Exit codes") == [[str(int(code)), text] for code, text in MEANINGS.items()]


def test_every_line_has_a_row_with_its_members() -> None:
    """I39."""
    documented = [
        ("" if command == "standard error" else command.strip("`"), kind.strip("`"), members)
        for command, kind, members in rows("Output")
    ]
    assert documented == [
        (command, kind, ", ".join(f"`{name}`" for name in schema["properties"] if name != "type"))
        for command, lines in SCHEMAS.items()
        for kind, schema in lines.items()
    ]


def test_every_rule_has_a_row() -> None:
    """I39."""
    assert rows("Rules") == [
        [f"`{rule.rule_id}`", str(rule.severity), rule.explanation] for rule in RULES.values()
    ]
