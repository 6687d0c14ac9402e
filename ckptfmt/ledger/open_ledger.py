"""The complete records of one rollout, as the process that holds its lock sees them.

Kept between calls, so that a call costs two looks at the disk and not a reading of what
is there.  What other processes did meanwhile shows in the state file's identity and in
the size of the lines; only the lines behind the known ones are read.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, TypeAlias

import msgspec

from ckptfmt.errors import CkptError, CorruptError, RetiredError, SizeError, StateError
from ckptfmt.ledger.append_file import LineFile
from ckptfmt.ledger.entry import TokenEntry, line_digest
from ckptfmt.ledger.folder import Folder, read_whole
from ckptfmt.ledger.intents import IdFile, listed_ids, open_intents
from ckptfmt.ledger.limits import INDEX_TAIL_BYTES, INDEX_TAIL_DIVISOR, MAX_STATE_BYTES
from ckptfmt.ledger.lines import Line
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.ledger.state import LedgerState

__all__ = ["OpenLedger", "read_state"]

_Identity: TypeAlias = tuple[int, int, int]


class OpenLedger:
    """State, index and files of one rollout.  All errors of the system are ``OSError``.

    ``digests`` maps call ids to the digests of their lines; ``version`` is the state's,
    counted on for every line that the state does not know yet.
    """

    def __init__(self, folder: Folder, key: str) -> None:
        self.key = key
        self.state = LedgerState()
        self.digests: dict[str, str] = {}
        self.version = 0
        self._folder = folder
        self._state_name = file_name(key, Kind.STATE)
        self._identity: _Identity | None = None
        self._lines = LineFile(folder, file_name(key, Kind.TOKENS))
        self._intents = IdFile(folder, file_name(key, Kind.INTENTS))
        self._incomplete = IdFile(folder, file_name(key, Kind.INCOMPLETE))

    def refresh(self) -> None:
        """Read the state again if another process wrote it."""
        identity = _identity_of(self._folder.stat(self._state_name))
        if identity != self._identity:
            self._load(identity)

    @property
    def weight(self) -> int:
        """How many digests are held."""
        return len(self.digests)

    def require_writable(self) -> None:
        """Refuse a ledger that takes no more calls.

        Raises:
            RetiredError: it was retired.
            StateError: it is frozen.
        """
        self.require_live()
        if self.state.frozen:
            raise StateError(f"the ledger of {self.key!a} is frozen")

    def require_live(self) -> None:
        """Refuse a ledger that was retired.

        Raises:
            RetiredError: it was.
        """
        if self.state.retired:
            raise RetiredError(f"the ledger of {self.key!a} is retired")

    def catch_up(self) -> None:
        """Index the lines that are not known yet.

        Raises:
            CorruptError: a malformed line, a call recorded twice, or an index that goes
                beyond the lines.
            UnsupportedError: a line of a newer version.
        """
        if not self._lines.look():
            self._load(self._identity)
        if self._lines.position > self._lines.file.size_bytes:
            raise CorruptError(
                f"indexed_size {self._lines.position:,} is beyond the "
                f"{self._lines.file.size_bytes:,} bytes of {self._lines.file.name}",
                advice="restore the lines, or retire or delete this ledger",
            ).at(file=self._state_name)
        for line in self._lines.fresh():
            self._index(line)

    def _index(self, line: Line) -> None:
        assert line.text is not None
        try:
            entry = TokenEntry.from_line(line.text)
            if entry.rollout_id != self.key:
                raise CorruptError(f"an entry of another rollout, {entry.rollout_id[:200]!a}")
            digest = line_digest(line.text)
            if self.digests.setdefault(entry.model_call_id, digest) != digest:
                raise CorruptError(f"model call {entry.model_call_id!a} has two different entries")
        except CkptError as error:
            raise error.at(file=self._lines.file.name, offset=line.offset) from None
        self.version += 1

    def append(self, call_id: str, line: bytes, digest: str) -> None:
        """Write an entry's line durably, and the index if it has fallen behind."""
        self._lines.append(line)
        self.digests[call_id] = digest
        self.version += 1
        behind = self._lines.position - self.state.indexed_size
        if behind > INDEX_TAIL_BYTES and behind > self._lines.position // INDEX_TAIL_DIVISOR:
            # The entry is durable already; the next put tries the index again.
            with contextlib.suppress(OSError):
                self._write_state()

    def make_entries_durable(self) -> None:
        """Sync the lines, whoever wrote them."""
        self._lines.file.make_durable()

    def add_intent(self, text: str) -> None:
        """Write a line of the intents durably."""
        self._intents.append(text)

    def mark_incomplete(self, call_id: str) -> None:
        """Note durably that a call was lost; ``call_id`` may be empty."""
        self.version += 1
        # The flag first: it moves the version, so that no drop of an older snapshot succeeds.
        self.save(incomplete=True)
        if call_id:
            self._incomplete.append(call_id)

    def save(self, **flags: Any) -> None:
        """Write the state durably, with the index as it is and these flags changed."""
        self._write_state(**flags)
        self._folder.sync()

    def lost_calls(self) -> tuple[bool, list[str]]:
        """Whether the ledger is incomplete, and the ids of lost calls as far as known."""
        marked = self._read(Kind.INCOMPLETE)
        begun = open_intents(self._read(Kind.INTENTS) or b"")
        resolved = self.digests.keys() | self.state.refused_call_ids
        dangling = [call_id for call_id in begun if call_id not in resolved]
        lost = list(dict.fromkeys(listed_ids(marked or b"") + dangling))
        return self.state.incomplete or marked is not None or bool(dangling), lost

    def close(self) -> None:
        """Close the files; the ledger is not to be used afterwards."""
        for file in (self._lines.file, self._intents.file, self._incomplete.file):
            file.close()

    def _read(self, kind: Kind) -> bytes | None:
        return read_whole(self._folder, file_name(self.key, kind), MAX_STATE_BYTES)

    def _load(self, identity: _Identity | None) -> None:
        self.state = read_state(self._folder, self.key)
        self._identity = identity
        self.digests = dict(self.state.entry_digests)
        self.version = self.state.version
        self._lines.rewind(self.state.indexed_size)

    def _write_state(self, **flags: Any) -> None:
        state = msgspec.structs.replace(
            self.state,
            version=self.version,
            entry_digests=self.digests,
            indexed_size=self._lines.position,
            **flags,
        )
        status = self._folder.replace(self._state_name, state.encode())
        self.state = state
        self._identity = _identity_of(status)


def read_state(folder: Folder, key: str) -> LedgerState:
    """The state of a rollout; the defaults where there is none.

    Raises:
        CorruptError: the file is no state.
    """
    name = file_name(key, Kind.STATE)
    try:
        data = read_whole(folder, name, MAX_STATE_BYTES)
        return LedgerState() if data is None else LedgerState.decode(data)
    except (CorruptError, SizeError) as error:
        raise CorruptError(
            error.message,
            advice="retire or delete this ledger, or remove the file: it is made again from the "
            "lines, but a frozen or retired ledger would be open again",
        ).at(file=name) from error


def _identity_of(status: os.stat_result | None) -> _Identity | None:
    return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)
