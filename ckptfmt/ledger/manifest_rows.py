"""The manifest of a rollout: its rows as the training framework reads them over HTTP.

The members are those of NeMo Gym's rollout manifest.  A row that lacks what a record
needs becomes a failure of its call: the rollout must not be trained on, and the manifest
of a damaged ledger is still a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ckptfmt.ledger.row import RowMembers, breaches

__all__ = ["rollout_manifest"]

_VERSIONS: Final = {"schema_version": 2}
_RECORD_VERSIONS: Final = {**_VERSIONS, "digest_version": 2, "extras_digest_version": 1}
# Member of a record -> field of a row.
_RECORD: Final = {
    "model_call_id": "model_call_id",
    "parent_call_id": "parent_call_id",
    "prev_len": "prev_len",
    "delta_len": "delta_len",
    "cum_len": "cum_len",
    "weight_version": "weight_version",
    "digest": "staging_digest",
    "extras_digest": "extras_digest",
    "staging_key": "staging_key",
    "mode": "mode",
    "chain_hash": "chain_hash",
    "cumulative_hash": "cumulative_hash",
    "response_id": "response_id",
    "admitted_at": "admitted_at",
    "output_fingerprint": "output_fingerprint",
    "continuation_fingerprint": "continuation_fingerprint",
    "fingerprint_version": "fingerprint_version",
}
_NULLABLE: Final = {
    "parent_call_id", "admitted_at", "output_fingerprint", "continuation_fingerprint",
}  # fmt: skip


def rollout_manifest(key: str, rows: Iterable[RowMembers]) -> dict[str, Any]:
    """``{"schema_version", "rollout_id", "records", "failures"}``, in the order of the rows."""
    records: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for ordinal, row in enumerate(rows):
        reason = _failure_of(row)
        if reason is None:
            members = {member: row.get(field) for member, field in _RECORD.items()}
            records.append({**_RECORD_VERSIONS, **members})
        else:
            call_id = row.get("model_call_id")
            known = call_id if isinstance(call_id, str) and call_id else f"row-{ordinal}"
            failures.append({**_VERSIONS, "model_call_id": known, "reason": reason})
    return {**_VERSIONS, "rollout_id": key, "records": records, "failures": failures}


def _failure_of(row: RowMembers) -> str | None:
    if "failure_reason" in row:
        return str(row["failure_reason"] or "unknown")
    for field in _RECORD.values():
        if field not in _NULLABLE and row.get(field) in (None, ""):
            return f"ledger_row_missing_{field}"
    return None if breaches(row) is None else "ledger_row_invalid"
