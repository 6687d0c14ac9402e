"""The commit scope: which episodes the controller continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ckptfmt.identity import EpisodeId

__all__ = ["Scope"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Every episode that the controller continues; ``episodes`` is None for all of them.

    A restored episode whose replacement has not started is named by that replacement's
    attempt.  Compared as a set: order and repetition on the wire mean nothing.
    """

    episodes: frozenset[EpisodeId] | None = None

    @classmethod
    def of(cls, episodes: Iterable[EpisodeId] | None) -> Self:
        """The scope that a request names."""
        return cls(None if episodes is None else frozenset(episodes))

    def __contains__(self, episode: EpisodeId) -> bool:
        return self.episodes is None or episode in self.episodes

    def left_out(self, episodes: Iterable[EpisodeId]) -> frozenset[EpisodeId]:
        """Those of ``episodes`` that the controller does not continue."""
        return frozenset(episode for episode in episodes if episode not in self)
