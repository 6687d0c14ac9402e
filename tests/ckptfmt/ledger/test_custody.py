"""Custody rows against staged records."""

from __future__ import annotations

from ckptfmt.ledger.custody import compare_custody
from tests.support.ledgers import failure, row


def test_differences_are_listed_by_id_both_ways() -> None:
    """L32."""
    rows = [row(0).members(), row(1).members(), failure(2).members()]
    difference = compare_custody(rows, [row(1).staging_key, "stage/other"])
    assert difference.not_staged == (row(0).staging_key,)
    assert difference.without_row == ("stage/other",)
    assert difference
    assert not compare_custody(rows, [row(0).staging_key, row(1).staging_key])
