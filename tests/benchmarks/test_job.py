"""The benchmark of a whole job on a tiny set: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import job


def test_it_prints_every_part_beside_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.main(["--sessions", "9", "--repeat", "2", "--dir", str(tmp_path), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == "bench/job/1"
    (result,) = printed["results"]
    assert (result["set"], result["sessions"], result["repeat"]) == ("real", 9, 2)
    parts = {name: value for name, value in result.items() if name.endswith("_s")}
    assert len(parts) == 8
    assert all(seconds > 0 for seconds in parts.values())
    whole = parts["prepare_to_resume_s"]
    assert all(whole >= parts[f"{part}_s"] for part in ("prepare", "commit", "publish", "resume"))
    assert result["commit_ratio"] == pytest.approx(
        parts["commit_reference_s"] / parts["commit_s"], rel=0.01
    )
    assert list(tmp_path.iterdir()) == []
