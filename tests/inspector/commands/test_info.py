"""``info``."""

from __future__ import annotations

import platform
from pathlib import Path

from tests.support.damage import data_file, flip
from tests.support.inspecting import inspect


def test_info_says_who_wrote_it(checkpoint: Path) -> None:
    """F55."""
    told = inspect("info", checkpoint, "--json")
    assert told.code == 0
    (item,) = told.items("checkpoint")
    assert item["checkpoint_id"] == "ck-1"
    assert item["config_digest"] == "c0ffee"
    assert item["user_metadata"] == {"step": 7}
    assert item["provenance"]["user"] == {"commit": "abc123"}
    assert item["provenance"]["python"] == f"CPython {platform.python_version()}"
    assert item["provenance"]["library"].startswith("ckptfmt ")
    assert item["provenance"]["host"] == platform.node()
    text = inspect("info", checkpoint).text
    for word in ("ck-1", "c0ffee", "commit = abc123", "ckptfmt", platform.node()):
        assert word in text


def test_info_tells_the_previous_checkpoint_and_the_totals(run: Path) -> None:
    told = inspect("info", f"{run}@latest", "--json")
    assert told.items("checkpoint")[0]["previous"]["checkpoint_id"] == "ck-1"
    assert told.summary["records"] == 6
    assert [item["address"] for item in told.items("participant")] == ["agent/a1", "resources/r1"]


def test_a_damaged_participant_does_not_hide_the_others(checkpoint: Path) -> None:
    """I25."""
    flip(checkpoint / "agent/a1/manifest.json", 10)
    told = inspect("info", checkpoint, "--json")
    assert told.code == 3
    assert told.items("checkpoint")[0]["state"] == "damaged"
    assert [item["address"] for item in told.items("participant")] == ["resources/r1"]


def test_a_missing_data_object_shows(checkpoint: Path) -> None:
    data_file(checkpoint, "agent/a1").unlink()
    assert inspect("info", checkpoint).code == 3


def test_a_damaged_aggregate_leaves_the_participants(checkpoint: Path) -> None:
    flip(checkpoint / "checkpoint.json", 10)
    told = inspect("info", checkpoint, "--json")
    assert told.code == 3
    assert told.items("checkpoint")[0]["state"] == "damaged"
    assert len(told.items("participant")) == 2
    assert inspect("info", checkpoint).code == 3


def test_an_incomplete_checkpoint_is_summarised_on_request(checkpoint: Path) -> None:
    """I45."""
    (checkpoint / "checkpoint.json").unlink()
    refused = inspect("info", checkpoint)
    assert refused.code == 4
    assert "--incomplete" in refused.stderr
    assert (
        inspect("info", checkpoint, "--incomplete", "--json").items("checkpoint")[0]["state"]
        == "incomplete"
    )
