"""The benchmark of saving on a tiny set: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import participant_save


def test_it_prints_both_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--sessions", "3", "--dir", str(tmp_path)]
    participant_save.main(arguments)
    printed = capsys.readouterr().out
    assert "3 sessions" in printed
    participant_save.main([*arguments, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["schema"] == "bench/participant_save/1"
    assert result["saving"]["beats"] > 0
    assert result["control"]["worst_ms"] >= result["control"]["p999_ms"]
    assert list(tmp_path.iterdir()) == []
