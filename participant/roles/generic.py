"""Hooks of a server that keeps one value an episode: the shortest way into a checkpoint."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckptfmt.identity import EpisodeId
from ckptfmt.record import Record
from participant.core.errors import InvalidCheckpointStateError
from participant.hooks import DefaultHooks, Export, Scope
from participant.roles.payloads import payload_of

__all__ = ["StateTable", "StatefulHooks"]

_STATE = "state"


class StatefulHooks(DefaultHooks, ABC):
    """Hooks over a server's own table of episodes: say how to snapshot and rebuild one.

    A record is ``{"episode_id": …, "state": …}``; the state may be any value that
    ``ckptfmt`` carries exactly: JSON values, tuples, NaN, dicts with any keys of these.
    """

    @abstractmethod
    def episodes(self) -> Iterable[EpisodeId]:
        """The attempts that the server holds, running or restored."""

    def episodes_of(self, rollout_id: str) -> Iterable[EpisodeId]:
        """Those of one rollout; asked at every retire, so a server that holds many overrides it."""
        return (episode for episode in self.episodes() if episode.rollout_id == rollout_id)

    @abstractmethod
    def snapshot(self, episode: EpisodeId) -> Any:
        """The state of an attempt at its last boundary."""

    @abstractmethod
    def rebuild(self, episode: EpisodeId, state: Any) -> None:
        """Hold ``episode`` in this state."""

    @abstractmethod
    def discard(self, episode: EpisodeId) -> None:
        """Hold nothing of exactly this attempt; nothing happens where there is nothing."""

    def held(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.held`."""
        return (episode.capture_key for episode in itertools.islice(self.episodes(), 3))

    async def export(self, scope: Scope) -> Export:
        """As :meth:`ParticipantHooks.export`.

        Raises:
            ValueRefusedError: a state holds what ``ckptfmt`` cannot carry; it is named.
        """
        records = []
        for episode in [episode for episode in self.episodes() if episode in scope]:
            state = payload_of(self.snapshot(episode), episode.capture_key)
            records.append(Record(episode_id=episode, members={_STATE: state}))
            await asyncio.sleep(0)  # Other requests, status among them, are served meanwhile.
        return Export(records)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`: every state is decoded before one is rebuilt."""
        states = {record.episode_id.continuation: _state_of(record) for record in records}
        for episode in episodes:
            self._discard_up_to(episode)
        try:
            for episode, state in states.items():
                self.rebuild(episode, state)
        except BaseException:
            for episode in states:
                self.discard(episode)
            raise

    async def free(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.free`."""
        self._discard_up_to(episode)

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.release`."""
        for episode in episodes:
            self.discard(episode)

    def _discard_up_to(self, episode: EpisodeId) -> None:
        of_rollout = self.episodes_of(episode.rollout_id)
        for held in [held for held in of_rollout if episode.covers(held)]:
            self.discard(held)


def _state_of(record: Record) -> Any:
    payload = record.members.get(_STATE)
    if payload is None:
        raise InvalidCheckpointStateError(f"the record {record.key} has no member {_STATE}")
    return payload.value()


class StateTable(StatefulHooks):
    """A table of states that the server reads and writes: ``table[episode] = state``.

    Write at boundaries only, and a new value each time: what an export has taken must not
    change under it.
    """

    def __init__(self) -> None:
        self._states: dict[str, dict[EpisodeId, Any]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, episode: EpisodeId) -> bool:
        return episode in self._states.get(episode.rollout_id, ())

    def __getitem__(self, episode: EpisodeId) -> Any:
        return self._states[episode.rollout_id][episode]

    def __setitem__(self, episode: EpisodeId, state: Any) -> None:
        attempts = self._states.setdefault(episode.rollout_id, {})
        self._count += episode not in attempts
        attempts[episode] = state

    def get(self, episode: EpisodeId, default: Any = None) -> Any:
        """The state of an attempt, or ``default``."""
        return self.episodes_of(episode.rollout_id).get(episode, default)

    def episodes(self) -> Iterator[EpisodeId]:
        """As :meth:`StatefulHooks.episodes`."""
        return (episode for attempts in self._states.values() for episode in attempts)

    def episodes_of(self, rollout_id: str) -> Mapping[EpisodeId, Any]:
        """As :meth:`StatefulHooks.episodes_of`, each with its state."""
        return self._states.get(rollout_id, {})

    def snapshot(self, episode: EpisodeId) -> Any:
        """As :meth:`StatefulHooks.snapshot`."""
        return self[episode]

    def rebuild(self, episode: EpisodeId, state: Any) -> None:
        """As :meth:`StatefulHooks.rebuild`."""
        self[episode] = state

    def discard(self, episode: EpisodeId) -> None:
        """As :meth:`StatefulHooks.discard`."""
        attempts = self._states.get(episode.rollout_id)
        if attempts is not None and episode in attempts:
            del attempts[episode]
            self._count -= 1
            if not attempts:
                del self._states[episode.rollout_id]
