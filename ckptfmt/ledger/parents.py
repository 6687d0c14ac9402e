"""Which recorded call a request continues: decided by proof, never by guessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ckptfmt.ledger.fingerprint import Item, assistant_fingerprint, conversation_digest
from ckptfmt.ledger.limits import FINGERPRINT_VERSION
from ckptfmt.ledger.row import RowMembers

__all__ = ["Parent", "Standing", "resolve_parent"]


class Standing(StrEnum):
    """How a request stands to the calls that are recorded."""

    ROOT = "root"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Parent:
    """The decision; ``row`` is the parent's where it is resolved, ``reason`` why it is not."""

    standing: Standing
    row: RowMembers | None = None
    reason: str = ""


def resolve_parent(
    by_fingerprint: Mapping[str, Sequence[RowMembers]], has_rows: bool, items: Sequence[Item]
) -> Parent:
    """Find the call that the request ``items`` continues.

    * Nothing that the model wrote, or a ledger without rows (its history was seeded): a
      root.
    * One call, or several with the same tokens, of the same assistant fingerprint, whose
      context the request begins with: the one with the smallest id.
    * Otherwise unresolved: the request must not be given anybody's tokens.

    Raises:
        ValueRefusedError: an item is of no known shape.
    """
    fingerprint = assistant_fingerprint(items)
    if not fingerprint or not has_rows:
        return Parent(Standing.ROOT)
    found = {
        row["model_call_id"]: row
        for row in by_fingerprint.get(fingerprint, ())
        if _continues(row, items)
    }
    if not found:
        return Parent(Standing.UNRESOLVED, reason="no_match")
    if len({(row.get("digest"), row.get("cum_len")) for row in found.values()}) > 1:
        return Parent(Standing.UNRESOLVED, reason="ambiguous")
    return Parent(Standing.RESOLVED, found[min(found)])


def _continues(row: RowMembers, items: Sequence[Item]) -> bool:
    context_len: Any = row.get("context_len")
    # Version 0 says only that no further fingerprints were recorded.
    if row.get("fingerprint_version") not in (0, None, FINGERPRINT_VERSION):
        return False
    if type(context_len) is not int or not 0 <= context_len <= len(items):
        return False
    return conversation_digest(items[:context_len]) == row.get("context_digest")
