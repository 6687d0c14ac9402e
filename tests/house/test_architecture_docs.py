"""``docs/architecture.md`` speaks of what there is."""

from __future__ import annotations

import re

from participant.coordination.orders import KINDS
from tests.support.tools import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_and_document_that_it_names_is_there() -> None:
    named = re.findall(r"`((?:ckptfmt|participant|inspector|examples|tests)/[\w/.]+)`", TEXT)
    linked = [f"docs/{target}" for target in re.findall(r"\]\(([^)#]+)\)", TEXT)]
    assert len(named) > 15
    assert len(linked) >= 5
    assert [path for path in (*named, *linked) if not (ROOT / path).exists()] == []


def test_every_file_of_the_example_job_has_its_line_or_serves_the_others() -> None:
    files = {path.name for path in (ROOT / "examples" / "job").glob("*.py")}
    unnamed = {name for name in files if f"examples/job/{name}" not in TEXT}
    assert unnamed == {"peers.py", "setup.py", "tasks.py"}


def test_a_checkpoint_prepares_kinds_in_the_order_of_the_table() -> None:
    prepare = TEXT[TEXT.index(" prepare ─►") :]
    places = [prepare.index(kind) for kind in KINDS]
    assert places == sorted(places)
