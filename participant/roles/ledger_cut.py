"""What a checkpoint holds of capture ledgers: read as a whole, then without undelivered calls.

Rows are read first and only then is it asked which calls are undelivered.  A call names
itself before it writes, and is undelivered as long as the checkpoint is open; so a row
that is written while ledgers are read is known for what it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.row import RowMembers
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.schema import ModelRecord
from participant.core.errors import InvalidCheckpointStateError
from participant.roles.payloads import payload_of

__all__ = ["LedgerCut", "delivered", "read_cut", "rows_of"]


@dataclass(frozen=True, slots=True)
class LedgerCut:
    """The rows of each episode as they stood, and the pins of the ledgers that have any.

    A pin is of the ledger as it was read, rows of undelivered calls included.
    """

    rows: Mapping[EpisodeId, Sequence[RowMembers]]
    pins: Mapping[EpisodeId, LedgerPin]

    def records(self, undelivered: Mapping[EpisodeId, Collection[str]]) -> list[ModelRecord]:
        """A record an episode that has rows left without its undelivered calls, by call id."""
        records = []
        for episode, rows in self.rows.items():
            kept = delivered(rows, undelivered.get(episode, ()))
            if kept:
                records.append(_record(episode, kept))
        return records

    def pins_of(self, records: Iterable[ModelRecord]) -> list[LedgerPin]:
        """The pins of the ledgers that the records come from."""
        return [self.pins[record.episode_id] for record in records]


def read_cut(ledger: StagingLedger, episodes: Iterable[EpisodeId]) -> LedgerCut:
    """Read and pin the ledgers of these episodes, and of no others.

    Raises:
        RetiredError: one of them is retired.
        StorageError, CorruptError: it cannot be read.
    """
    rows: dict[EpisodeId, Sequence[RowMembers]] = {}
    pins: dict[EpisodeId, LedgerPin] = {}
    for episode in episodes:
        rows[episode], pin = ledger.export_pinned(episode.capture_key)
        if pin is not None:
            pins[episode] = pin
    return LedgerCut(rows, pins)


def delivered(rows: Sequence[RowMembers], undelivered: Collection[str]) -> list[RowMembers]:
    """The rows without those of undelivered calls, unless a row that is left descends from one.

    Two calls with the same tokens are the same to whoever continues them, so a delivered
    conversation may stand on the row of a repeat that was not delivered.
    """
    kept: list[RowMembers] = []
    ancestors: set[str] = set()
    for row in reversed(rows):
        if row["model_call_id"] not in undelivered or row["model_call_id"] in ancestors:
            kept.append(row)
            if row.get("parent_call_id") is not None:
                ancestors.add(row["parent_call_id"])
    return kept[::-1]


def rows_of(record: ModelRecord) -> list[RowMembers]:
    """The rows of a record.

    Raises:
        InvalidCheckpointStateError: they are not objects.
    """
    rows: list[Any] = record.rows.value()
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidCheckpointStateError(f"{record.key} has a ledger row that is no object")
    return rows


def _record(episode: EpisodeId, rows: Sequence[RowMembers]) -> ModelRecord:
    key = episode.capture_key
    no_cuts = payload_of([], key)
    return ModelRecord(
        episode_id=episode, rows=payload_of(list(rows), key), generation_cuts=no_cuts
    )
