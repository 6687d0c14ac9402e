"""``validate --report``: findings in files, for build servers and reviews."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import write_participant
from ckptfmt.publish import publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from inspector.commands import validate as module
from inspector.findings import placed_message
from tests.support.damage import data_file, flip
from tests.support.inspecting import Ran, inspect


def reported(tmp_path: Path, *arguments: str | Path) -> tuple[Ran, dict[str, str]]:
    """A run with a report of each kind."""
    kinds = ("junit", "github", "md")
    options = [word for kind in kinds for word in ("--report", f"{kind}={tmp_path}/{kind}")]
    ran = inspect("validate", *arguments, *options, "--json")
    return ran, {kind: (tmp_path / kind).read_text() for kind in kinds}


def test_reports_agree_with_the_output(checkpoint: Path, tmp_path: Path) -> None:
    flip(data_file(checkpoint, "agent/a1"), 200)
    (checkpoint / "stranger.txt").write_text("hello")
    ran, told = reported(tmp_path, checkpoint)
    assert (ran.code, ran.summary["warnings"]) == (1, 1)
    errors, (warning,) = (
        [
            placed_message(item, leave_out="checkpoint")
            for item in ran.items("finding")
            if item["severity"] == severity
        ]
        for severity in ("error", "warning")
    )
    root = ET.fromstring(told["junit"])
    failures = [item.get("message") for item in root.iter("failure")]
    assert failures == [*errors, ran.summary["verdict"]]
    assert warning in [item.text for item in root.iter("system-out")]
    commands = [line.split()[0] for line in told["github"].splitlines()]
    assert commands == ["::error"] * len(errors) + ["::warning", "::error"]
    assert "INVALID" in told["md"]
    assert told["md"].count("\n| error") == len(errors)


def test_a_whole_checkpoint_passes(checkpoint: Path, tmp_path: Path) -> None:
    ran, told = reported(tmp_path, checkpoint)
    assert ran.code == 0
    root = ET.fromstring(told["junit"])
    assert (root.get("failures"), root.get("skipped")) == ("0", "0")
    assert told["github"].startswith("::notice ")
    assert "valid (full" in told["md"].replace("\\", "")


def test_gates_are_those_of_the_exit_code(checkpoint: Path, tmp_path: Path) -> None:
    """I20, I22: ``--exit-zero`` changes the code and no report."""
    (checkpoint / "stranger.txt").write_text("hello")
    for options, code, failures in (
        ((), 0, "0"),
        (("--fail-on", "warning"), 1, "2"),
        (("--fail-on", "warning", "--exit-zero"), 0, "2"),
    ):
        ran, told = reported(tmp_path, checkpoint, *options)
        assert (ran.code, ET.fromstring(told["junit"]).get("failures")) == (code, failures)


def test_what_was_not_looked_at_does_not_pass(checkpoint: Path, tmp_path: Path) -> None:
    """I43."""
    ran, told = reported(tmp_path, checkpoint, "--sample", "1")
    assert ran.code == 3
    assert ET.fromstring(told["junit"]).get("skipped") == "1"
    assert told["github"].startswith("::warning ")
    assert "1 of 6 records" in told["md"]


def test_an_input_that_cannot_be_opened_fails(run: Path, tmp_path: Path) -> None:
    """I23."""
    ran, told = reported(tmp_path, run / "ck-1", run / "nothing")
    assert ran.code == 4
    root = ET.fromstring(told["junit"])
    assert [suite.get("failures") for suite in root] == ["0", "1", "1"]
    assert "could not be opened" in told["md"]


def test_text_of_a_checkpoint_acts_on_no_reader(checkpoint: Path, tmp_path: Path) -> None:
    """I14: as a name of a file, which is the only text that a damaged checkpoint chooses freely."""
    names = ["\x1b[2Jx\u202e", "a\n::error title=x::y", "]]><x>", "a|b`c`", "%0A::error::z"]
    for name in names:
        (checkpoint / name).write_text("")
    ran, told = reported(tmp_path, checkpoint, "--fail-on", "warning")
    assert ran.summary["warnings"] == len(names)
    for text in told.values():
        assert not {"\x1b", "\u202e"} & set(text)
        assert "1b" in text
    assert len(told["github"].splitlines()) == len(names) + 1
    assert len(list(ET.fromstring(told["junit"]).iter("testcase"))) == len(names) + 2
    assert "]]><x>]" in "".join(
        item.get("message", "") for item in ET.fromstring(told["junit"]).iter("failure")
    )
    assert "[file %250A::error::z]" in told["github"]
    assert r"\[file a\|b\`c\`\]" in told["md"]


def test_hostile_lines_stay_text(tmp_path: Path) -> None:
    """I14: a message quotes what a record's line says."""
    record = Record(episode_id=EpisodeId("r"), members={})
    object.__setattr__(record, "stored_line", b'{"episode_id":{"rollout_id":"\x1b]]>|`::error::"')
    store, owner = LocalStore(tmp_path / "run"), ParticipantId("controller", "c")
    write_participant(store, Folder("ck"), "ck", owner, [record]).require()
    publish_checkpoint(store, Folder("ck"), "ck", [owner]).require()
    ran, told = reported(tmp_path, tmp_path / "run/ck")
    assert ran.code == 1
    assert "\x1b" not in "".join(told.values())
    assert ET.fromstring(told["junit"]).get("failures") == str(ran.summary["errors"] + 1)
    assert len(told["github"].splitlines()) == ran.summary["errors"] + 1


@pytest.mark.parametrize("asked", ["junit", "html=x", "=x"])
def test_a_report_of_no_kind_is_refused_before_anything_is_done(
    checkpoint: Path, asked: str, tmp_path: Path
) -> None:
    first = f"junit={tmp_path / 'first'}"
    ran = inspect("validate", checkpoint, "--report", first, "--report", asked)
    assert (ran.code, ran.stdout) == (2, b"")
    assert not list(tmp_path.glob("*first*"))


def test_a_report_that_cannot_be_written_is_told(checkpoint: Path, tmp_path: Path) -> None:
    assert inspect("validate", checkpoint, "--report", f"md={tmp_path}/nothing/x").code == 4
    full = ("--report", "md=/dev/full")
    ran = inspect("validate", checkpoint, *full, "--report", f"junit={tmp_path}/j", "--json")
    assert ran.code == ran.summary["exit_code"] == 4
    assert "/dev/full" in ran.summary["reason"]
    assert ran.summary["finished"]
    assert (tmp_path / "j").exists()


def test_an_interrupted_run_leaves_the_report_of_before(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I27."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    reports = tmp_path / "reports"
    reports.mkdir()
    reported(reports, checkpoint)
    before = {file.name: file.read_text() for file in reports.iterdir()}
    monkeypatch.setattr(module, "verify", interrupted)
    ran, _ = reported(reports, checkpoint)
    assert ran.code == 130
    assert {file.name: file.read_text() for file in reports.iterdir()} == before
