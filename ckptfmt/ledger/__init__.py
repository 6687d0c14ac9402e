"""Capture ledgers: what a policy server records of each model call of a rollout.

Servers write by :class:`TokenStore` (complete records) or :class:`StagingLedger` (custody
of tokens that others hold).  :class:`LedgerReader` reads the directories of both, and
changes nothing.  ``docs/ledger.md`` specifies the files.
"""

from __future__ import annotations

from ckptfmt.ledger.calls import (
    Call,
    Rollout,
    RolloutCalls,
    call_tree,
    find_rollout,
    list_rollouts,
    rollout_calls,
)
from ckptfmt.ledger.custody import CustodyDifference, compare_custody
from ckptfmt.ledger.entry import TokenEntry
from ckptfmt.ledger.names import Kind
from ckptfmt.ledger.parents import Parent, Standing
from ckptfmt.ledger.pins import pin_ledger, verify_pins
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.removal import Removal, sweep
from ckptfmt.ledger.row import FailureRow, Row
from ckptfmt.ledger.rules import LEDGER_RULES
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import Snapshot, TokenStore
from ckptfmt.ledger.verify import verify_directory, verify_rollout
from ckptfmt.ledger_pin import LedgerPin

__all__ = [
    "LEDGER_RULES",
    "Call",
    "CustodyDifference",
    "FailureRow",
    "Kind",
    "LedgerPin",
    "LedgerReader",
    "Parent",
    "Removal",
    "Rollout",
    "RolloutCalls",
    "Row",
    "Snapshot",
    "StagingLedger",
    "Standing",
    "TokenEntry",
    "TokenStore",
    "call_tree",
    "compare_custody",
    "find_rollout",
    "list_rollouts",
    "pin_ledger",
    "rollout_calls",
    "sweep",
    "verify_directory",
    "verify_pins",
    "verify_rollout",
]
