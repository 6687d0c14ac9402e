"""What changed between two checkpoints, record by record, from their indexes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.participant_reader import ParticipantReader

__all__ = ["Change", "ChangeKind", "diff_checkpoints", "diff_participants"]


class ChangeKind(StrEnum):
    """How a record differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    CONTINUED = "continued"


@dataclass(frozen=True, slots=True)
class Change:
    """One record that is not the same in both.

    ``old_key`` and ``new_key`` differ where a later attempt continued the episode.
    """

    kind: ChangeKind
    participant: ParticipantId
    old_key: str | None
    new_key: str | None


def diff_checkpoints(old: Checkpoint, new: Checkpoint) -> Iterator[Change]:
    """The records that were added, removed, changed or continued by a later attempt.

    Participants whose content digests are equal cost their manifests only, others their
    indexes; no record is read.

    Raises:
        DataError: a manifest or an index cannot be read.
    """
    for participant in sorted({*old.participants, *new.participants}):
        before = old.participant(participant) if participant in old.participants else None
        after = new.participant(participant) if participant in new.participants else None
        yield from diff_participants(participant, before, after)


def diff_participants(
    participant: ParticipantId, before: ParticipantReader | None, after: ParticipantReader | None
) -> Iterator[Change]:
    """As :func:`diff_checkpoints`, for one participant; None stands for one without records."""
    if before and after and before.content_digest == after.content_digest:
        return
    old = _digests(before)
    new = _digests(after)
    for key in sorted(old.keys() & new.keys()):
        if old[key] != new[key]:
            yield Change(ChangeKind.CHANGED, participant, key, key)
    removed = sorted(old.keys() - new.keys())
    added = sorted(new.keys() - old.keys())
    continued = _continuations(removed, added)
    for key in removed:
        if key in continued:
            yield Change(ChangeKind.CONTINUED, participant, key, continued[key])
        else:
            yield Change(ChangeKind.REMOVED, participant, key, None)
    for key in sorted(set(added) - set(continued.values())):
        yield Change(ChangeKind.ADDED, participant, None, key)


def _digests(reader: ParticipantReader | None) -> dict[str, bytes]:
    return {} if reader is None else dict(chain.from_iterable(reader.indexes()))


def _continuations(removed: list[str], added: list[str]) -> dict[str, str]:
    """Pairs of records of one rollout and sub-key whose attempt went up."""
    later: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for key in added:
        episode, sub_key = _parts(key)
        later.setdefault((episode.rollout_id, sub_key), []).append((episode.attempt, key))
    pairs: dict[str, str] = {}
    for key in removed:
        episode, sub_key = _parts(key)
        candidates = sorted(later.get((episode.rollout_id, sub_key), ()))
        match = next((item for item in candidates if item[0] > episode.attempt), None)
        if match is not None:
            pairs[key] = match[1]
            later[episode.rollout_id, sub_key].remove(match)
    return pairs


def _parts(key: str) -> tuple[EpisodeId, str]:
    capture_key, _, sub_key = key.partition("/")
    return EpisodeId.from_capture_key(capture_key), sub_key
