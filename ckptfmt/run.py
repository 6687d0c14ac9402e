"""A run: the directory that holds checkpoints.  Which there are, and which is the latest.

The answer follows from ``checkpoint.json`` files that verify.  Listings, times, and the
file ``LATEST`` are hints.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Final

import msgspec

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import (
    AbortedError,
    AmbiguousLatestError,
    CkptError,
    DeadlineError,
    IncompleteError,
    MissingError,
    TransientError,
)
from ckptfmt.layout import LATEST_NAME, Folder
from ckptfmt.layouts import open_checkpoint
from ckptfmt.manifest import CheckpointManifest, Sealed
from ckptfmt.nemo_gym.order import Undated, choose_latest
from ckptfmt.store.base import Store
from ckptfmt.store.names import is_name

__all__ = [
    "CheckpointEntry",
    "CheckpointState",
    "Latest",
    "RunScan",
    "latest",
    "list_checkpoints",
    "write_hint",
]

# These say nothing of a checkpoint: whoever passed it over would restore an older one.
_MAY_PASS: Final = (TransientError, DeadlineError)
_MAX_HINT_BYTES: Final = 4096
# A hint beyond is garbage: if it counted, there would soon be no number left to give out.
_MAX_HINTED: Final = 1 << 62


class CheckpointState(StrEnum):
    """What a folder of a run holds."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"
    ABORTED = "aborted"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A folder of a run.  ``opened`` is None where ``checkpoint.json`` could not be read.

    ``problem`` says why the checkpoint is not complete.
    """

    folder: Folder
    state: CheckpointState
    opened: Checkpoint | None = None
    problem: CkptError | None = None

    @property
    def sealed(self) -> Sealed[CheckpointManifest] | None:
        """What ``checkpoint.json`` says, as far as it can be read."""
        return None if self.opened is None else self.opened.sealed

    @property
    def sequence(self) -> int | None:
        """Its place among the checkpoints of the run; None in a layout that has none."""
        return None if self.opened is None else self.opened.sequence

    @property
    def checkpoint_id(self) -> str | None:
        """Its id, as far as it can be read."""
        return None if self.sealed is None else self.sealed.body.checkpoint_id


@dataclass(frozen=True, slots=True)
class Latest:
    """The complete checkpoint with the highest sequence, and what was passed over."""

    entry: CheckpointEntry
    skipped: tuple[CheckpointEntry, ...] = ()
    notices: tuple[str, ...] = ()


class _Hint(msgspec.Struct, frozen=True):
    checkpoint_id: str
    sequence: Annotated[int, msgspec.Meta(ge=0, le=_MAX_HINTED)]


def list_checkpoints(store: Store) -> list[CheckpointEntry]:
    """The folders of a run: those of a known sequence first, in that order, then the others.

    Manifests are verified and the sizes of data objects compared; no data is read.
    Files are no checkpoints and are left out.

    Raises:
        MissingError: the run's directory is not there.
        StorageError: it cannot be listed, or the store failed in a way that may pass.
    """
    return [_checked(entry) for entry in RunScan(store).entries]


class RunScan:
    """The ``checkpoint.json`` files of a run, each read once; participants are not looked at.

    Raises:
        MissingError: the run's directory is not there.
        StorageError: it cannot be listed, or the store failed in a way that may pass.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hint_bytes = _read_hint(store)
        self._hint = _decoded_hint(self._hint_bytes)
        folders = [
            _look(store, Folder(entry.name))
            for entry in store.entries()
            if entry.kind == "dir" and is_name(entry.name)
        ]
        self.entries = sorted(folders, key=_order)

    @property
    def highest_sequence(self) -> int:
        """The highest sequence that the run has given out, as far as it can be seen; 0: none.

        Damaged checkpoints count, and so does the file ``LATEST``, since what it names may
        have been removed.
        """
        hinted = 0 if self._hint is None else self._hint.sequence
        return max([hinted, *(entry.sequence or 0 for entry in self.entries)])

    def latest(self) -> Latest:
        """See :func:`latest`."""
        skipped = [
            entry
            for entry in self.entries
            if entry.opened is None and entry.state is not CheckpointState.FOREIGN
        ]
        placed = [entry for entry in reversed(self.entries) if entry.sequence is not None]
        for _, group in groupby(placed, key=attrgetter("sequence")):
            twins = [_checked(entry) for entry in group]
            complete = [entry for entry in twins if entry.state is CheckpointState.COMPLETE]
            skipped += [entry for entry in twins if entry.state is not CheckpointState.COMPLETE]
            if len(complete) > 1:
                raise _ambiguous(complete)
            if complete:
                notices = _hint_notices(self._hint, complete[0])
                return Latest(complete[0], tuple(skipped), notices)
        undated = [_checked(entry) for entry in self.entries if _is_undated(entry)]
        complete = [entry for entry in undated if entry.state is CheckpointState.COMPLETE]
        skipped += [entry for entry in undated if entry.state is not CheckpointState.COMPLETE]
        if complete:
            index, how = choose_latest([_undated(entry) for entry in complete], self._hint_bytes)
            best = complete[index]
            return Latest(best, tuple(skipped), (f"{best.folder.prefix} is taken {how}",))
        reasons = [f"{entry.folder.prefix}: {entry.problem}" for entry in skipped]
        raise MissingError(
            "; ".join([f"there is no complete checkpoint in {self._store.label}", *reasons])
        )


def latest(store: Store) -> Latest:
    """The checkpoint to restore from: complete, with the highest sequence.

    Those of a layout without a sequence are looked at only where there is no other; a notice
    says what decided.

    Raises:
        MissingError: the run has no complete checkpoint; those there are named with the
            reason.
        AmbiguousLatestError: two complete ones have the highest sequence, or nothing tells
            which is the latest; choose by id.
        StorageError: the run cannot be listed, or the store failed in a way that may pass: it
            never gives an older checkpoint for that.
    """
    return RunScan(store).latest()


def _ambiguous(twins: list[CheckpointEntry]) -> AmbiguousLatestError:
    names = " and ".join(sorted(entry.folder.prefix for entry in twins))
    return AmbiguousLatestError(
        f"{names} both have sequence {twins[0].sequence}", advice="name the checkpoint to restore"
    )


def _is_undated(entry: CheckpointEntry) -> bool:
    return entry.opened is not None and entry.sequence is None


def _undated(entry: CheckpointEntry) -> Undated:
    assert entry.opened is not None
    body = entry.opened.manifest
    return Undated(entry.folder.prefix, body.checkpoint_id, body.provenance.created_at)


def _order(entry: CheckpointEntry) -> tuple[bool, int, str]:
    sequence = entry.sequence
    return (sequence is None, sequence or 0, entry.folder.prefix)


def _look(store: Store, folder: Folder) -> CheckpointEntry:
    try:
        opened = open_checkpoint(store, folder)
    except MissingError:
        return CheckpointEntry(folder, CheckpointState.FOREIGN)
    except IncompleteError as error:
        return CheckpointEntry(folder, CheckpointState.INCOMPLETE, problem=error)
    except AbortedError as error:
        return CheckpointEntry(folder, CheckpointState.ABORTED, problem=error)
    except _MAY_PASS:
        raise
    except CkptError as error:
        return CheckpointEntry(folder, CheckpointState.DAMAGED, problem=error)
    return CheckpointEntry(folder, CheckpointState.COMPLETE, opened)


def _checked(entry: CheckpointEntry) -> CheckpointEntry:
    """The entry, damaged where its participants' manifests or data are not what it says."""
    if entry.opened is None:
        return entry
    try:
        entry.opened.check()
    except _MAY_PASS:
        raise
    except CkptError as error:
        return replace(entry, state=CheckpointState.DAMAGED, problem=error)
    return entry


def _hint_notices(hint: _Hint | None, best: CheckpointEntry) -> tuple[str, ...]:
    if hint is None or hint.checkpoint_id == best.checkpoint_id:
        return ()
    named = ascii(hint.checkpoint_id)
    return (f"{LATEST_NAME} names {named}, not the latest complete checkpoint; it is ignored",)


def _read_hint(store: Store) -> bytes | None:
    with contextlib.suppress(CkptError):
        return store.read_small(LATEST_NAME, _MAX_HINT_BYTES)
    return None


def _decoded_hint(hint: bytes | None) -> _Hint | None:
    # Whatever stands there, a hint never stops anybody.
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        return None if hint is None else msgspec.json.decode(hint, type=_Hint)
    return None


def write_hint(store: Store, manifest: CheckpointManifest) -> None:
    """Let ``LATEST`` name a checkpoint.  It is a hint: a failure leaves none, and is no error."""
    hint = _Hint(manifest.checkpoint_id, manifest.sequence)
    with contextlib.suppress(CkptError):
        with contextlib.suppress(MissingError):
            store.delete(LATEST_NAME)
        store.create(LATEST_NAME, msgspec.json.encode(hint) + b"\n")
