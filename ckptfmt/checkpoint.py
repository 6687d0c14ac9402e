"""The façade: write, open, list, judge, compare and clean up checkpoints.

A *run* is the directory that holds checkpoints, a *checkpoint* one folder of it.  Both
are given as a path, or as a :class:`~ckptfmt.store.base.Store` whose root they are.

Nothing here does anything of its own: :mod:`~ckptfmt.participant_writer` and
:mod:`~ckptfmt.publish` write, :mod:`~ckptfmt.checkpoint_reader` and
:mod:`~ckptfmt.participant_reader` read, :mod:`~ckptfmt.run` lists, :mod:`~ckptfmt.verify`
judges, :mod:`~ckptfmt.recover` salvages, :mod:`~ckptfmt.diff` compares and
:mod:`~ckptfmt.leftovers` cleans up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from ckptfmt import diff as diffs
from ckptfmt import layouts, leftovers, publish, recover, run
from ckptfmt import verify as verifying
from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.commit import Outcome
from ckptfmt.diff import Change
from ckptfmt.errors import CapabilityError, CkptError
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.leftovers import GcPlan
from ckptfmt.manifest import CheckpointManifest
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.publish import About
from ckptfmt.record import Record
from ckptfmt.recovery import Recovery
from ckptfmt.rules import Finding
from ckptfmt.run import CheckpointEntry, Latest
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import Store
from ckptfmt.store.local import LocalStore
from ckptfmt.verify import Level, Progress

__all__ = [
    "Checkpoint",
    "ParticipantReader",
    "Place",
    "apply_gc",
    "diff",
    "is_remote",
    "latest",
    "list_checkpoints",
    "open_checkpoint",
    "plan_gc",
    "salvage",
    "store_at",
    "verify",
    "write_checkpoint",
]

Place: TypeAlias = "Store | str | os.PathLike[str]"
"""A directory: its path, or the store whose root it is."""


# A drive letter is no scheme.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_remote(path: str) -> bool:
    """Whether a path is the URL of a remote store."""
    return _SCHEME.match(path) is not None


def store_at(place: Place) -> Store:
    """The store of a place; a path becomes a :class:`LocalStore`.

    Raises:
        CapabilityError: the path is of a remote store; as a directory it would be created here.
        NameRefusedError: the path is empty or holds a NUL.
    """
    if isinstance(place, str) and is_remote(place):
        raise CapabilityError(
            f"{place[:200]!a} is in a remote store, which this release cannot reach",
            advice="use a local directory",
        )
    return LocalStore(place) if isinstance(place, (str, os.PathLike)) else place


def write_checkpoint(
    run_place: Place,
    checkpoint_id: str,
    participants: Mapping[ParticipantId, Iterable[TypedRecord | Record]],
    about: About = About(),
) -> Outcome[CheckpointManifest]:
    """Write a whole checkpoint and publish it; see :func:`ckptfmt.publish.write_checkpoint`."""
    return publish.write_checkpoint(store_at(run_place), checkpoint_id, participants, about)


def open_checkpoint(checkpoint: Place) -> Checkpoint:
    """Open a published checkpoint, in whatever layout it is; see :mod:`ckptfmt.layouts`.

    Raises:
        DataError: it is missing, incomplete, aborted, torn, corrupt or unsupported.
        StorageError: it cannot be read.
    """
    return layouts.open_checkpoint(store_at(checkpoint))


def list_checkpoints(run_place: Place) -> list[CheckpointEntry]:
    """The folders of a run, by sequence; see :func:`ckptfmt.run.list_checkpoints`."""
    return run.list_checkpoints(store_at(run_place))


def latest(run_place: Place) -> Latest:
    """The checkpoint to restore from; see :func:`ckptfmt.run.latest`."""
    return run.latest(store_at(run_place))


def verify(
    checkpoint: Place, *, level: Level = Level.FULL, progress: Progress | None = None
) -> Iterator[Finding]:
    """Everything that is wrong with a checkpoint; see :func:`ckptfmt.verify.verify`."""
    return verifying.verify(store_at(checkpoint), Folder(), level=level, progress=progress)


def salvage(checkpoint: Place, new: Place) -> Recovery:
    """Every readable record, in a new place; see :func:`ckptfmt.recover.recover_checkpoint`."""
    return recover.recover_checkpoint(store_at(checkpoint), Folder(), store_at(new))


def diff(old: Place, new: Place) -> Iterator[Change]:
    """The records that differ, from indexes; see :func:`ckptfmt.diff.diff_checkpoints`."""
    return diffs.diff_checkpoints(open_checkpoint(old), open_checkpoint(new))


def plan_gc(run_place: Place) -> GcPlan:
    """What garbage collection would delete; see :func:`ckptfmt.leftovers.plan_gc`."""
    return leftovers.plan_gc(store_at(run_place))


def apply_gc(run_place: Place, plan: GcPlan) -> list[tuple[str, CkptError]]:
    """Delete what a plan names; see :func:`ckptfmt.leftovers.apply_gc`."""
    return leftovers.apply_gc(store_at(run_place), plan)
