"""Where a participant's records go and come from: the seam, and ``ckptfmt`` behind it.

Everything here is called in worker threads and may hang.  Errors of the format become
errors of the participant here, once, with their cause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from ckptfmt.checkpoint import Checkpoint, open_checkpoint, store_at
from ckptfmt.commit import Publication, PublicationState, Unknown
from ckptfmt.errors import (
    CkptError,
    CommitUnknownError,
    DeadlineError,
    StateError,
    StorageError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.nemo_gym.layout import GYM_FOLDER
from ckptfmt.nemo_gym.writer import abort_gym_participant, write_gym_participant
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.publish import abort_participant
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import Store
from participant.core.errors import (
    CheckpointFailedError,
    DeadlineExceededError,
    InvalidCheckpointStateError,
    ParticipantError,
    StaleCheckpointError,
)
from participant.hooks import PinLike, RecordLike

__all__ = [
    "CheckpointStorage",
    "FormatStorage",
    "LoadedState",
    "NemoGymStorage",
    "Publication",
    "PublicationState",
    "SaveOrder",
    "claim",
    "storage_of",
    "translated",
    "translating",
]


@dataclass(frozen=True, slots=True)
class SaveOrder:
    """What is to be stored, and where; the same for every attempt to store it."""

    checkpoint_id: str
    checkpoint_dir: str
    participant: ParticipantId
    records: tuple[RecordLike, ...]
    extras: Mapping[str, Any]
    ledger_pins: tuple[PinLike, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedState:
    """What a checkpoint holds of the episodes asked for, verified as a whole."""

    source_checkpoint_id: str
    records: tuple[RecordLike, ...]


class CheckpointStorage(Protocol):
    """Stores and reads what one participant holds."""

    def save(
        self, order: SaveOrder, publication: Publication, may_publish: Callable[[], bool]
    ) -> bytes:
        """Store the records and publish them; the manifest as JSON.

        The right to publish is claimed from ``publication`` last, and only if
        ``may_publish``; after it was abandoned nothing is published.  If that right was
        claimed and the outcome is not known, ``publication`` is left unknown.

        Raises:
            ParticipantError: nothing was published, or it is unknown whether it was.
        """

    def settle(self, order: SaveOrder) -> None:
        """Make sure that a save of unknown outcome has an outcome, if need be none.

        Raises:
            ParticipantError: it still is not known.
        """

    def load(
        self, checkpoint_dir: str, participant: ParticipantId, episodes: frozenset[EpisodeId]
    ) -> LoadedState:
        """Read and verify everything; the records of ``episodes``.

        Raises:
            ParticipantError: it cannot be used, or not read.
        """


def translated(error: CkptError) -> ParticipantError:
    """An error of the format as an error of the participant."""
    kind: type[ParticipantError] = InvalidCheckpointStateError
    if isinstance(error, DeadlineError):
        kind = DeadlineExceededError
    elif isinstance(error, StorageError | CommitUnknownError):
        kind = CheckpointFailedError
    return kind(f"{error.code}: {error}")


@contextlib.contextmanager
def translating() -> Iterator[None]:
    """Errors of the format that the block raises become errors of the participant."""
    try:
        yield
    except CkptError as error:
        raise translated(error) from error


@contextlib.contextmanager
def _publishing() -> Iterator[None]:
    """As :func:`translating`, where a state that forbids going on is that of the publication."""
    try:
        with translating():
            yield
    except InvalidCheckpointStateError as error:
        if isinstance(error.__cause__, StateError):
            raise StaleCheckpointError("it was resumed before it was stored") from error
        raise


def claim(publication: Publication, may_publish: Callable[[], bool]) -> None:
    """Take the right to publish, for storages that do not write through ``ckptfmt``.

    Raises:
        StaleCheckpointError: it was abandoned.
        DeadlineExceededError: it may not be published any more.
    """
    with _publishing():
        publication.claim(lambda: _check(may_publish))


def _check(may_publish: Callable[[], bool]) -> None:
    if not may_publish():
        raise DeadlineError("the lease ran out before publication")


class FormatStorage:
    """A :class:`CheckpointStorage` in the layout of ``ckptfmt``.

    ``open_store`` gives the store whose root is a checkpoint's folder; its options and
    credentials are the server's own, never a request's.
    """

    def __init__(self, open_store: Callable[[str], Store] = store_at) -> None:
        self._open_store = open_store

    def save(
        self, order: SaveOrder, publication: Publication, may_publish: Callable[[], bool]
    ) -> bytes:
        """As :meth:`CheckpointStorage.save`."""
        with _publishing():
            publication.check_open()
            writer = ParticipantWriter(
                self._open_store(order.checkpoint_dir),
                Folder(),
                order.checkpoint_id,
                order.participant,
                publication=publication,
                role=order.extras or None,
                ledger_pins=(cast("LedgerPin", pin) for pin in order.ledger_pins),
            )
            with writer:
                for record in _sorted(order):
                    writer.add(cast("TypedRecord | Record", record))
                return writer.finish(lambda: _check(may_publish)).require().data

    def settle(self, order: SaveOrder) -> None:
        """As :meth:`CheckpointStorage.settle`: by a tombstone, unless the manifest is there."""
        with translating():
            store = self._open_store(order.checkpoint_dir)
            outcome = abort_participant(store, Folder(), order.checkpoint_id, order.participant)
            if isinstance(outcome, Unknown):
                raise outcome.reason

    def load(
        self, checkpoint_dir: str, participant: ParticipantId, episodes: frozenset[EpisodeId]
    ) -> LoadedState:
        """As :meth:`CheckpointStorage.load`; the checkpoint has to be published."""
        with translating():
            checkpoint: Checkpoint = open_checkpoint(self._open_store(checkpoint_dir))
            reader = checkpoint.participant(participant)
            reader.check_sizes()
            records = reader.load(episodes=episodes)
            return LoadedState(reader.manifest.checkpoint_id, tuple(records))


def _sorted(order: SaveOrder) -> list[RecordLike]:
    # So that a repeat of the same content gives the same bytes.
    return sorted(order.records, key=lambda record: record.key)


class NemoGymStorage(FormatStorage):
    """A :class:`CheckpointStorage` that writes NeMo Gym's layout, and reads either.

    The manifest, and with it the reply to a commit, is Gym's: what the role adds stands in
    the reply beside it only, and ledgers are not pinned.
    """

    def save(
        self, order: SaveOrder, publication: Publication, may_publish: Callable[[], bool]
    ) -> bytes:
        """As :meth:`CheckpointStorage.save`; a value that Gym cannot spell is refused."""
        with _publishing():
            publication.check_open()
            return write_gym_participant(
                self._open_store(order.checkpoint_dir),
                Folder(GYM_FOLDER),
                order.checkpoint_id,
                order.participant,
                [cast("TypedRecord | Record", record) for record in _sorted(order)],
                publication=publication,
                check=lambda: _check(may_publish),
            )

    def settle(self, order: SaveOrder) -> None:
        """As :meth:`CheckpointStorage.settle`: by a tombstone, unless the manifest is there."""
        with translating():
            abort_gym_participant(
                self._open_store(order.checkpoint_dir),
                Folder(GYM_FOLDER),
                order.checkpoint_id,
                order.participant,
            )


_STORAGES: Final[Mapping[str, type[FormatStorage]]] = {
    "ckptfmt": FormatStorage,
    "nemo-gym": NemoGymStorage,
}


def storage_of(layout: str) -> CheckpointStorage:
    """The storage of a layout that the settings name.

    Raises:
        ValueError: this release does not write it.
    """
    storage = _STORAGES.get(layout)
    if storage is None:
        raise ValueError(f"this release does not write the storage layout {layout}")
    return storage()
