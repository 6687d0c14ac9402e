"""The seam between the layouts that can be read: which one lies there is told by looking.

Ours is looked for first and costs nothing more.
"""

from __future__ import annotations

from ckptfmt import checkpoint_reader
from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import IncompleteError, MissingError
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.nemo_gym.layout import gym_folder, gym_participants
from ckptfmt.nemo_gym.reader import GymCheckpoint, GymReader
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.store.base import Store

__all__ = ["open_checkpoint", "open_participant", "participants_in"]


def open_checkpoint(store: Store, folder: Folder = Folder()) -> Checkpoint:
    """Open a checkpoint in whatever layout it is; in ours it has to be published.

    Raises:
        DataError: as :meth:`Checkpoint.open` and :meth:`GymCheckpoint.open`.
    """
    try:
        return Checkpoint.open(store, folder)
    except (MissingError, IncompleteError):
        gym = gym_folder(store, folder)
        if gym is None:
            raise
    return GymCheckpoint.open(store, gym)


def open_participant(store: Store, folder: Folder, participant: ParticipantId) -> ParticipantReader:
    """Open what a participant wrote, on its own word, whether it was published or not.

    Raises:
        DataError: as :meth:`ParticipantReader.open`.
    """
    gym = gym_folder(store, folder)
    if gym is not None:
        return GymReader.open(store, gym, participant)
    return ParticipantReader.open(store, folder, participant)


def participants_in(store: Store, folder: Folder) -> list[ParticipantId]:
    """The participants that wrote into a checkpoint, sorted; nothing vouches for them."""
    gym = gym_folder(store, folder)
    if gym is not None:
        return list(gym_participants(store, gym))
    return checkpoint_reader.participants_in(store, folder)
