"""docs/ledger.md says what the code of capture ledgers says."""

from __future__ import annotations

import re

from ckptfmt.ledger import limits
from ckptfmt.ledger.entry import TokenEntry
from ckptfmt.ledger.names import Kind
from ckptfmt.ledger.row import Row
from ckptfmt.ledger.rules import LEDGER_RULES
from tests.support.tools import ROOT

TEXT = (ROOT / "docs/ledger.md").read_text(encoding="utf-8")


def table_rows(*, wide: int) -> list[list[str]]:
    """The cells of every row of so many cells."""
    rows = (line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in row] for row in rows if len(row) == wide]


def test_every_limit_is_stated() -> None:
    stated = {row[0].strip("`"): row[1] for row in table_rows(wide=3)}
    assert {name: stated.get(name) for name in limits.__all__} == {
        name: f"{getattr(limits, name):,}" for name in limits.__all__
    }


def test_every_rule_is_stated_with_its_severity() -> None:
    stated = [
        (row[0].strip("`"), row[1]) for row in table_rows(wide=3) if row[0].startswith("`ledger-")
    ]
    assert stated == [(rule.rule_id, rule.severity) for rule in LEDGER_RULES.values()]


def test_every_file_and_field_is_named() -> None:
    for kind in Kind:
        assert f"`k.{kind}`" in TEXT
    for fields in (TokenEntry.__struct_fields__, Row.__struct_fields__):
        assert {name for name in fields if f"`{name}`" not in TEXT} <= {"extras"}


def test_the_errors_that_it_names_exist() -> None:
    errors = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    for code in re.findall(r"fails (?:as|with) `(\w+)`", TEXT):
        assert f"| `{code}` |" in errors
