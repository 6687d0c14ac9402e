"""The JSON contract: real output of every command is what its schema documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.layout import DataName, new_token
from inspector.app import COMMANDS
from inspector.schemas import SCHEMAS
from tests.support.damage import flip
from tests.support.inspecting import Ran, documented, inspect, strict

CALLS: list[tuple[str, ...]] = [
    ("ls", "RUN"),
    ("ls", "RUN", "--limit", "1"),
    ("ls", "CK"),
    ("ls", "CK", "agent"),
    ("ls", "RUN@latest"),
    ("info", "CK"),
    ("info", "RUN@latest"),
    ("cat", "CK"),
    ("cat", "CK", "--limit", "1"),
    ("cat", "CK", "agent/a1/nothing"),
    ("get", "CK", "agent/a1/r1"),
    ("get", "CK", "resources/r1/r1#/state"),
    ("get", "CK", "resources/r1/r1#/state/rows/0/1"),
    ("get", "CK", "agent/a1/nothing"),
    ("get", "CK", "agent/a1/nothing", "--default", "1"),
    ("get", "CK", "agent"),
    ("validate", "CK"),
    ("validate", "CK", "RUN@latest", "--level", "deep"),
    ("validate", "CK", "--level", "quick", "--exit-zero"),
    ("validate", "CK", "--sample", "1"),
    ("validate", "--list-rules"),
    ("validate", "--explain", "stream"),
    ("validate", "NOTHING"),
    ("ledger", "RUN"),
    ("ledger", "RUN", "r1", "--verify"),
    ("recover", "CK", "-o", "NEW"),
    ("gc", "RUN"),
    ("gc", "RUN", "--apply"),
    *((name, "NOTHING") for name in ("ls", "info", "cat", "ledger", "gc")),
]


def called(call: tuple[str, ...], run: Path, form: str) -> Ran:
    names = {"RUN": str(run), "CK": str(run / "ck-1"), "RUN@latest": f"{run}@latest"}
    names |= {"NEW": str(run.parent / f"new-{form}"), "NOTHING": str(run / "nothing")}
    return inspect(*(names.get(word, word) for word in call), "--format", form, "-v")


@pytest.mark.parametrize("damage", ["none", "data", "manifest", "aggregate", "leftovers"])
@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_line_is_documented(call: tuple[str, ...], damage: str, run: Path) -> None:
    """I33, I35."""
    if damage == "data":
        flip(next((run / "ck-1/agent/a1").glob("records-*")), 200)
    elif damage == "manifest":
        flip(run / "ck-1/agent/a1/manifest.json", 20)
    elif damage == "aggregate":
        flip(run / "ck-1/checkpoint.json", 20)
    elif damage == "leftovers":
        (run / "ck-1/agent/a1" / str(DataName(new_token(), 0))).write_text("")
        (run / "ck-1/notes").write_text("")
    ran = called(call, run, "ndjson")
    *items, summary = ran.lines
    assert summary["type"] == "summary"
    assert summary["exit_code"] == ran.code
    for item in (*items, summary):
        documented(call[0], item)
    for told in ran.told:
        documented("", told)
    if ran.code:
        assert summary["reason"]
    elif call[:2] != ("gc", "RUN"):
        whole = called(call, run, "json")
        assert whole.code == ran.code
        assert [item["type"] for item in whole.document["items"]] == [
            item["type"] for item in items
        ]
        assert whole.document["schema"] == f"ckpt-inspect/{call[0]}/1"


def test_every_command_has_a_contract() -> None:
    assert set(SCHEMAS) == {"", *COMMANDS}
    assert all("summary" in lines for name, lines in SCHEMAS.items() if name)


def test_progress_is_documented(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I32, I33: signs of life on standard error, data only on standard output."""
    monkeypatch.setattr("inspector.output.progress._LINE_EVERY_S", 0.0)
    ran = inspect("validate", checkpoint, "--json")
    assert [told["type"] for told in ran.told] == ["progress"] * 6
    assert ran.told[-1]["total_records"] == 6
    for told in ran.told:
        documented("", told)
    text = inspect("validate", checkpoint)
    assert "6 of 6 records" in text.stderr
    assert "of 6 records" not in text.text
    assert inspect("validate", checkpoint, "-q").stderr == ""


def test_a_bug_is_documented(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("\ud800 boom")

    monkeypatch.setattr("inspector.commands.ls.list_checkpoints", broken)
    ran = inspect("ls", run, "--json")
    assert ran.code == 70
    for told in ran.told:
        documented("", told)
    documented("ls", strict(ran.stdout)["summary"])
