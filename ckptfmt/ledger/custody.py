"""Custody against what is staged: after a restore both must name the same records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ckptfmt.ledger.row import RowMembers

__all__ = ["CustodyDifference", "compare_custody"]


@dataclass(frozen=True, slots=True)
class CustodyDifference:
    """Staging keys, sorted: of rows without staged data, and of staged data without a row."""

    not_staged: tuple[str, ...]
    without_row: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.not_staged or self.without_row)


def compare_custody(rows: Iterable[RowMembers], staged: Iterable[str]) -> CustodyDifference:
    """Compare the rows of all ledgers in scope with the staging keys that the stager holds.

    Failure rows have no staged data and are left out.
    """
    held = {str(row["staging_key"]) for row in rows if row.get("staging_key") is not None}
    keys = set(staged)
    return CustodyDifference(tuple(sorted(held - keys)), tuple(sorted(keys - held)))
