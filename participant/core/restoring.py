"""A restore: closed, read, installed; and what it brought until somebody continues it.

A restore that nobody waits for any more is given up.  Before the install that costs
nothing.  An install cannot be called off: it is *outlived*, admission stays closed until
it has ended, and what it brought is freed again, unless the same restore is asked for
once more meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ckptfmt.identity import EpisodeId
from participant.core.errors import CheckpointConflictError
from participant.core.messages import Restore, RestoreReply

__all__ = ["RestoreStage", "Restored", "Restoring"]


class RestoreStage(StrEnum):
    """How far a restore is."""

    CLOSING = "closing"
    LOADING = "loading"
    INSTALLING = "installing"
    INSTALLED = "installed"


@dataclass(slots=True)
class Restoring:
    """A restore under way or just done; ``episodes`` are the attempts of the checkpoint."""

    number: int
    checkpoint_id: str
    checkpoint_dir: str
    episodes: frozenset[EpisodeId]
    deadline: float = 0.0
    lease_until: float = 0.0
    stage: RestoreStage = RestoreStage.CLOSING
    outlived: bool = False
    source_checkpoint_id: str = ""
    found: frozenset[EpisodeId] = frozenset()
    reply: RestoreReply | None = None

    @property
    def is_installing(self) -> bool:
        """Whether state is being changed just now."""
        return self.stage is RestoreStage.INSTALLING

    @property
    def continued(self) -> frozenset[EpisodeId]:
        """The attempts that it installs: the next one of each in scope."""
        return frozenset(episode.continuation for episode in self.episodes)

    @property
    def restored_keys(self) -> tuple[str, ...]:
        """The capture keys of the next attempts that have a record here, sorted."""
        return tuple(sorted(episode.continuation.capture_key for episode in self.found))

    def check_arguments(self, request: Restore) -> None:
        """Refuse a repeat that differs from the first.

        Raises:
            CheckpointConflictError: in directory or episodes.
        """
        if (self.checkpoint_dir, self.episodes) != (request.checkpoint_dir, request.episodes):
            raise CheckpointConflictError(
                f"{self.checkpoint_id} is a restore from another directory or of other episodes"
            )


class Restored:
    """What the last restore brought.

    ``pending`` are attempts whose replacement has not started.  Of every rollout that was
    restored the attempt is kept, as many as one restore named: a late call of an attempt
    before it must neither read nor change what was installed.
    """

    def __init__(self) -> None:
        self.source_checkpoint_id = ""
        self.pending: set[EpisodeId] = set()
        self._attempts: dict[str, int] = {}

    def installed(self, restoring: Restoring) -> None:
        """A restore has ended well."""
        self.source_checkpoint_id = restoring.source_checkpoint_id
        self.pending = {episode.continuation for episode in restoring.found}
        self._attempts = {e.rollout_id: e.attempt for e in restoring.continued}

    def discard(self, episodes: frozenset[EpisodeId]) -> None:
        """These are gone as if they had not been restored."""
        self.pending -= episodes
        for episode in episodes:
            if self._attempts.get(episode.rollout_id) == episode.attempt:
                del self._attempts[episode.rollout_id]

    def retired(self, episode: EpisodeId) -> None:
        """An attempt and every earlier one of its rollout were retired."""
        attempt = self._attempts.get(episode.rollout_id)
        if attempt is not None and attempt <= episode.attempt:
            self.discard(frozenset({EpisodeId(episode.rollout_id, attempt)}))

    def started(self, episode: EpisodeId) -> None:
        """The replacement has started."""
        self.pending.discard(episode)

    def all(self) -> frozenset[EpisodeId]:
        """Every attempt that the last restore installed and that is not retired since."""
        return frozenset(EpisodeId(r, attempt) for r, attempt in self._attempts.items())

    def continued_by(self, episode: EpisodeId) -> int | None:
        """The later attempt that continues the rollout of ``episode`` here, if one does."""
        attempt = self._attempts.get(episode.rollout_id)
        return attempt if attempt is not None and attempt > episode.attempt else None
