"""``gc``."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.errors import TransientError
from ckptfmt.layout import DataName, new_token
from ckptfmt.store.local import LocalStore
from tests.support.damage import flip
from tests.support.inspecting import inspect


@pytest.fixture
def leftovers(run: Path) -> set[str]:
    """What two failed writes left."""
    names = {
        f"ck-1/agent/a1/{DataName(new_token(), 0)}",
        f"ck-2/tmp-{new_token()}-checkpoint.json",
    }
    for name in names:
        (run / name).write_text("left")
    return names


def files(run: Path) -> set[str]:
    return {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}


def test_the_plan_deletes_nothing(run: Path, leftovers: set[str]) -> None:
    before = files(run)
    ran = inspect("gc", run, "--json")
    assert ran.code == 0
    assert {item["name"] for item in ran.items("delete")} == leftovers
    assert not any(item["deleted"] for item in ran.items("delete"))
    assert files(run) == before
    assert "--apply" in inspect("gc", run).text


def test_apply_deletes_exactly_what_the_plan_lists(run: Path, leftovers: set[str]) -> None:
    before = files(run)
    planned = [item["name"] for item in inspect("gc", run, "--json").items("delete")]
    ran = inspect("gc", run, "--apply", "--json")
    assert [item["name"] for item in ran.items("delete")] == planned
    assert all(item["deleted"] for item in ran.items("delete"))
    assert before - files(run) == leftovers
    assert ran.summary["deleted"] == 2
    assert inspect("validate", run / "ck-1", run / "ck-2", "--fail-on", "warning").code == 0


def test_what_is_not_ours_is_left_and_told(run: Path) -> None:
    (run / "ck-1" / "notes.txt").write_text("mine")
    ran = inspect("gc", run, "--apply", "--json")
    assert [item["name"] for item in ran.items("kept")] == ["ck-1/notes.txt"]
    assert (run / "ck-1" / "notes.txt").exists()


def test_a_damaged_checkpoint_forbids_deletion(run: Path, leftovers: set[str]) -> None:
    flip(run / "ck-1" / "checkpoint.json", 20)
    ran = inspect("gc", run, "--apply", "--json")
    assert ran.code == 1
    assert ran.items("delete") == []
    assert leftovers <= files(run)


def test_what_cannot_be_deleted_is_told(
    run: Path, leftovers: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I29: a transient failure is 5."""

    def refuse(self: LocalStore, name: str) -> None:
        raise TransientError("busy").at(file=name)

    monkeypatch.setattr(LocalStore, "delete", refuse)
    ran = inspect("gc", run, "--apply", "--json")
    assert ran.code == 5
    assert {item["error"] for item in ran.items("delete")} == {"busy"}
    assert ran.summary["deleted"] == 0
    assert "FAILED" in inspect("gc", run, "--apply").text


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    """I29."""
    assert inspect("gc", tmp_path / "nothing").code == 4


def test_what_is_no_run_is_told_and_left_alone(run: Path, tmp_path: Path) -> None:
    """I29: a checkpoint, another directory, in either layout; an empty one will be a run."""
    other, empty = tmp_path / "other", tmp_path / "empty"
    empty.mkdir()
    (other / "etc").mkdir(parents=True)
    (other / "notes.txt").write_text("mine")
    assert inspect("convert", run / "ck-1", "-o", tmp_path / "gym", "--to", "nemo-gym", "--lossy")
    for place, says in (
        (run / "ck-1", "is a checkpoint, not a run"),
        (tmp_path / "gym", "is a checkpoint, not a run"),
        (other, "holds no checkpoints"),
    ):
        ran = inspect("gc", place, "--apply", "--json")
        assert (ran.code, ran.document["items"]) == (4, [])
        assert says in ran.summary["reason"]
    assert inspect("gc", empty).code == 0
