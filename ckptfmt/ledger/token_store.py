"""Complete records: every model call of a rollout with its tokens, durable and write-once.

The life of a rollout's ledger: *begin* notes a call before it is generated, *put* records
it, *freeze* closes the ledger and names its content, *drop* and *retire* remove it and
leave a fence, *delete* removes the fence as well.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from ckptfmt.errors import ConflictError
from ckptfmt.ledger.entry import TokenEntry, check_call_id, line_digest
from ckptfmt.ledger.names import Kind, check_batch
from ckptfmt.ledger.open_ledger import OpenLedger
from ckptfmt.ledger.removal import COMPLETE, Removal, delete, retire
from ckptfmt.ledger.sessions import Sessions
from ckptfmt.store.os_calls import OsCalls

__all__ = ["Snapshot", "TokenStore"]

# Entries whose digests are held in memory, over all ledgers; some 200 bytes each.
_MAX_INDEXED: Final = 1_000_000
_SNAPSHOT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen ledger: which one, and whether it is whole.

    ``lost`` are the ids of calls without an entry, as far as they are known; a ledger may
    be ``incomplete`` without naming one.
    """

    key: str
    snapshot_id: str
    version: int
    entries: int
    incomplete: bool
    lost: tuple[str, ...]


class TokenStore:
    """The complete records in the directory ``root``, which is made if it is missing.

    Several processes and threads may write at once; every method takes the rollout's lock
    and returns once what it did is durable.  A store may be used after a fork.  Not to be
    used while a writer that does not know the lock stripes is at work in the directory.

    All methods refuse a malformed capture key with ``NameRefusedError``, and raise
    ``StorageError`` where the file system fails and ``CorruptError`` or
    ``UnsupportedError`` where what is there cannot be continued; nothing is written then.
    """

    def __init__(self, root: str | os.PathLike[str], *, calls: OsCalls | None = None) -> None:
        self._sessions = Sessions(root, calls or OsCalls(), OpenLedger, Kind.TOKENS, _MAX_INDEXED)

    def close(self) -> None:
        """Close what is held open; the store is not to be used afterwards."""
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

    def begin_call(self, key: str, call_id: str) -> None:
        """Note a call before it is generated: without an entry it will count as lost.

        Raises:
            StateError: the ledger is frozen.
            RetiredError: it is retired.
        """
        self._note_intent(key, check_call_id(call_id), "begin a call in")

    def cancel_call(self, key: str, call_id: str) -> None:
        """Take a noted call back: nothing was generated for it.

        Raises:
            StateError: the ledger is frozen.
            RetiredError: it is retired.
        """
        self._note_intent(key, "-" + check_call_id(call_id), "cancel a call in")

    def put(self, entry: TokenEntry) -> bool:
        """Record an entry; False if the same one, byte for byte, is recorded already.

        Raises:
            ConflictError: its call id is recorded with other bytes.  The ledger is marked
                incomplete.
            StateError: the ledger is frozen.
            RetiredError: it is retired.
            ValueRefusedError: an invariant of the entry does not hold.
            SizeError: the line would be too long.
        """
        line = entry.line()
        digest = line_digest(line)
        call_id = entry.model_call_id
        with self._sessions.open(entry.rollout_id, "record a call in") as ledger:
            ledger.require_writable()
            ledger.catch_up()
            known = ledger.digests.get(call_id)
            if known is None:
                ledger.append(call_id, line, digest)
                return True
            if known != digest:
                ledger.mark_incomplete(call_id)
                raise ConflictError(
                    f"model call {call_id!a} of {ledger.key!a} is recorded with other content: "
                    f"sha256 {known}, not {digest}; the ledger is marked incomplete"
                )
            # It may be another process's, which died before its sync.
            ledger.make_entries_durable()
            return False

    def mark_incomplete(self, key: str, call_id: str = "") -> None:
        """Note that a call was lost; also in a frozen ledger, whose version moves on.

        Raises:
            RetiredError: the ledger is retired.
        """
        if call_id:
            check_call_id(call_id)
        with self._sessions.open(key, "mark") as ledger:
            ledger.require_live()
            ledger.mark_incomplete(call_id)

    def freeze(self, key: str) -> Snapshot:
        """Close the ledger to further calls; again, it gives the same snapshot id.

        Raises:
            RetiredError: the ledger is retired.
        """
        with self._sessions.open(key, "freeze") as ledger:
            ledger.require_live()
            ledger.catch_up()
            ledger.make_entries_durable()
            if not ledger.state.frozen:
                ledger.version += 1
                ledger.save(frozen=True, snapshot_id=secrets.token_hex(_SNAPSHOT_BYTES))
            incomplete, lost = ledger.lost_calls()
            return Snapshot(
                key=ledger.key,
                snapshot_id=ledger.state.snapshot_id,
                version=ledger.version,
                entries=len(ledger.digests),
                incomplete=incomplete,
                lost=tuple(lost),
            )

    def drop(self, key: str, *, snapshot_id: str, version: int) -> bool:
        """Retire the ledger if it still is that snapshot; otherwise False, nothing removed."""
        with self._sessions.open(key, "drop") as ledger:
            state = ledger.state
            if (state.frozen, state.snapshot_id, state.version) != (True, snapshot_id, version):
                return False
            COMPLETE.write_fence(self._sessions.folder, ledger.key)
            self._sessions.folder.sync()
            COMPLETE.remove_records(self._sessions.folder, ledger.key)
            self._sessions.folder.sync()
            ledger.close()
            return True

    def retire(self, keys: Sequence[str]) -> Removal:
        """Remove ledgers and leave fences, whatever their state; repeating is safe.

        Raises:
            SizeError: more than 4,096 keys.
        """
        checked = check_batch(keys)
        self._sessions.forget(checked)
        return retire(self._sessions.folder, self._sessions.locks, COMPLETE, checked)

    def delete(self, keys: Sequence[str]) -> Removal:
        """Remove ledgers and fences: the keys can be used from scratch; repeating is safe.

        Raises:
            SizeError: more than 4,096 keys.
        """
        checked = check_batch(keys)
        self._sessions.forget(checked)
        return delete(self._sessions.folder, self._sessions.locks, COMPLETE, checked)

    def _note_intent(self, key: str, text: str, action: str) -> None:
        with self._sessions.open(key, action) as ledger:
            ledger.require_writable()
            ledger.add_intent(text)
