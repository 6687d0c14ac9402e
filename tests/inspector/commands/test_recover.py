"""``recover``."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import write_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from tests.support.checkpoints import AGENT, agent_record
from tests.support.damage import data_file, flip
from tests.support.inspecting import inspect


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_whole_checkpoint_is_recovered_without_loss(checkpoint: Path, tmp_path: Path) -> None:
    before = contents(checkpoint)
    ran = inspect("recover", checkpoint, "-o", tmp_path / "new", "--json")
    assert (ran.code, ran.summary["records"], ran.summary["lost"]) == (0, 6, 0)
    assert ran.summary["published"] is True
    bare = inspect("cat", tmp_path / "new", "--bare")
    assert bare.stdout == inspect("cat", checkpoint, "--bare").stdout
    assert inspect("validate", tmp_path / "new", "--level", "deep").code == 0
    assert contents(checkpoint) == before


def test_what_is_lost_is_listed_and_the_rest_is_valid(tmp_path: Path) -> None:
    """F43, F44, F45."""
    records = [agent_record(f"r{n:02}", text=str(n) * 400_000) for n in range(9)]
    write_checkpoint(LocalStore(tmp_path), "ck", {AGENT: records}).require()
    file = data_file(tmp_path / "ck", "agent/a1")
    flip(file, file.stat().st_size // 2)
    before = contents(tmp_path / "ck")
    ran = inspect("recover", tmp_path / "ck", "-o", tmp_path / "new", "--json")
    assert ran.code == 3
    assert 0 < ran.summary["records"] < 9
    assert len(ran.items("lost")) == ran.summary["lost"] > 0
    assert contents(tmp_path / "ck") == before
    assert inspect("validate", tmp_path / "new", "--level", "deep").code == 0
    (told,) = inspect("info", tmp_path / "new", "--json").items("checkpoint")
    assert told["recovered"]["lost_count"] == ran.summary["lost"]


def test_the_text_tells_losses_and_where_the_rest_is(checkpoint: Path, tmp_path: Path) -> None:
    data_file(checkpoint, "agent/a1").unlink()
    ran = inspect("recover", checkpoint, "-o", tmp_path / "new")
    assert ran.code == 3
    assert "lost:" in ran.text
    assert f"3 records recovered into {tmp_path / 'new'}" in ran.text


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_an_existing_target_is_refused(checkpoint: Path, tmp_path: Path, kind: str) -> None:
    """F45."""
    target = tmp_path / "new"
    if kind == "directory":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    before = contents(tmp_path)
    ran = inspect("recover", checkpoint, "-o", target)
    assert ran.code == 2
    assert "exists already" in ran.stderr
    assert contents(tmp_path) == before


def test_a_target_inside_the_checkpoint_is_refused(checkpoint: Path) -> None:
    """F45: the input is never modified."""
    before = contents(checkpoint)
    assert inspect("recover", checkpoint, "-o", checkpoint / "agent" / "new").code == 2
    assert contents(checkpoint) == before


def test_an_unpublished_checkpoint_can_be_recovered(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()
    ran = inspect("recover", checkpoint, "-o", tmp_path / "new", "--json")
    assert ran.summary["records"] == 6
    assert inspect("validate", tmp_path / "new").code == 0


def test_a_directory_without_a_checkpoint_cannot_be_recovered(tmp_path: Path) -> None:
    """I29."""
    assert inspect("recover", tmp_path, "-o", tmp_path / "new").code == 4
    assert not (tmp_path / "new").exists()


def test_the_target_must_be_named(checkpoint: Path) -> None:
    assert inspect("recover", checkpoint).code == 2


def test_a_target_inside_the_latest_checkpoint_is_refused(run: Path) -> None:
    """F45: however the input is named."""
    before = contents(run)
    assert inspect("recover", f"{run}@latest", "-o", run / "ck-2" / "new").code == 2
    assert contents(run) == before


def test_what_is_no_damage_does_not_keep_a_recovery_from_being_published(tmp_path: Path) -> None:
    """I42: a member that an object names twice is a warning, in the source as in the copy."""
    record = Record(
        episode_id=EpisodeId("r"), members={"s": JsonPayload.from_json(b'{"a":1,"a":2}')}
    )
    owner = ParticipantId("controller", "c")
    write_checkpoint(LocalStore(tmp_path / "run"), "ck", {owner: [record]}).require()
    ran = inspect("recover", tmp_path / "run" / "ck", "-o", tmp_path / "new", "--json")
    assert (ran.code, ran.summary["published"]) == (0, True)
    again = inspect("validate", tmp_path / "new", "--level", "deep", "--json")
    assert (again.code, again.summary["by_rule"]) == (0, {"duplicate-member": 1})
