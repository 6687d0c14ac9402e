"""Reading a checkpoint: ``checkpoint.json`` first, and the participants that it names."""

from __future__ import annotations

import contextlib
from typing import Literal, Self

from ckptfmt.errors import (
    AbortedError,
    CkptError,
    DataError,
    IncompleteError,
    MissingError,
    RefusedError,
)
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder, is_own
from ckptfmt.manifest import CheckpointManifest, Sealed, Tombstone, decode_manifest
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.store.base import Store
from ckptfmt.wire import MAX_MANIFEST_BYTES

__all__ = ["Checkpoint", "participants_in", "read_aggregate"]


def read_aggregate(store: Store, folder: Folder) -> Sealed[CheckpointManifest]:
    """Read and verify ``checkpoint.json``.

    Raises:
        MissingError: there is no checkpoint.
        IncompleteError: participants have written, nothing was published.
        AbortedError: the checkpoint was given up.
        TornError, CorruptError, UnsupportedError: as :func:`decode_manifest`.
    """
    name = folder.aggregate
    try:
        sealed = decode_manifest(store.read_small(name, MAX_MANIFEST_BYTES), CheckpointManifest)
    except MissingError as error:
        if participants_in(store, folder):
            raise IncompleteError(
                "the checkpoint was never published: it has participants, but no checkpoint.json",
                advice="use the previous checkpoint",
            ).at(file=name) from error
        raise MissingError(f"there is no checkpoint in {store.label}").at(file=name) from error
    except CkptError as error:
        error.at(file=name)
        raise
    if isinstance(sealed.body, Tombstone):
        raise AbortedError("the checkpoint was given up", advice="use the previous one").at(
            checkpoint=sealed.body.checkpoint_id, file=name
        )
    return sealed


def participants_in(store: Store, folder: Folder) -> list[ParticipantId]:
    """The participants that wrote into a checkpoint, sorted: anything of theirs counts.

    Raises:
        StorageError: a folder cannot be listed, so that it cannot be told.
    """
    found = []
    for kind in _children(store, folder.prefix, "dir"):
        for instance in _children(store, folder.kind(kind), "dir"):
            with contextlib.suppress(RefusedError):
                participant = ParticipantId(kind, instance)
                files = _children(store, folder.participant(participant), "file")
                if any(is_own(name) for name in files):
                    found.append(participant)
    return sorted(found)


def _children(store: Store, prefix: str, kind: Literal["file", "dir"]) -> list[str]:
    # A folder that cannot be named or listed holds nothing that could be read here either.
    with contextlib.suppress(RefusedError, DataError):
        return [entry.name for entry in store.entries(prefix) if entry.kind == kind]
    return []


class Checkpoint:
    """A checkpoint opened for reading.

    Only ``checkpoint.json`` is read here; a participant's manifest when it is asked for.
    """

    def __init__(self, store: Store, folder: Folder, sealed: Sealed[CheckpointManifest]) -> None:
        self.store = store
        self.folder = folder
        self.sealed = sealed

    @classmethod
    def open(cls, store: Store, folder: Folder = Folder()) -> Self:
        """Open a published checkpoint.

        Raises:
            DataError: as :func:`read_aggregate`.
        """
        return cls(store, folder, read_aggregate(store, folder))

    @property
    def manifest(self) -> CheckpointManifest:
        """What ``checkpoint.json`` says."""
        return self.sealed.body

    @property
    def sequence(self) -> int | None:
        """Its place among the checkpoints of the run; None in a layout that has none."""
        return self.manifest.sequence

    @property
    def format_version(self) -> str:
        """The version of its format: ``major.minor``, or a layout's name and version."""
        return f"{self.manifest.major}.{self.manifest.minor}"

    @property
    def files(self) -> set[str]:
        """The names in the store of the files that lie beside the kinds."""
        return {self.folder.aggregate}

    @property
    def participants(self) -> tuple[ParticipantId, ...]:
        """Whose records it holds, sorted."""
        return tuple(sorted(item.participant for item in self.manifest.participants))

    def participant(self, participant: ParticipantId) -> ParticipantReader:
        """Open what a participant wrote, after its manifest was verified.

        Raises:
            MissingError: it is no part of the checkpoint, or its manifest is gone.
            CorruptError: the manifest is not the one that was published.
        """
        for expected in self.manifest.participants:
            if expected.participant == participant:
                return ParticipantReader.open(
                    self.store, self.folder, participant, self.manifest.checkpoint_id, expected
                )
        raise MissingError(f"the checkpoint has no participant {participant}").at(
            checkpoint=self.manifest.checkpoint_id, participant=str(participant)
        )

    def check(self) -> None:
        """Verify all manifests, and that every data object is there in its full size.

        Raises:
            DataError: the first thing that is wrong.
        """
        for participant in self.participants:
            self.participant(participant).check_sizes()
