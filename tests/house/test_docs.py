"""The documents say what the code says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import participant.errors
from ckptfmt import errors, wire
from tests.support.tools import ROOT


def table_rows(path: Path) -> list[list[str]]:
    """The cells of every Markdown table row of a document, without their backticks."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        for line in lines
        if line.lstrip().startswith("|")
    ]


def error_tree() -> list[Any]:
    """Every class of the format's tree, then of the controller's, in the order of definition."""
    trees = (errors, errors.CkptError), (participant.errors, participant.errors.CoordinationError)
    return [
        value
        for module, base in trees
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base)
    ]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = Counter(vars(kind).get("code") for kind in error_tree())
    assert None not in codes
    assert [code for code, count in codes.items() if count > 1] == []


def test_errors_md_has_one_row_for_every_class_and_no_other() -> None:
    known = [(kind.code, kind.__name__, kind.__mro__[1].__name__) for kind in error_tree()]
    rows = [row for row in table_rows(ROOT / "docs/errors.md") if len(row) == 5]
    assert all(all(row) for row in rows)
    documented = [(row[0], row[1], row[2]) for row in rows if re.fullmatch(r"[a-z_]+", row[0])]
    assert documented == known


def spellings(value: int | bytes | str) -> set[str]:
    """How docs/format.md may spell a constant of ``wire``."""
    if isinstance(value, int):
        return {str(value), f"{value:,}", f"0x{value:X}", f"0x{value:08X}"}
    if isinstance(value, bytes):
        return {value.decode("latin-1"), value.hex(), value.hex(" ")}
    return {value}


def test_format_md_states_every_number_of_wire_once_and_rightly() -> None:
    rows = table_rows(ROOT / "docs/format.md")
    stated = [(row[0], row[1]) for row in rows if re.fullmatch(r"[A-Z][A-Z0-9_]{3,}", row[0])]
    assert sorted(name for name, _ in stated) == sorted(wire.__all__)
    wrong = {n: text for n, text in stated if text not in spellings(getattr(wire, n))}
    assert wrong == {}
