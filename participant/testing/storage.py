"""Storage in memory, with a place for faults before each of its steps."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core.errors import InvalidCheckpointStateError
from participant.hooks import RecordLike
from participant.runtime.saving import (
    LoadedState,
    Publication,
    PublicationState,
    SaveOrder,
    claim,
)

__all__ = ["LineStorage", "MemoryStorage", "Stored"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What one participant published in one directory; None of it for a tombstone."""

    checkpoint_id: str
    token: int
    records: tuple[RecordLike, ...] | None

    @property
    def manifest(self) -> bytes:
        """The manifest as JSON."""
        members = {"checkpoint_id": self.checkpoint_id, "token": self.token}
        return json.dumps(members).encode()


class MemoryStorage:
    """A :class:`participant.runtime.saving.CheckpointStorage` in a dictionary.

    ``before`` is called ahead of each step with its name: ``write``, ``claim``, ``publish``,
    ``published``, ``settle``, ``load``.  It may raise, or wait as long as it likes.
    """

    def __init__(self, before: Callable[[str], None] | None = None) -> None:
        self.before = before or (lambda step: None)
        self._lock = threading.Lock()
        self._tokens = 0
        self._stored: dict[tuple[str, ParticipantId], Stored] = {}

    @property
    def stored(self) -> Mapping[tuple[str, ParticipantId], Stored]:
        """What was published so far, by directory and participant."""
        with self._lock:
            return dict(self._stored)

    def save(
        self, order: SaveOrder, publication: Publication, may_publish: Callable[[], bool]
    ) -> bytes:
        """As :meth:`CheckpointStorage.save`."""
        self.before("write")
        self.before("claim")
        claim(publication, may_publish)
        try:
            self.before("publish")
            stored = self._publish(order)
            self.before("published")
        except InvalidCheckpointStateError:
            publication.settle(PublicationState.NOT_PUBLISHED)
            raise
        except BaseException:
            publication.settle(PublicationState.UNKNOWN)
            raise
        publication.settle(PublicationState.PUBLISHED)
        return stored.manifest

    def _publish(self, order: SaveOrder) -> Stored:
        with self._lock:
            self._tokens += 1
            new = Stored(order.checkpoint_id, self._tokens, order.records)
            stored = self._stored.setdefault((order.checkpoint_dir, order.participant), new)
        if stored is not new and _content(stored) != _content(new):
            raise InvalidCheckpointStateError(
                f"other content was published here first, with token {stored.token}"
            )
        return stored

    def settle(self, order: SaveOrder) -> None:
        """As :meth:`CheckpointStorage.settle`."""
        self.before("settle")
        with self._lock:
            self._tokens += 1
            tombstone = Stored(order.checkpoint_id, self._tokens, None)
            self._stored.setdefault((order.checkpoint_dir, order.participant), tombstone)

    def load(
        self, checkpoint_dir: str, participant: ParticipantId, episodes: frozenset[EpisodeId]
    ) -> LoadedState:
        """As :meth:`CheckpointStorage.load`."""
        self.before("load")
        stored = self.stored.get((checkpoint_dir, participant))
        if stored is None or stored.records is None:
            raise InvalidCheckpointStateError(f"{participant} has nothing in {checkpoint_dir}")
        records = tuple(r for r in stored.records if r.episode_id in episodes)
        return LoadedState(stored.checkpoint_id, records)


class LineStorage(MemoryStorage):
    """What is loaded has been through its lines, as through a file: nothing of it is alive."""

    def load(
        self, checkpoint_dir: str, participant: ParticipantId, episodes: frozenset[EpisodeId]
    ) -> LoadedState:
        """As :meth:`CheckpointStorage.load`."""
        state = super().load(checkpoint_dir, participant, episodes)
        return LoadedState(state.source_checkpoint_id, tuple(_read_again(r) for r in state.records))


def _read_again(record: Any) -> Any:
    return type(record).from_line(b"".join(bytes(piece) for piece in record.line()))


def _content(stored: Stored) -> tuple[Any, ...]:
    keys = None if stored.records is None else sorted(record.key for record in stored.records)
    return stored.checkpoint_id, keys
