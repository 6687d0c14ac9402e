"""Garbage collection of what failed writes left: a plan first, then exactly that.

What a manifest names is never touched, and time decides nothing.  A data object or a
temporary file is garbage only where no commit can still need it: in a checkpoint that
was published or given up, or beside a manifest that stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ckptfmt.checkpoint_reader import Checkpoint, participants_in
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    DataError,
    IncompleteError,
    MissingError,
    StorageError,
)
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import LATEST_NAME, MANIFEST_NAME, Folder, is_leftover, is_own
from ckptfmt.nemo_gym.layout import gym_folder
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.store.base import Store
from ckptfmt.store.names import is_name, join_name

__all__ = ["GcPlan", "Kept", "apply_gc", "plan_gc"]


@dataclass(frozen=True, slots=True)
class Kept:
    """A name that is not deleted although nobody refers to it, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What :func:`apply_gc` deletes, in this order, and what stays for a reason.

    ``refusal`` says why nothing may be deleted in this run at all.
    """

    delete: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    refusal: CkptError | None = None


def plan_gc(store: Store) -> GcPlan:
    """Find the leftovers of a run.

    A damaged checkpoint, or one of a version that is not known here, forbids all
    deletion: what it needs cannot be told.

    Raises:
        MissingError: the run's directory is not there.
        StorageError: it cannot be listed.
    """
    delete: list[str] = []
    kept: list[Kept] = []
    for entry in store.entries():
        if entry.kind != "dir" or not is_name(entry.name):
            if is_leftover(entry.name):
                kept.append(Kept(entry.name, "a write may be under way; it is one small file"))
            elif entry.name != LATEST_NAME:
                kept.append(Kept(entry.name, "not ours"))
            continue
        try:
            for name, reason in _checkpoint_leftovers(store, Folder(entry.name)):
                if reason is None:
                    delete.append(name)
                else:
                    kept.append(Kept(name, reason))
        except CkptError as error:
            return GcPlan(kept=tuple(kept), refusal=error)
    return GcPlan(tuple(delete), tuple(kept))


def _checkpoint_leftovers(store: Store, folder: Folder) -> Iterator[tuple[str, str | None]]:
    participants = participants_in(store, folder)
    try:
        checkpoint = Checkpoint.open(store, folder)
        closed = True
    except AbortedError:
        closed = True
    except IncompleteError:
        closed = False
    except MissingError:
        yield folder.prefix, _reason(store, folder)
        return
    else:
        checkpoint.check()
    yield from _strangers(store, folder, participants, closed)
    for participant in participants:
        yield from _participant_leftovers(store, folder, participant, closed)


def _reason(store: Store, folder: Folder) -> str:
    if gym_folder(store, folder) is None:
        return "not a checkpoint"
    return "in NeMo Gym's layout, in which nothing shows what a writer still needs"


def _strangers(
    store: Store, folder: Folder, participants: list[ParticipantId], closed: bool
) -> Iterator[tuple[str, str | None]]:
    known = {folder.aggregate: "file"}
    for participant in participants:
        known[folder.kind(participant.kind)] = known[folder.participant(participant)] = "dir"
    kinds = sorted({folder.kind(participant.kind) for participant in participants})
    for prefix in (folder.prefix, *kinds):
        for entry in store.entries(prefix):
            name = join_name(prefix, entry.name)
            if known.get(name) == entry.kind:
                continue
            if entry.kind == "file" and is_leftover(entry.name):
                yield name, None if closed else "the checkpoint may still be in the making"
            else:
                yield name, "not ours"


def _participant_leftovers(
    store: Store, folder: Folder, participant: ParticipantId, closed: bool
) -> Iterator[tuple[str, str | None]]:
    named = {MANIFEST_NAME}
    try:
        manifest = ParticipantReader.open(store, folder, participant).manifest
        named.update(item.name for item in manifest.objects)
        closed = True
    except AbortedError:
        closed = True
    except MissingError:
        pass
    for entry in store.entries(folder.participant(participant)):
        name = join_name(folder.participant(participant), entry.name)
        if entry.kind != "file" or not is_own(entry.name):
            yield name, "not ours"
        elif entry.name not in named:
            yield name, None if closed else "the participant may still be writing"


def apply_gc(store: Store, plan: GcPlan) -> list[tuple[str, CkptError]]:
    """Delete what the plan names; what could not be deleted comes back with the reason."""
    failed: list[tuple[str, CkptError]] = []
    for name in plan.delete:
        try:
            store.delete(name)
        except MissingError:
            continue
        except (DataError, StorageError) as error:
            failed.append((name, error))
    return failed
