"""Judging the external-staging rows of one rollout.  Bad data is a finding, never an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ckptfmt.errors import CkptError, CorruptError, Location
from ckptfmt.ledger.held_findings import HeldFindings
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.row import RowMembers, breaches, row_line
from ckptfmt.ledger.rules import found
from ckptfmt.ledger.token_checks import line_fault
from ckptfmt.rules import Finding

__all__ = ["check_rows"]


def check_rows(reader: LedgerReader, key: str) -> Iterator[Finding]:
    """Everything that is wrong with a rollout's external-staging rows."""
    name = file_name(key, Kind.LINEAGE)
    findings = HeldFindings(name)
    for finding in _check(reader, key, name):
        findings.add(finding)
    yield from findings


def _check(reader: LedgerReader, key: str, name: str) -> Iterator[Finding]:
    known: dict[str, RowMembers] = {}
    staging_keys: dict[str, str] = {}
    for parsed in reader.parsed(key, Kind.LINEAGE):
        if fault := line_fault(parsed, name):
            yield fault
        if parsed.members is None:
            continue
        row = parsed.members
        call_id: Any = row.get("model_call_id")
        place = Location(
            file=name,
            offset=parsed.line.offset,
            key=call_id if isinstance(call_id, str) else None,
        )
        yield from _check_row(row, place)
        if not isinstance(call_id, str):
            continue
        if call_id in known:
            same = _same(known[call_id], row)
            rule = "ledger-repeated" if same else "ledger-conflict"
            yield found(rule, "recorded before", place)
            continue
        yield from _check_chain(row, known, staging_keys, place)
        known[call_id] = row


def _same(one: RowMembers, other: RowMembers) -> bool:
    try:
        return row_line(one) == row_line(other)
    except CkptError:
        return False


def _check_row(row: RowMembers, place: Location) -> Iterator[Finding]:
    if wrong := breaches(row):
        # A row that would be whole with either of the two digests breaks the rule of digests.
        one, other = row.get("digest"), row.get("cumulative_hash")
        is_whole = not any(
            breaches({**row, "digest": d, "cumulative_hash": d}) for d in (one, other)
        )
        rule = "ledger-digest" if is_whole else "ledger-row"
        yield found(rule, CorruptError(wrong), place)
    elif "failure_reason" in row:
        yield found("ledger-failure", f"not captured: {str(row['failure_reason'])[:200]}", place)


def _check_chain(
    row: RowMembers,
    known: dict[str, RowMembers],
    staging_keys: dict[str, str],
    place: Location,
) -> Iterator[Finding]:
    parent_id = row.get("parent_call_id")
    if isinstance(parent_id, str):
        parent = known.get(parent_id)
        if parent is None or "failure_reason" in parent:
            text = f"its parent {parent_id[:200]!a} is not recorded before it"
            yield found("ledger-parent", text, place)
        elif parent.get("cum_len") != row.get("prev_len"):
            text = (
                f"prev_len is {row.get('prev_len')}, cum_len of its parent {parent.get('cum_len')}"
            )
            yield found("ledger-gap", text, place)
    staging_key = row.get("staging_key")
    if isinstance(staging_key, str):
        if staging_key in staging_keys:
            text = f"staging key {staging_key[:200]!a} is that of {staging_keys[staging_key]!a}"
            yield found("ledger-staging-key", CorruptError(text), place)
        staging_keys.setdefault(staging_key, str(row.get("model_call_id")))
