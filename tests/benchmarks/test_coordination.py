"""The benchmark of coordination with a handful of servers: what it prints."""

from __future__ import annotations

import json

import pytest

from benchmarks import coordination


@pytest.mark.parametrize("as_json", [True, False])
def test_it_prints_every_round(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    arguments = ["--participants", "5", "--executions", "12", "--processes", "1", "--repeat", "2"]
    coordination.main([*arguments, "--json"] if as_json else arguments)
    printed = capsys.readouterr().out
    if not as_json:
        assert "5 participants, 12 live executions" in printed
        assert printed.count("\nprepare ") == 2
        return
    result = json.loads(printed)
    assert result["schema"] == "bench/coordination/1"
    assert [item["ratio"] >= 1 for item in result["rounds"]] == [True, True]
