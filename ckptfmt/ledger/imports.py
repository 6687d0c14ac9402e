"""Putting rows of a checkpoint in place: what a restore does for all its rollouts at once.

Content is written and synced first, under temporary names.  Then, one rollout after the
other: whatever the rollout's later attempts have goes, then the target's token files, then
the rows take their name by one rename, then the target's fences go.  So each ledger is
the old one, fenced, or the new one at every moment, and an import that died can be
repeated.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ckptfmt.errors import CkptError, ConflictError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.locks import Locks
from ckptfmt.ledger.names import Kind, check_batch, file_name, parse_name
from ckptfmt.ledger.open_rows import check_chain
from ckptfmt.ledger.removal import COMPLETE, STAGING
from ckptfmt.ledger.row import Row, RowMembers, row_line, typed_row

__all__ = ["import_rows"]


def import_rows(folder: Folder, locks: Locks, rows: Mapping[str, Sequence[RowMembers]]) -> None:
    """Replace the ledgers of ``rows``' keys; the folder is synced once.

    Raises:
        NameRefusedError: a malformed key.
        ValueRefusedError, ConflictError: rows that cannot stand in one ledger.
        SizeError: too many keys, or a row that is too long.
        StorageError: part of the batch may be done; repeat it.
    """
    contents = {key: _content(key, rows[key]) for key in check_batch(list(rows))}
    staged: dict[str, str] = {}
    with folder.mapped(f"import {len(contents)} ledgers into", "."):
        try:
            later = _later_attempts(folder, contents)
            for key, content in contents.items():
                staged[key], _ = folder.stage(content)
            for key in contents:
                for attempt in later[key]:
                    with locks.holding(attempt):
                        _clear(folder, attempt)
                        folder.unlink(file_name(attempt, Kind.LINEAGE))
                        _unfence(folder, attempt)
                with locks.holding(key):
                    _clear(folder, key)
                    folder.publish(staged[key], file_name(key, Kind.LINEAGE))
                    del staged[key]
                    _unfence(folder, key)
        except BaseException:
            for temporary in staged.values():
                folder.discard(temporary)
            with contextlib.suppress(OSError):
                folder.sync()
            raise
        if contents:
            folder.sync()


def _clear(folder: Folder, key: str) -> None:
    COMPLETE.hide(folder, key)
    COMPLETE.remove_records(folder, key)


def _unfence(folder: Folder, key: str) -> None:
    folder.unlink(file_name(key, COMPLETE.fence))
    folder.unlink(file_name(key, STAGING.fence))


def _content(key: str, rows: Sequence[RowMembers]) -> bytes:
    by_call: dict[str, RowMembers] = {}
    staging_keys: set[str] = set()
    lines: list[bytes] = []
    for ordinal, members in enumerate(rows):
        try:
            row = typed_row(members)
            if row.model_call_id in by_call:
                raise ConflictError(f"model call {row.model_call_id!a} has two rows")
            if isinstance(row, Row):
                check_chain(row, by_call, staging_keys)
                staging_keys.add(row.staging_key)
            lines.append(row_line(row.members()) + b"\n")
        except CkptError as error:
            raise error.at(key=key, ordinal=ordinal) from None
        by_call[row.model_call_id] = members
    return b"".join(lines)


def _later_attempts(folder: Folder, targets: Mapping[str, object]) -> dict[str, list[str]]:
    """The later attempts of each target's rollout that have files, earliest first."""
    wanted = {EpisodeId.from_capture_key(key).rollout_id for key in targets}
    attempts: defaultdict[str, set[int]] = defaultdict(set)
    for entry in folder.entries():
        if parsed := parse_name(entry.name):
            episode = EpisodeId.from_capture_key(parsed[0])
            if episode.rollout_id in wanted:
                attempts[episode.rollout_id].add(episode.attempt)
    found: dict[str, list[str]] = {}
    for key in targets:
        target = EpisodeId.from_capture_key(key)
        numbers = sorted(n for n in attempts[target.rollout_id] if n > target.attempt)
        keys = [EpisodeId(target.rollout_id, number).capture_key for number in numbers]
        found[key] = [later for later in keys if later not in targets]
    return found
