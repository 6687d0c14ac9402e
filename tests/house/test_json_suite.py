"""docs/json-suite.md says of each ``i_`` file what the code does with it (F24)."""

from __future__ import annotations

from pathlib import Path

from ckptfmt.errors import DepthError, JsonSyntaxError
from ckptfmt.payload import JsonPayload
from tests.house.test_docs import table_rows
from tests.support.tools import ROOT


def _outcome(data: bytes) -> str:
    try:
        JsonPayload.from_json(data)
    except (JsonSyntaxError, DepthError):
        return "refused"
    return "accepted"


def test_the_table_has_every_file_of_the_suite_that_may_be_either(shared_data: Path) -> None:
    files = sorted((shared_data / "json-test-suite" / "test_parsing").glob("i_*.json"))
    rows = [row for row in table_rows(ROOT / "docs/json-suite.md") if row[0].startswith("i_")]
    assert {row[0]: row[1] for row in rows} == {
        file.name: _outcome(file.read_bytes()) for file in files
    }
    assert all(len(row) == 3 and row[2] for row in rows)
