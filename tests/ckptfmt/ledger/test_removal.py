"""Sweeping: old fences and leftovers go, everything else stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptfmt.errors import RetiredError
from ckptfmt.ledger.limits import SWEEP_AGE_S
from ckptfmt.ledger.removal import sweep
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import TokenStore
from tests.support.ledgers import entry, files, row

NOW_S = 2_000_000_000.0


def age(root: Path, name: str, age_s: float) -> None:
    """Set a file's time."""
    os.utime(root / name, (NOW_S - age_s, NOW_S - age_s))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with TokenStore(tmp_path) as tokens, StagingLedger(tmp_path) as staging:
        for key in ("live", "old", "new", "rest"):
            tokens.put(entry(key))
            tokens.freeze(key)
            staging.record(f"{key}-rows", row(0))
        tokens.retire(["old", "new", "rest"])
        staging.retire(["old-rows", "new-rows"])
    # What a killed retire leaves beside the fence, and what killed writes leave.
    (tmp_path / "rest.tokens.jsonl").write_bytes(entry("rest").line() + b"\n")
    (tmp_path / f".ledger-tmp-{'0' * 24}").touch()
    (tmp_path / f".ledger-tmp-{'1' * 24}").touch()
    (tmp_path / "stranger").touch()
    for path in tmp_path.iterdir():
        age(tmp_path, path.name, SWEEP_AGE_S + 1)
    for name in ("new.tokens.state.json", "new-rows.lineage.retired", f".ledger-tmp-{'1' * 24}"):
        age(tmp_path, name, SWEEP_AGE_S - 1)
    return tmp_path


SWEPT = (
    f".ledger-tmp-{'0' * 24}",
    "old-rows.lineage.retired",
    "old.tokens.state.json",
    "rest.tokens.jsonl",
    "rest.tokens.state.json",
)


def test_a_sweep_removes_old_fences_and_leftovers_only(directory: Path) -> None:
    before = files(directory)
    assert sweep(directory, now_s=NOW_S, apply=False) == SWEPT
    assert files(directory) == before
    assert sweep(directory, now_s=NOW_S) == SWEPT
    assert files(directory) == {name: before[name] for name in before if name not in SWEPT}
    assert sweep(directory, now_s=NOW_S) == ()
    with TokenStore(directory) as store:
        store.put(entry("old"))
        with pytest.raises(RetiredError):
            store.put(entry("new"))


def test_a_sweep_at_another_age(directory: Path) -> None:
    swept = sweep(directory, now_s=NOW_S, age_s=60)
    assert set(swept) > set(SWEPT)
    assert "new.tokens.state.json" in swept
    assert {"live.tokens.jsonl", "live.tokens.state.json", "stranger"} <= set(files(directory))
