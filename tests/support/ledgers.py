"""Entries, rows and directories for tests of capture ledgers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ckptfmt.ledger.entry import TokenEntry
from ckptfmt.ledger.row import FailureRow, Row

__all__ = ["call_id", "child_entry", "entry", "failure", "files", "row", "sha"]


def sha(text: str) -> str:
    """Some SHA-256 in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def call_id(number: int) -> str:
    """The id of the call with a number; in order of the numbers."""
    return f"call-{number:05}"


def entry(key: str, number: int = 0, **changes: Any) -> TokenEntry:
    """A small root entry, with its digest; ``changes`` are made before that."""
    members: dict[str, Any] = {
        "rollout_id": key,
        "model_call_id": call_id(number),
        "model": "policy",
        "prompt_token_ids": [1, 2, 3, number],
        "generation_token_ids": [4, 5],
        "generation_log_probs": [-0.5, -0.25],
        "output_items": [{"type": "message", "content": "caf\u00e9\u2028"}],
        "token_item_index": 0,
        "created_at": 1700000000.5 + number,
        "parent_resolution": "root",
    }
    return TokenEntry(**{**members, **changes}).with_digest()


def child_entry(parent: TokenEntry, number: int, **changes: Any) -> TokenEntry:
    """An entry that continues ``parent``, whose prompt is not a delta."""
    before = [*parent.prompt_token_ids, *parent.generation_token_ids]
    return entry(
        parent.rollout_id,
        number,
        **{
            "prompt_token_ids": [*before, 7, number],
            "parent_call_id": parent.model_call_id,
            "parent_resolution": "resolved",
            **changes,
        },
    )


def row(number: int = 0, parent: Row | None = None, **changes: Any) -> Row:
    """A small row: a root, or a child of ``parent``."""
    prev_len = parent.cum_len if parent else 0
    members: dict[str, Any] = {
        "model_call_id": call_id(number),
        "fingerprint": sha(f"fingerprint {number}"),
        "context_len": 2,
        "context_digest": sha("context"),
        "digest": sha(f"tokens {number}"),
        "parent_call_id": parent.model_call_id if parent else None,
        "staging_key": f"stage/{call_id(number)}",
        "weight_version": 3,
        "prev_len": prev_len,
        "delta_len": 10,
        "cum_len": prev_len + 10,
        "staging_digest": sha(f"staged {number}"),
        "extras_digest": sha("extras"),
        "mode": "token_in" if parent else "text",
        "admitted_at": 1700000000.25,
        "staging_chain": [],
        "chain_hash": sha(f"chain {number}"),
        "cumulative_hash": sha(f"tokens {number}"),
        "response_id": f"resp-{number}",
        "output_fingerprint": None,
        "continuation_fingerprint": sha(f"continuation {number}"),
        "fingerprint_version": 3,
    }
    return Row(**{**members, **changes})


def failure(number: int, reason: str = "worker_capture_failed") -> FailureRow:
    """A failure row."""
    return FailureRow(model_call_id=call_id(number), failure_reason=reason)


def files(root: Path, *, stripes: bool = False) -> dict[str, bytes]:
    """Name and content of every file in a directory, lock stripes left out."""
    return {
        path.name: path.read_bytes()
        for path in sorted(root.iterdir())
        if path.is_file() and (stripes or not path.name.startswith(".ledger-lock-"))
    }
