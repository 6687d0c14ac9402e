"""What a command is pointed at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptfmt.errors import CkptError
from inspector.places import open_checkpoint, open_directory
from tests.support.inspecting import inspect

READERS = ["ls", "info", "cat", "get", "validate", "recover"]


def arguments(command: str, target: str | Path, tmp_path: Path) -> list[str | Path]:
    more: dict[str, list[str | Path]] = {
        "get": ["agent/a1/r1"],
        "recover": ["-o", tmp_path / "new"],
    }
    return [command, target, *more.get(command, [])]


@pytest.mark.parametrize("command", [*READERS, "gc"])
def test_every_unavailable_input_is_4_with_a_message_of_its_own(
    command: str, tmp_path: Path
) -> None:
    """I29."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    said = {}
    for target in ("nothing", "file", "empty", "s3://bucket/run"):
        name = target if "://" in target else str(tmp_path / target)
        ran = inspect(*arguments(command, name, tmp_path))
        if command == "gc" and target == "empty":
            assert ran.code == 0
            continue
        assert ran.code == 4, target
        assert '"type":"record"' not in ran.text
        said[target] = ran.stderr.replace(str(tmp_path), "")
    assert len(set(said.values())) == len(said)
    assert "no such path" in said["nothing"]
    assert "not a directory" in said["file"]
    assert "remote" in said["s3://bucket/run"]


def test_no_permission_has_its_own_message(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I29."""

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    ran = inspect("info", checkpoint)
    assert ran.code == 4
    assert "no permission" in ran.stderr


@pytest.mark.parametrize("command", ["info", "cat", "get", "validate", "recover"])
def test_a_run_in_place_of_a_checkpoint_says_what_to_name(
    command: str, run: Path, tmp_path: Path
) -> None:
    ran = inspect(*arguments(command, run, tmp_path))
    assert ran.code == 4
    assert "@latest" in ran.stderr


@pytest.mark.parametrize("command", READERS)
def test_the_latest_of_a_run_can_be_named(command: str, run: Path, tmp_path: Path) -> None:
    assert inspect(*arguments(command, f"{run}@latest", tmp_path)).code == 0


def test_a_path_that_ends_like_latest_is_a_path_first(run: Path) -> None:
    (run / "ck-1").rename(run / "x@latest")
    assert open_checkpoint(str(run / "x@latest")).folder.prefix == ""


def test_a_drive_letter_is_no_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I72."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "C:\\run\\ckpt").mkdir()
    open_directory("C:\\run\\ckpt")
    with pytest.raises(CkptError, match="remote"):
        open_directory("s3://bucket/run")


def test_a_path_through_a_symbolic_link_is_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert inspect("info", tmp_path / "link" / "ck-1").code == 0


def test_what_was_passed_over_on_the_way_to_the_latest_is_told(run: Path) -> None:
    (run / "ck-2" / "checkpoint.json").unlink()
    ran = inspect("info", f"{run}@latest")
    assert "ck-1" in ran.text
    assert "passed over ck-2, which is incomplete" in ran.stderr


def test_two_latest_ones_are_refused_with_both_names(run: Path) -> None:
    (run / "ck-2").rename(run / "ck-9")
    (run / "LATEST").unlink()
    copy = run / "ck-8"
    copy.mkdir()
    for path in sorted((run / "ck-9").rglob("*")):
        target = copy / path.relative_to(run / "ck-9")
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    ran = inspect("info", f"{run}@latest")
    assert ran.code == 4
    assert "ck-8" in ran.stderr
    assert "ck-9" in ran.stderr


def test_a_path_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """I14."""
    for options in ((), ("--json",)):
        ran = inspect("info", tmp_path / "\x1b[2J\u202e", *options)
        assert ran.code == 4
        assert not {"\x1b", "\u202e"} & set(ran.text + ran.stderr)
