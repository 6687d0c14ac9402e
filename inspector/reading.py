"""A checkpoint as it can be read: whole, unpublished on request, or damaged in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import CkptError, CorruptError, IncompleteError, TornError
from ckptfmt.identity import ParticipantId
from ckptfmt.layouts import open_checkpoint, open_participant, participants_in
from ckptfmt.manifest import CheckpointManifest
from ckptfmt.participant_reader import ParticipantReader
from inspector.places import Place

__all__ = ["Damage", "Reading", "open_reading"]

Damage = Callable[[CkptError], None]
"""Takes what is wrong with a part; the work goes on."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An opened checkpoint.  ``published`` is None where ``checkpoint.json`` gives nothing."""

    place: Place
    participants: tuple[ParticipantId, ...]
    published: Checkpoint | None = None

    @property
    def manifest(self) -> CheckpointManifest | None:
        """What ``checkpoint.json`` says."""
        return None if self.published is None else self.published.manifest

    def reader(self, participant: ParticipantId) -> ParticipantReader:
        """Open a participant.

        Raises:
            DataError: its manifest cannot be used.
        """
        if self.published is not None:
            return self.published.participant(participant)
        return open_participant(self.place.store, self.place.folder, participant)

    def readers(
        self, participants: tuple[ParticipantId, ...], damage: Damage
    ) -> Iterator[ParticipantReader]:
        """Open some participants; those that cannot be opened go to ``damage``."""
        for participant in participants:
            try:
                reader = self.reader(participant)
            except CkptError as error:
                damage(error)
                continue
            yield reader


def open_reading(place: Place, damage: Damage, *, incomplete: bool = False) -> Reading:
    """Open a checkpoint for reading.

    A damaged ``checkpoint.json`` goes to ``damage``, and the participants that lie there
    are read on their own word.

    Raises:
        IncompleteError: it was never published, and ``incomplete`` does not ask for it.
        MissingError, AbortedError, UnsupportedError, StorageError: it cannot be read.
    """
    try:
        published = open_checkpoint(place.store, place.folder)
        return Reading(place, published.participants, published)
    except IncompleteError as error:
        if not incomplete:
            raise IncompleteError(
                error.message, error.location, advice="--incomplete reads what is there"
            ) from error
    except (CorruptError, TornError) as error:
        damage(error)
    return Reading(place, tuple(participants_in(place.store, place.folder)))
