"""Every vector reads as its ``expected.json`` says: by the packages, and by the mini reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.errors import CkptError
from ckptfmt.layout import Folder
from ckptfmt.rules import Severity
from ckptfmt.store.local import LocalStore
from ckptfmt.verify import Level, verify
from tests.vectors import mini_reader, our_reader
from tests.vectors.cases import VECTORS, case_folders
from tests.vectors.mini_reader import RefusedError
from tests.vectors.spelling import spell

CASES = case_folders(VECTORS)


def expected(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    del told["about"]
    return told


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_packages_read_every_vector(folder: Path) -> None:
    try:
        found = our_reader.read(folder)
    except CkptError as error:
        found = {"error": error.code}
    assert found == expected(folder)


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_mini_reader_reads_every_vector(folder: Path) -> None:
    try:
        found = mini_reader.read(folder)
    except RefusedError as refused:
        found = {"error": refused.args[0]}
    else:
        parts = found.get("participants", {"": found}).values()
        for part in parts:
            part["records"] = list(map(_spelled, part["records"]))
    assert found == expected(folder)


def _spelled(record: dict[str, Any]) -> dict[str, Any]:
    values = {name: spell(value) for name, value in record["values"].items()}
    return {**record, "values": values}


@pytest.mark.parametrize(
    "folder",
    [folder for folder in CASES if (folder / "checkpoint/checkpoint.json").exists()],
    ids=lambda folder: folder.name,
)
def test_deep_verification_finds_nothing_in_the_whole_checkpoints(folder: Path) -> None:
    error = expected(folder).get("error")
    findings = [
        finding.code
        for finding in verify(LocalStore(folder / "checkpoint"), Folder(), level=Level.DEEP)
        if finding.rule.severity is Severity.ERROR
    ]
    assert findings == ([error] if error else [])


def test_the_mini_reader_stays_small_and_shares_no_code() -> None:
    text = Path(mini_reader.__file__).read_text()
    assert len(text.splitlines()) <= 250
    assert not re.search(r"^\s*(import|from) (ckptfmt|tests)\b", text, re.MULTILINE)
