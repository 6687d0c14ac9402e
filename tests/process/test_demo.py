"""The demo, small, and where there are no real rollouts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.showing import Progress
from tests.support.tools import ROOT


def test_the_demo_plays_a_small_job_on_made_rollouts(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--episodes", "5", "--seed", "3", "--keep", kept],
        cwd=ROOT,
        env={**os.environ, "CKPTFMT_SHARED": str(tmp_path / "absent")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "5 episodes on 31 rollouts as documents, seed 3" in done.stdout
    assert re.search(r"equal: 5 transcripts and rewards, \d+ model calls, \d+ steps", done.stdout)
    assert re.findall(r"exit status (\d)", done.stdout) == ["0", "0", "0", "1"]
    assert "all 31 rollouts are the same bytes" in done.stdout
    assert "\r" not in done.stdout
    assert (kept / "killed" / "run" / "ck-2" / "checkpoint.json").exists()


def test_fewer_than_four_episodes_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--episodes", "3"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "mid-flight" in done.stderr


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_one_line_on_a_terminal_and_one_each_quarter_elsewhere(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    progress = Progress(100, "done")
    for done in range(101):
        progress.show(done)
    progress.end()
    printed = capsys.readouterr().out
    assert printed.count("\r") == (102 if is_terminal else 0)
    assert printed.count("\n") == (0 if is_terminal else 4)
    assert "100 of 100 done" in printed
