"""Which session belongs to which episode, in both directions, without a scan."""

from __future__ import annotations

from collections.abc import Iterator

from ckptfmt.identity import EpisodeId

__all__ = ["SessionTable"]


class SessionTable:
    """The sessions of one server.

    A restored session is *untouched* until its first call: an episode that starts over
    seeds a new one instead, and nobody will ever close the old one.
    """

    def __init__(self) -> None:
        self._episodes: dict[str, EpisodeId] = {}
        self._sessions: dict[str, dict[EpisodeId, set[str]]] = {}
        self._untouched: set[str] = set()

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[tuple[str, EpisodeId]]:
        """Every session with its episode."""
        return iter(tuple(self._episodes.items()))

    def episode_of(self, session_id: str) -> EpisodeId | None:
        """The episode of a session; None if there is no such session."""
        return self._episodes.get(session_id)

    def of(self, episode: EpisodeId) -> list[str]:
        """The sessions of exactly this attempt."""
        return sorted(self._sessions.get(episode.rollout_id, {}).get(episode, ()))

    def up_to(self, episode: EpisodeId) -> list[str]:
        """The sessions of this attempt and of every earlier one of its rollout."""
        attempts = self._sessions.get(episode.rollout_id, {})
        return [s for attempt in attempts if episode.covers(attempt) for s in self.of(attempt)]

    def untouched(self, episode: EpisodeId) -> list[str]:
        """The restored sessions of this attempt that no call has reached yet."""
        return [session_id for session_id in self.of(episode) if session_id in self._untouched]

    def bind(self, session_id: str, episode: EpisodeId, *, is_restored: bool = False) -> None:
        """The session belongs to ``episode``, whichever it belonged to before."""
        self.end(session_id)
        self._episodes[session_id] = episode
        attempts = self._sessions.setdefault(episode.rollout_id, {})
        attempts.setdefault(episode, set()).add(session_id)
        if is_restored:
            self._untouched.add(session_id)

    def touch(self, session_id: str) -> None:
        """A call has reached the session."""
        self._untouched.discard(session_id)

    def end(self, session_id: str) -> None:
        """The session is over; nothing happens where there is none."""
        episode = self._episodes.pop(session_id, None)
        self._untouched.discard(session_id)
        if episode is None:
            return
        attempts = self._sessions[episode.rollout_id]
        attempts[episode].discard(session_id)
        if not attempts[episode]:
            del attempts[episode]
        if not attempts:
            del self._sessions[episode.rollout_id]
