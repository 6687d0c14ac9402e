"""Fences: what keeps a retired attempt out while requests of it may still be on their way.

A caller may have sent a request just before its own retire, and it can arrive after the
retire of the callee.  So a retire leaves a fence, bounded in time and in number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ckptfmt.identity import EpisodeId

__all__ = ["MAX_FENCES", "Fences"]

MAX_FENCES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Fence:
    attempt: int
    expires_at: float


class Fences:
    """By rollout: the highest retired attempt, for ``ttl_s`` seconds after its last retire."""

    def __init__(self, ttl_s: float, limit: int = MAX_FENCES) -> None:
        self._ttl_s = ttl_s
        self._limit = limit
        # All live equally long, so the order of insertion is the order of expiry.
        self._fences: dict[str, _Fence] = {}
        self.evicted = 0
        """How many were dropped before their time, because there were too many."""

    def __len__(self) -> int:
        return len(self._fences)

    def add(self, now: float, episode: EpisodeId) -> None:
        """Refuse ``episode`` and every earlier attempt from now on."""
        self.purge(now)
        old = self._fences.pop(episode.rollout_id, None)
        attempt = episode.attempt if old is None else max(old.attempt, episode.attempt)
        if len(self._fences) >= self._limit:
            del self._fences[next(iter(self._fences))]
            self.evicted += 1
        self._fences[episode.rollout_id] = _Fence(attempt, now + self._ttl_s)

    def lift(self, episode: EpisodeId) -> None:
        """Let ``episode`` in again, as a restore that installed it does; earlier ones stay out."""
        fence = self._fences.get(episode.rollout_id)
        if fence is None or fence.attempt < episode.attempt:
            return
        if episode.attempt == 0:
            del self._fences[episode.rollout_id]
        else:
            self._fences[episode.rollout_id] = _Fence(episode.attempt - 1, fence.expires_at)

    def retired_ago(self, now: float, episode: EpisodeId) -> float | None:
        """How many seconds ago ``episode`` was retired; None if no fence keeps it out."""
        fence = self._fences.get(episode.rollout_id)
        if fence is None or now >= fence.expires_at or episode.attempt > fence.attempt:
            return None
        return self._ttl_s - (fence.expires_at - now)

    def purge(self, now: float) -> None:
        """Drop what has expired."""
        while self._fences:
            rollout_id, fence = next(iter(self._fences.items()))
            if now < fence.expires_at:
                return
            del self._fences[rollout_id]

    @property
    def next_expiry(self) -> float | None:
        """When the oldest fence ends."""
        return next(iter(self._fences.values())).expires_at if self._fences else None
