"""Hooks over a table of states; what all hooks must do stands in the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ckptfmt.errors import ValueRefusedError
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record
from participant.core.errors import InvalidCheckpointStateError
from participant.hooks import Scope
from participant.roles.generic import StatefulHooks, StateTable

R1, R2 = EpisodeId("r1"), EpisodeId("r2")


def record(episode: EpisodeId, **members: Any) -> Record:
    """A plain record."""
    payloads = {name: JsonPayload.from_value(value) for name, value in members.items()}
    return Record(episode_id=episode, members=payloads)


def test_a_state_that_cannot_be_carried_exactly_is_refused() -> None:
    table = StateTable()
    table[R1] = {1, 2}
    with pytest.raises(ValueRefusedError):
        asyncio.run(table.export(Scope.of(None)))


def test_a_record_without_a_state_installs_nothing() -> None:
    table = StateTable()
    records = [record(R1, state=1), record(R2, other=1)]
    attempts = frozenset({R1.continuation, R2.continuation})
    with pytest.raises(InvalidCheckpointStateError, match="r2 has no member state"):
        asyncio.run(table.install(records, attempts))
    assert len(table) == 0


class Fragile(StatefulHooks):
    """Hooks whose second rebuild fails."""

    def __init__(self) -> None:
        self.states: dict[EpisodeId, Any] = {}

    def episodes(self) -> Iterable[EpisodeId]:
        """What is held."""
        return tuple(self.states)

    def snapshot(self, episode: EpisodeId) -> Any:
        """The state."""
        return self.states[episode]

    def rebuild(self, episode: EpisodeId, state: Any) -> None:
        """Hold it, once."""
        if self.states:
            raise RuntimeError("no room")
        self.states[episode] = state

    def discard(self, episode: EpisodeId) -> None:
        """Hold it no more."""
        self.states.pop(episode, None)


def test_all_or_nothing_is_rebuilt() -> None:
    """P60."""
    hooks = Fragile()
    attempts = frozenset({R1.continuation, R2.continuation})
    with pytest.raises(RuntimeError):
        asyncio.run(hooks.install([record(R1, state=1), record(R2, state=2)], attempts))
    assert hooks.states == {}


class Unscanned(StateTable):
    """A table that may be looked up, and not gone through."""

    def episodes(self) -> Iterator[EpisodeId]:
        """Never asked for."""
        raise AssertionError("a retire scans everything that is held")


def test_a_retire_looks_at_one_rollout_only() -> None:
    """And so does the install of its next attempt."""
    table = Unscanned()
    for attempt in range(3):
        table[EpisodeId("r1", attempt)] = attempt
    table[R2] = 0
    asyncio.run(table.free(EpisodeId("r1", 1)))
    assert table.episodes_of("r1") == {EpisodeId("r1", 2): 2}
    asyncio.run(table.install([], frozenset({EpisodeId("r1", 2)})))
    assert (len(table), R2 in table) == (1, True)


def test_a_table_is_read_and_written_like_a_dictionary() -> None:
    table = StateTable()
    table[R1] = 1
    table[R1] = 2
    table[R1.continuation] = 3
    assert (len(table), table[R1], table.get(R2, "none")) == (2, 2, "none")
    assert R1 in table
    assert R2 not in table
    table.discard(R2)
    table.discard(R1)
    assert list(table.episodes()) == [R1.continuation]
    with pytest.raises(KeyError):
        table[R1]
