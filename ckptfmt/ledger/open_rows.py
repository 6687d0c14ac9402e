"""The external-staging rows of one rollout, as the process that holds its lock sees them.

Kept between calls by inode and offset: only rows behind the known ones are read.
"""

from __future__ import annotations

from typing import Any

from ckptfmt.errors import CkptError, ConflictError, RetiredError, ValueRefusedError
from ckptfmt.ledger.append_file import LineFile
from ckptfmt.ledger.entry import parse_object
from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.ledger.pins import pin_prefix
from ckptfmt.ledger.row import FailureRow, Row, RowMembers, row_line
from ckptfmt.ledger_pin import LedgerPin

__all__ = ["OpenRows", "check_chain"]


class OpenRows:
    """Rows in the order of the file, and where to find them.  System errors are ``OSError``.

    Where a call has two rows, which this library never writes, the first counts.
    """

    def __init__(self, folder: Folder, key: str) -> None:
        self.key = key
        self.is_retired = False
        self.rows: list[RowMembers] = []
        self.by_call: dict[str, RowMembers] = {}
        self.by_fingerprint: dict[str, list[RowMembers]] = {}
        self.staging_keys: set[str] = set()
        self._folder = folder
        self._fence_name = file_name(key, Kind.FENCE)
        self._lines = LineFile(folder, file_name(key, Kind.LINEAGE))
        self._ended_bytes = 0

    @property
    def weight(self) -> int:
        """Bytes of the lines that are held parsed."""
        return self._lines.position

    def refresh(self) -> None:
        """Look at the fence, and read the rows behind the known ones.

        Raises:
            CorruptError: a malformed line before the last one.
        """
        self.is_retired = self._folder.exists(self._fence_name)
        if self.is_retired:
            return
        if not self._lines.look():
            self._forget()
        for line in self._lines.fresh():
            assert line.text is not None
            try:
                self._keep(parse_object(line.text))
            except CkptError as error:
                raise error.at(file=self._lines.file.name, offset=line.offset) from None
            if line.is_ended:
                self._ended_bytes = line.end

    def require_live(self) -> None:
        """Refuse a ledger that was retired.

        Raises:
            RetiredError: it was.
        """
        if self.is_retired:
            raise RetiredError(f"the ledger of {self.key!a} is retired")

    def record(self, row: Row | FailureRow) -> bool:
        """Write a row durably; False if the same one is there already.

        Raises:
            ConflictError: the call has another row, or its staging key another call.
            ValueRefusedError: the parent is not recorded.
        """
        members = row.members()
        line = row_line(members)
        known = self.by_call.get(row.model_call_id)
        if known is not None:
            if row_line(known) != line:
                raise ConflictError(
                    f"model call {row.model_call_id!a} of {self.key!a} has another row already"
                )
            # It may be another process's, which died before its sync.
            self._lines.file.make_durable()
            return False
        if isinstance(row, Row):
            check_chain(row, self.by_call, self.staging_keys)
        self._lines.append(line)
        self._ended_bytes = self._lines.position
        self._keep(members)
        return True

    def pin(self) -> LedgerPin | None:
        """Pin the lines that end in a newline; None if there are no rows."""
        if not self.rows:
            return None
        return pin_prefix(self._lines.file.name, self._lines.file.prefix(self._ended_bytes))

    def close(self) -> None:
        """Close the file; the rows are not to be used afterwards."""
        self._lines.file.close()

    def _forget(self) -> None:
        self._lines.rewind(0)
        self._ended_bytes = 0
        self.rows = []
        self.by_call = {}
        self.by_fingerprint = {}
        self.staging_keys = set()

    def _keep(self, members: RowMembers) -> None:
        self.rows.append(members)
        call_id: Any = members.get("model_call_id")
        if not isinstance(call_id, str) or call_id in self.by_call:
            return
        self.by_call[call_id] = members
        staging_key: Any = members.get("staging_key")
        if isinstance(staging_key, str):
            self.staging_keys.add(staging_key)
        fingerprint: Any = members.get("fingerprint")
        if isinstance(fingerprint, str) and "failure_reason" not in members:
            self.by_fingerprint.setdefault(fingerprint, []).append(members)


def check_chain(row: Row, by_call: dict[str, RowMembers], staging_keys: set[str]) -> None:
    """Check a row against those before it: parents come first, staging keys are unique.

    Raises:
        ValueRefusedError: the parent is not among them.
        ConflictError: the staging key is.
    """
    if row.parent_call_id is not None:
        parent = by_call.get(row.parent_call_id)
        if parent is None or "failure_reason" in parent:
            raise ValueRefusedError(
                f"model call {row.model_call_id!a}: its parent {row.parent_call_id!a} is not "
                "recorded before it"
            )
    if row.staging_key in staging_keys:
        raise ConflictError(
            f"model call {row.model_call_id!a}: staging key {row.staging_key[:200]!a} is that of "
            "another call"
        )
