"""Garbage collection: what is deleted, what is kept, and when nothing may be deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptfmt.checkpoint import apply_gc, latest, open_checkpoint, plan_gc, verify
from ckptfmt.errors import CorruptError, MissingError, UnsupportedError
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.publish import abort_checkpoint, publish_checkpoint
from ckptfmt.store.local import LocalStore
from tests.ckptfmt.test_manifest import members_of, resealed
from tests.support.checkpoints import AGENT, agent_record, write_tiny

TOKEN = "e" * 24
JUNK = f"records-{TOKEN}-000.jsonl.zst"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one published checkpoint."""
    write_tiny(LocalStore(tmp_path), "ck-1").require()
    return tmp_path


def unpublished(run: Path) -> Path:
    """A second checkpoint, whose participant's manifest stands but which nobody published."""
    write_tiny(LocalStore(run), "ck-2").require()
    (run / "ck-2/checkpoint.json").unlink()
    return run / "ck-2"


@pytest.mark.parametrize("name", [JUNK, f"tmp-{TOKEN}-manifest.json", f"tmp-{TOKEN}-probe"])
def test_leftovers_of_a_published_checkpoint_are_deleted_and_nothing_else(
    run: Path, name: str
) -> None:
    """S58: the plan names exactly what apply deletes."""
    junk = run / "ck-1/agent/a1" / name
    junk.write_bytes(b"x")
    before = {path for path in run.rglob("*") if path.is_file()}
    plan = plan_gc(run)
    assert plan.delete == (f"ck-1/agent/a1/{name}",)
    assert apply_gc(run, plan) == []
    assert before - {path for path in run.rglob("*") if path.is_file()} == {junk}
    assert list(verify(run / "ck-1")) == []


def test_a_temporary_aggregate_of_a_published_checkpoint_is_deleted(run: Path) -> None:
    (run / f"ck-1/tmp-{TOKEN}-checkpoint.json").write_bytes(b"x")
    assert plan_gc(run).delete == (f"ck-1/tmp-{TOKEN}-checkpoint.json",)


def test_a_save_in_progress_survives_and_commits(run: Path) -> None:
    """S51."""
    store = LocalStore(run)
    with ParticipantWriter(store, Folder("ck-2"), "ck-2", AGENT) as writer:
        writer.add(agent_record("r1"))
        writer.flush()
        plan = plan_gc(run)
        assert plan.delete == ()
        assert [kept.reason for kept in plan.kept] == ["the participant may still be writing"]
        apply_gc(run, plan)
        writer.finish().require()
    publish_checkpoint(store, Folder("ck-2"), "ck-2", [AGENT]).require()
    assert latest(run).entry.checkpoint_id == "ck-2"


def test_other_attempts_beside_a_manifest_are_deleted_before_publication(run: Path) -> None:
    folder = unpublished(run)
    (folder / "agent/a1" / JUNK).write_bytes(b"x")
    assert plan_gc(run).delete == (f"ck-2/agent/a1/{JUNK}",)


def test_once_a_checkpoint_is_given_up_what_was_left_of_it_goes(run: Path) -> None:
    folder = unpublished(run)
    (folder / "agent/a1/manifest.json").unlink()
    assert plan_gc(run).delete == ()
    abort_checkpoint(LocalStore(run), Folder("ck-2"), "ck-2")
    plan = plan_gc(run)
    assert len(plan.delete) == 1
    assert apply_gc(run, plan) == []
    assert open_checkpoint(run / "ck-1").participants == (AGENT,)


def test_names_that_are_not_ours_are_reported_and_kept(run: Path) -> None:
    """S53, S62: a link is not followed."""
    (run / "notes.txt").write_text("x")
    (run / "ck-1/extra").mkdir()
    (run / "ck-1/agent/a1/notes.txt").write_text("x")
    (run / "ck-1/agent/a1" / JUNK).symlink_to(run / "notes.txt")
    plan = plan_gc(run)
    assert plan.delete == ()
    assert {kept.name for kept in plan.kept} == {
        "notes.txt", "ck-1/extra", "ck-1/agent/a1/notes.txt", f"ck-1/agent/a1/{JUNK}",
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["aggregate", "manifest", "missing manifest", "data"])
def test_a_damaged_run_forbids_all_deletion(run: Path, damage: str) -> None:
    """S56."""
    (run / "ck-1/agent/a1" / JUNK).write_bytes(b"x")
    write_tiny(LocalStore(run), "ck-2").require()
    manifest = run / "ck-2/agent/a1/manifest.json"
    match damage:
        case "aggregate":
            (run / "ck-2/checkpoint.json").write_bytes(b"")
        case "manifest":
            manifest.write_bytes(manifest.read_bytes()[:-9] + b"x" * 9)
        case "missing manifest":
            manifest.unlink()
        case _:
            next((run / "ck-2/agent/a1").glob("records-*")).unlink()
    plan = plan_gc(run)
    assert plan.delete == ()
    assert plan.refusal is not None


def test_a_feature_that_is_not_known_here_forbids_all_deletion_and_is_named(run: Path) -> None:
    """S54."""
    (run / "ck-1/agent/a1" / JUNK).write_bytes(b"x")
    aggregate = run / "ck-1/checkpoint.json"
    members = members_of(aggregate.read_bytes())
    aggregate.write_bytes(resealed({**members, "required_features": ["shared-data"]}))
    plan = plan_gc(run)
    assert plan.delete == ()
    assert isinstance(plan.refusal, UnsupportedError)
    assert "shared-data" in str(plan.refusal)


def test_what_cannot_be_deleted_is_told(run: Path) -> None:
    """S29."""
    (run / "ck-1/agent/a1" / JUNK).write_bytes(b"x")
    plan = plan_gc(run)
    (run / "ck-1/agent/a1" / JUNK).unlink()
    (run / "ck-1/agent/a1" / JUNK).symlink_to("elsewhere")
    ((name, error),) = apply_gc(run, plan)
    assert name == f"ck-1/agent/a1/{JUNK}"
    assert isinstance(error, CorruptError)


def test_a_run_that_is_not_there_is_missing(tmp_path: Path) -> None:
    """S52."""
    with pytest.raises(MissingError):
        plan_gc(tmp_path / "nowhere")


@pytest.mark.parametrize("name", [".git", ".snapshot", "a:b", "a\\b", "a\nb", "\udcff", "x" * 255])
def test_a_folder_of_any_name_is_kept_and_hides_nothing(run: Path, name: str) -> None:
    """S53: also one that no store would open."""
    (run / name).mkdir()
    (run / name / "file").write_bytes(b"x")
    (run / "ck-1/agent/a1" / JUNK).write_bytes(b"x")
    plan = plan_gc(run)
    assert plan.refusal is None
    assert plan.delete == (f"ck-1/agent/a1/{JUNK}",)
    assert [kept.name for kept in plan.kept] == [name]


def test_what_lies_beside_the_participants_of_a_kind_is_told_or_deleted(run: Path) -> None:
    """S53, and all that ``verify`` calls a leftover."""
    (run / "ck-1/agent/notes.txt").write_bytes(b"x")
    (run / "ck-1/agent" / f"tmp-{TOKEN}-probe").write_bytes(b"x")
    plan = plan_gc(run)
    assert plan.delete == (f"ck-1/agent/tmp-{TOKEN}-probe",)
    assert [(kept.name, kept.reason) for kept in plan.kept] == [
        ("ck-1/agent/notes.txt", "not ours")
    ]
    apply_gc(run, plan)
    assert [finding.rule.rule_id for finding in verify(run / "ck-1")] == ["stranger"]


@pytest.mark.parametrize("time_s", [0, 1, 4_000_000_000], ids=["epoch", "past", "future"])
def test_no_clock_decides(run: Path, time_s: int) -> None:
    """S50."""
    ck_2 = unpublished(run)
    for place in (run / "ck-1", ck_2):
        (place / "agent/a1" / JUNK).write_bytes(b"x")
    (ck_2 / "agent/a1/manifest.json").unlink()
    before = plan_gc(run)
    assert before.delete == (f"ck-1/agent/a1/{JUNK}",)
    for path in (run, *run.rglob("*")):
        os.utime(path, (time_s, time_s))
    assert plan_gc(run) == before
