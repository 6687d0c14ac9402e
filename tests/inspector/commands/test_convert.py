"""``ckpt-inspect convert``."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ckptfmt.checkpoint import latest, open_checkpoint
from ckptfmt.errors import UnsupportedError
from ckptfmt.store.local import LocalStore
from tests.support.checkpoints import write_small
from tests.support.damage import flip
from tests.support.gym import tree, write_gym
from tests.support.inspecting import documented, inspect


@pytest.fixture
def gym(tmp_path: Path) -> Path:
    """A checkpoint in NeMo Gym's layout."""
    return write_gym(tmp_path / "gym-run" / "ck-1")


def test_there_and_back(gym: Path, tmp_path: Path) -> None:
    before = tree(gym)
    there = inspect("convert", gym, "-o", tmp_path / "new", "--to", "ckptfmt", "--json")
    assert (there.code, there.stderr) == (0, "")
    documented("convert", there.summary)
    assert there.summary["written"] is True
    assert there.summary["records"] == 6
    back = inspect("convert", tmp_path / "new", "-o", tmp_path / "back", "--to", "nemo-gym")
    assert back.code == 0
    assert "6 records of 2 participants written" in back.text
    assert tree(tmp_path / "back") == before
    assert tree(gym) == before
    for converted in ("new", "back"):
        assert inspect("validate", tmp_path / converted, "--level", "deep").code == 0


def test_what_gym_cannot_spell_is_listed_with_exit_code_1(tmp_path: Path) -> None:
    write_small(LocalStore(tmp_path), "ck").require()
    ran = inspect("convert", tmp_path / "ck", "-o", tmp_path / "x", "--to", "nemo-gym", "--json")
    assert ran.code == 1
    found = ran.items("beyond")
    assert [item["address"] for item in found] == [
        f"resources/r1/{rollout}/session%2F{rollout}" for rollout in ("r1", "r2", "r3")
    ]
    for item in found:
        documented("convert", item)
        assert (item["tags"], item["changed"]) == (["tuple"], False)
    documented("convert", ran.summary)
    assert (ran.summary["written"], ran.summary["beyond"]) == (False, 3)
    assert not (tmp_path / "x").exists()
    text = inspect("convert", tmp_path / "ck", "-o", tmp_path / "x", "--to", "nemo-gym").text
    assert text.count("cannot be spelt: resources/r1/") == 3


def test_lossy_writes_them_and_tells_which_were_changed(tmp_path: Path) -> None:
    write_small(LocalStore(tmp_path), "ck").require()
    ran = inspect(
        "convert", tmp_path / "ck", "-o", tmp_path / "x", "--to", "nemo-gym", "--lossy", "--json"
    )
    assert ran.code == 0
    assert [item["changed"] for item in ran.items("beyond")] == [True] * 3
    value = inspect("get", tmp_path / "x", "resources/r1/r1/session%2Fr1#/state/rows")
    assert value.text == "[[1,NaN]]\n"


def test_checkpoints_that_are_converted_into_a_run_follow_each_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        gym = write_gym(tmp_path / "gym" / name, checkpoint_id=f"ck-{name}")
        inspect("convert", gym, "-o", tmp_path / "run" / name, "--to", "ckptfmt")
    found = latest(tmp_path / "run")
    assert (found.entry.checkpoint_id, found.entry.sequence) == ("ck-b", 2)


def test_a_call_that_makes_no_sense_is_refused(gym: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for output, to in (
        (tmp_path / "there", "ckptfmt"),
        (tmp_path / "dangling", "ckptfmt"),
        (gym / "new", "ckptfmt"),
        (tmp_path / "new", "nemo-gym"),
        (tmp_path / "new", "parquet"),
    ):
        assert inspect("convert", gym, "-o", output, "--to", to).code == 2
    assert inspect("convert", gym, "-o", tmp_path / "new").code == 2
    assert (
        inspect("convert", tmp_path / "none", "-o", tmp_path / "new", "--to", "ckptfmt").code == 4
    )
    assert not (tmp_path / "new").exists()


def test_a_damaged_source_is_told_and_nothing_published(gym: Path, tmp_path: Path) -> None:
    (file,) = (gym / "gym" / "agent").rglob("records*")
    flip(file, 30)
    ran = inspect("convert", gym, "-o", tmp_path / "new", "--to", "ckptfmt")
    assert ran.code == 3
    assert "agent/a1" in ran.stderr
    assert not (tmp_path / "new" / "checkpoint.json").exists()


def test_a_file_that_is_spelt_otherwise_is_told(gym: Path, tmp_path: Path) -> None:
    inspect("convert", gym, "-o", tmp_path / "new", "--to", "ckptfmt")
    opened = open_checkpoint(tmp_path / "new")
    user = opened.participant(opened.participants[0]).manifest.provenance.user
    assert "nemo-gym/manifest.json" in user
    manifest = gym / "gym" / "agent" / "a1" / "manifest.json"
    (file,) = manifest.parent.glob("records*")
    data = file.read_bytes().replace(b'": ', b'":')
    sha256 = hashlib.sha256(data).hexdigest()
    manifest.write_text(manifest.read_text().replace(file.name.split("-")[1][:64], sha256))
    file.unlink()
    (manifest.parent / f"records-{sha256}.jsonl").write_bytes(data)
    assert inspect("validate", gym, "--level", "deep").code == 0
    assert inspect("convert", gym, "-o", tmp_path / "b", "--to", "ckptfmt").code == 0
    ran = inspect("convert", tmp_path / "b", "-o", tmp_path / "c", "--to", "nemo-gym")
    assert ran.code == 0
    assert "agent/a1 was not spelt as json.dumps does" in ran.stderr


def test_a_layout_of_a_later_version_is_not_converted(gym: Path, tmp_path: Path) -> None:
    manifest = gym / "gym" / "agent" / "a1" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    ran = inspect("convert", gym, "-o", tmp_path / "new", "--to", "ckptfmt", "--json")
    assert ran.code == 4
    assert ran.told[0]["code"] == UnsupportedError.code
