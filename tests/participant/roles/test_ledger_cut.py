"""Which rows of a ledger a checkpoint holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import RetiredError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.names import Kind
from ckptfmt.ledger.pins import pin_ledger
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import ModelRecord
from participant.core.errors import InvalidCheckpointStateError
from participant.roles.ledger_cut import delivered, read_cut, rows_of
from tests.support.ledgers import call_id, failure, row

R1, R2 = EpisodeId("r1"), EpisodeId("r2", 3)


def test_rows_of_undelivered_calls_are_left_out_failures_too() -> None:
    """P93."""
    rows = [row(0).members(), row(1, row(0)).members(), failure(2).members()]
    assert delivered(rows, {call_id(1), call_id(2)}) == rows[:1]
    assert delivered(rows, ()) == rows


def test_a_row_that_a_delivered_call_continues_stays() -> None:
    """A repeat with the same tokens may be what the next call was found to continue."""
    first, repeat = row(0), row(1, row(0))
    child = row(2, repeat)
    rows = [r.members() for r in (first, repeat, child, row(3, child))]
    assert delivered(rows, {call_id(0), call_id(1)}) == rows
    assert delivered(rows, {call_id(0), call_id(1), call_id(3)}) == rows[:3]
    assert delivered(rows, {call_id(n) for n in range(4)}) == []


@given(st.lists(st.integers(-1, 9), max_size=10), st.sets(st.integers(0, 9)))
def test_what_is_left_can_be_imported_and_lacks_nothing_delivered(
    parents: list[int], undelivered: set[int]
) -> None:
    """Order kept, no row without its parent, and no undelivered row but for a descendant."""
    rows = [
        {"model_call_id": call_id(n), "parent_call_id": call_id(p) if 0 <= p < n else None}
        for n, p in enumerate(parents)
    ]
    kept = delivered(rows, {call_id(n) for n in undelivered})
    ids = [r["model_call_id"] for r in kept]
    assert ids == sorted(ids)
    assert {r["parent_call_id"] for r in kept} <= {None, *ids}
    assert {call_id(n) for n in range(len(rows)) if n not in undelivered} <= set(ids)
    for extra in set(ids) & {call_id(n) for n in undelivered}:
        assert any(r["parent_call_id"] == extra for r in kept)


def test_a_record_an_episode_with_rows_and_no_other_ledger_is_read(tmp_path: Path) -> None:
    """P42."""
    with StagingLedger(tmp_path) as ledger:
        ledger.record("r1", row(0))
        ledger.record("r2-a3", row(1))
        (tmp_path / "other.lineage.jsonl").write_bytes(b"damaged\n")
        records = read_cut(ledger, [R1, R2, EpisodeId("none")]).records({R2: {call_id(1)}})
        assert [record.key for record in records] == ["r1"]
        assert rows_of(records[0]) == [{"capture_key": "r1", **row(0).members()}]
        assert records[0].generation_cuts.value() == []
        ledger.retire(["r2-a3"])
        with pytest.raises(RetiredError):
            read_cut(ledger, [R1, R2])


def test_pins_are_of_the_ledgers_that_records_come_from(tmp_path: Path) -> None:
    """With the rows of undelivered calls: a pin is of the file as it was."""
    with StagingLedger(tmp_path) as ledger:
        ledger.record("r1", row(0))
        ledger.record("r1", row(1))
        ledger.record("r2-a3", row(2))
        cut = read_cut(ledger, [R1, R2, EpisodeId("none")])
    records = cut.records({R1: {call_id(1)}, R2: {call_id(2)}})
    (pin,) = cut.pins_of(records)
    assert pin == pin_ledger(LedgerReader(tmp_path), "r1", Kind.LINEAGE)


def test_a_row_that_is_no_object_is_named() -> None:
    record = ModelRecord(
        episode_id=R1,
        rows=JsonPayload.from_value([1]),
        generation_cuts=JsonPayload.from_value([]),
    )
    with pytest.raises(InvalidCheckpointStateError, match="r1"):
        rows_of(record)
