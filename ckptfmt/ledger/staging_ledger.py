"""External staging: custody of calls whose tokens somebody else holds.

One row a call, written once.  A retire leaves a fence: reads then fail as retired, and
what is recorded later is discarded instead of starting a new ledger.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ckptfmt.ledger.fingerprint import Item
from ckptfmt.ledger.imports import import_rows
from ckptfmt.ledger.manifest_rows import rollout_manifest
from ckptfmt.ledger.names import Kind, check_batch
from ckptfmt.ledger.open_rows import OpenRows
from ckptfmt.ledger.parents import Parent, Standing, resolve_parent
from ckptfmt.ledger.removal import STAGING, Removal, delete, retire
from ckptfmt.ledger.row import FailureRow, Row, RowMembers
from ckptfmt.ledger.sessions import Sessions
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.store.os_calls import OsCalls

__all__ = ["UNRESOLVED_PARENT", "StagingLedger"]

UNRESOLVED_PARENT: Final = "unresolved_parent"
"""The failure reason of a call whose parent was not found."""

# Bytes of lines whose rows are held parsed, over all rollouts.
_MAX_CACHED_BYTES: Final = 64 << 20


class StagingLedger:
    """The staging ledgers in the directory ``root``, which is made if it is missing.

    Several processes and threads may read and write at once; what a method did is durable
    when it returns.  A call is recorded by one append under the rollout's lock, so that
    whoever is cancelled meanwhile finds one row or none, never half of one.

    All methods refuse a malformed capture key with ``NameRefusedError``, and raise
    ``StorageError`` where the file system fails and ``CorruptError`` where a line before
    the last one is malformed.
    """

    def __init__(self, root: str | os.PathLike[str], *, calls: OsCalls | None = None) -> None:
        self._sessions = Sessions(
            root, calls or OsCalls(), OpenRows, Kind.LINEAGE, _MAX_CACHED_BYTES
        )

    def close(self) -> None:
        """Close what is held open; the ledger is not to be used afterwards."""
        self._sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def record(self, key: str, row: Row) -> bool:
        """Record a committed call; False if the rollout is retired and the row discarded.

        The same row again is no error and changes nothing.

        Raises:
            ConflictError: the call has another row, or its staging key another call.
            ValueRefusedError: the parent is not recorded.
        """
        return self._write(key, row)

    def record_failure(self, key: str, row: FailureRow) -> bool:
        """Record a call that was not captured; otherwise as :meth:`record`."""
        return self._write(key, row)

    def _write(self, key: str, row: Row | FailureRow) -> bool:
        with self._sessions.open(key, "record a call in") as rows:
            if rows.is_retired:
                return False
            rows.record(row)
            return True

    def admit(self, key: str, call_id: str, items: Sequence[Item]) -> Parent:
        """Find the call that a request continues; where there is none, record the failure.

        Raises:
            RetiredError: the rollout is retired.
            ValueRefusedError: a request item is of no known shape.
            ConflictError: the call is recorded already, and otherwise.
        """
        with self._sessions.open(key, "admit a call to") as rows:
            rows.require_live()
            parent = resolve_parent(rows.by_fingerprint, bool(rows.rows), items)
            if parent.standing is Standing.UNRESOLVED:
                rows.record(FailureRow(model_call_id=call_id, failure_reason=UNRESOLVED_PARENT))
            return parent

    def manifest(self, key: str) -> dict[str, Any]:
        """The rollout's rows as :func:`~ckptfmt.ledger.manifest_rows.rollout_manifest`.

        Raises:
            RetiredError: the rollout is retired: it did not make no calls.
        """
        return rollout_manifest(key, self._rows(key, "read"))

    def has_rows(self, key: str) -> bool:
        """Whether any call is recorded, committed or failed.

        Raises:
            RetiredError: the rollout is retired.
        """
        return bool(self._rows(key, "read"))

    def export_rows(self, key: str) -> list[dict[str, Any]]:
        """The rows for a checkpoint: each with the ``capture_key`` under which it was staged.

        Raises:
            RetiredError: the rollout is retired.
        """
        return _staged(key, self._rows(key, "export"))

    def export_pinned(self, key: str) -> tuple[list[dict[str, Any]], LedgerPin | None]:
        """As :meth:`export_rows`, and the pin of the lines that they are; None without rows.

        Nobody writes to the ledger between the one and the other.

        Raises:
            RetiredError: the rollout is retired.
        """
        with self._sessions.open(key, "export") as rows:
            rows.require_live()
            return _staged(key, rows.rows), rows.pin()

    def _rows(self, key: str, action: str) -> list[RowMembers]:
        with self._sessions.open(key, action) as rows:
            rows.require_live()
            return list(rows.rows)

    def import_rows_many(self, rows: Mapping[str, Sequence[RowMembers]]) -> None:
        """Replace the ledgers of these keys by rows of a checkpoint; repeating is safe.

        What the targets and the later attempts of their rollouts have goes: rows, token
        files, fences.  A target without rows gets an empty ledger.

        Raises:
            SizeError: more than 4,096 keys.
            ValueRefusedError, ConflictError: rows that cannot stand in one ledger; the
                location names key and row, and nothing was changed.
        """
        keys = check_batch(list(rows))
        self._sessions.forget(keys)
        import_rows(self._sessions.folder, self._sessions.locks, rows)

    def retire(self, keys: Sequence[str]) -> Removal:
        """Remove ledgers and leave fences; repeating is safe.

        Raises:
            SizeError: more than 4,096 keys.
        """
        checked = check_batch(keys)
        self._sessions.forget(checked)
        return retire(self._sessions.folder, self._sessions.locks, STAGING, checked)

    def delete(self, keys: Sequence[str]) -> Removal:
        """Remove ledgers and fences: the keys can be used from scratch; repeating is safe.

        Raises:
            SizeError: more than 4,096 keys.
        """
        checked = check_batch(keys)
        self._sessions.forget(checked)
        return delete(self._sessions.folder, self._sessions.locks, STAGING, checked)


def _staged(key: str, rows: Sequence[RowMembers]) -> list[dict[str, Any]]:
    return [dict(row) if "failure_reason" in row else {"capture_key": key, **row} for row in rows]
