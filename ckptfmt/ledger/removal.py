"""Retiring and deleting ledgers in batches, and sweeping old fences away.

A retire makes the fences durable before it removes a record, so that at no moment a
rollout has neither; a late writer then finds the fence and starts no new ledger.  A
delete removes the fence last.  Both can be repeated after a death to the same end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from ckptfmt.errors import CorruptError
from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.limits import SWEEP_AGE_S
from ckptfmt.ledger.locks import Locks
from ckptfmt.ledger.names import Kind, file_name, is_temporary, parse_name
from ckptfmt.ledger.open_ledger import read_state
from ckptfmt.ledger.state import LedgerState
from ckptfmt.store.os_calls import OsCalls

__all__ = ["COMPLETE", "STAGING", "Family", "Removal", "delete", "retire", "sweep"]


@dataclass(frozen=True, slots=True)
class Removal:
    """Which rollouts of a batch had records that are now gone, and which had none."""

    removed: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of files: what holds records, in the order of removal, and what fences.

    ``is_fenced`` and ``write_fence`` work under the rollout's lock; the fence's name is
    durable after the next sync of the folder.
    """

    records: tuple[Kind, ...]
    fence: Kind
    is_fenced: Callable[[Folder, str], bool]
    write_fence: Callable[[Folder, str], object]

    def has_records(self, folder: Folder, key: str) -> bool:
        """Whether there is anything to remove."""
        return any(folder.stat(file_name(key, kind)) is not None for kind in self.records)

    def remove_records(self, folder: Folder, key: str) -> None:
        """Remove what holds records."""
        for kind in self.records:
            folder.unlink(file_name(key, kind))

    def hide(self, folder: Folder, key: str) -> None:
        """Fence records that are about to go, if they are in several files.

        These do not vanish at once, and half of them must not pass for a ledger.
        """
        if len(self.records) > 1 and self.has_records(folder, key):
            self.write_fence(folder, key)

    def remove(self, folder: Folder, key: str) -> None:
        """Remove everything, the fence last."""
        self.hide(folder, key)
        self.remove_records(folder, key)
        folder.unlink(file_name(key, self.fence))


def _state_of(folder: Folder, key: str) -> LedgerState:
    # Removing is the way out of a damaged ledger.
    try:
        return read_state(folder, key)
    except CorruptError:
        return LedgerState()


def _is_retired(folder: Folder, key: str) -> bool:
    return _state_of(folder, key).retired


def _retire_state(folder: Folder, key: str) -> None:
    state = _state_of(folder, key)
    if not state.retired:
        extras = {name: value for name, value in state.extras.items() if name != "refusals"}
        fence = msgspec.structs.replace(
            state, retired=True, entry_digests={}, indexed_size=0, extras=extras
        )
        folder.replace(file_name(key, Kind.STATE), fence.encode())


def _has_fence_file(folder: Folder, key: str) -> bool:
    return folder.stat(file_name(key, Kind.FENCE)) is not None


def _make_fence_file(folder: Folder, key: str) -> None:
    # It is empty: only its name has to be made durable.
    if not _has_fence_file(folder, key):
        folder.calls.close(folder.open_append(file_name(key, Kind.FENCE)))


COMPLETE: Final = Family(
    (Kind.TOKENS, Kind.INTENTS, Kind.INCOMPLETE), Kind.STATE, _is_retired, _retire_state
)
STAGING: Final = Family((Kind.LINEAGE,), Kind.FENCE, _has_fence_file, _make_fence_file)


def retire(folder: Folder, locks: Locks, family: Family, checked: list[str]) -> Removal:
    """Remove the records of a batch of rollouts and leave fences.

    ``checked`` is what :func:`~ckptfmt.ledger.names.check_batch` gave.

    Raises:
        StorageError: part of the batch may be done; repeat it.
    """
    removed: list[str] = []
    with _batch(folder, family, "retire", checked):
        for key in checked:
            with locks.holding(key):
                if family.has_records(folder, key):
                    removed.append(key)
                family.write_fence(folder, key)
        # Also where no fence was written here: who wrote them may have died before its sync.
        folder.sync()
        for key in removed:
            with locks.holding(key):
                # Somebody may have deleted the fence meanwhile, to use the key from scratch.
                if family.is_fenced(folder, key):
                    family.remove_records(folder, key)
    return _removal(checked, removed)


def delete(folder: Folder, locks: Locks, family: Family, checked: list[str]) -> Removal:
    """Remove the records and the fences of a batch of rollouts.

    ``checked`` is what :func:`~ckptfmt.ledger.names.check_batch` gave.

    Raises:
        StorageError: part of the batch may be done; repeat it.
    """
    removed: list[str] = []
    with _batch(folder, family, "delete", checked):
        for key in checked:
            with locks.holding(key):
                if family.has_records(folder, key):
                    removed.append(key)
                family.remove(folder, key)
                folder.unlink(file_name(key, Kind.LOCK))
    return _removal(checked, removed)


@contextlib.contextmanager
def _batch(folder: Folder, family: Family, action: str, keys: list[str]) -> Iterator[None]:
    """Sync the folder at the end, however it comes: a repeat may find nothing to do."""
    name = file_name(keys[0], family.records[0]) if len(keys) == 1 else "."
    with folder.mapped(f"{action} ledgers in", name):
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                folder.sync()
            raise
        if keys:
            folder.sync()


def _removal(keys: list[str], removed: list[str]) -> Removal:
    gone = set(removed)
    return Removal(tuple(removed), tuple(key for key in keys if key not in gone))


def sweep(
    root: str | os.PathLike[str],
    *,
    now_s: float,
    age_s: float = SWEEP_AGE_S,
    apply: bool = True,
    calls: OsCalls | None = None,
) -> tuple[str, ...]:
    """Remove fences older than ``age_s`` seconds, and temporary files left behind.

    Returns the names that were removed, sorted; with ``apply=False`` those that would be.
    ``now_s`` is in Unix seconds.  What a died retire left beside a fence goes first.

    Raises:
        StorageError: part may be done; repeat it.
    """
    folder = Folder(root, calls or OsCalls())
    locks = Locks(folder)
    try:
        with folder.mapped("sweep", "."):
            names = [entry.name for entry in folder.entries() if entry.kind == "file"]
            found = list(_swept(folder, locks, names, now_s - age_s, apply))
            if found and apply:
                folder.sync()
        return tuple(sorted(found))
    finally:
        locks.close()
        folder.close()


def _swept(
    folder: Folder, locks: Locks, names: Iterable[str], before_s: float, apply: bool
) -> Iterator[str]:
    families = {family.fence: family for family in (COMPLETE, STAGING)}
    for name in names:
        parsed = parse_name(name)
        if is_temporary(name):
            if _is_older(folder, name, before_s):
                if apply:
                    folder.unlink(name)
                yield name
        elif parsed and parsed[1] in families and _is_older(folder, name, before_s):
            key, family = parsed[0], families[parsed[1]]
            with locks.holding(key) if apply else contextlib.nullcontext():
                if _is_older(folder, name, before_s) and family.is_fenced(folder, key):
                    kinds = (*family.records, family.fence)
                    names_here = [file_name(key, kind) for kind in kinds]
                    yield from [n for n in names_here if folder.stat(n) is not None]
                    if apply:
                        family.remove(folder, key)


def _is_older(folder: Folder, name: str, before_s: float) -> bool:
    status = folder.stat(name)
    return status is not None and status.st_mtime < before_s
