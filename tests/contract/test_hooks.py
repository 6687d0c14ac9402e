"""The hooks that ship keep the contract that every implementation can be tested by."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ckptfmt.identity import EpisodeId
from participant.hooks import GatedRoute, Scope, ServedCall
from participant.roles.generic import StateTable
from participant.roles.resources import SEED, ResourcesHooks
from participant.testing.hook_contract import HookContract


class TestStateTable(HookContract[StateTable]):
    """A table of states."""

    def make(self) -> StateTable:
        """Hooks of a process that has just started."""
        return StateTable()

    def put(self, hooks: StateTable, episode: EpisodeId, value: int) -> None:
        """A state that JSON alone could not carry."""
        hooks[episode] = {"value": value, "pair": (value, float("inf")), 1: "int key"}

    def look(self, hooks: StateTable, episode: EpisodeId) -> object:
        """The state."""
        return hooks.get(episode)


class Sessions(ResourcesHooks):
    """A value a session."""

    checkpoint_mode = "exported"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """The values."""
        return {s: self.values[s] for s in session_ids}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """All of them."""
        self.values.update(states)

    async def retire_session_state(self, session_id: str) -> None:
        """Forgotten."""
        self.values.pop(session_id, None)


class TestResourcesHooks(HookContract[Sessions]):
    """Sessions that are seeded through the hooks of a call."""

    def make(self) -> Sessions:
        """Hooks of a process that has just started."""
        return Sessions()

    def put(self, hooks: Sessions, episode: EpisodeId, value: int) -> None:
        """A session of the episode's own."""
        session_id = f"session of {episode.rollout_id} since {value}"
        hooks.values[session_id] = {"value": value, "pair": (value, float("inf"))}
        scope = {"session": {"session_id": session_id}}
        call: Any = ServedCall(GatedRoute(SEED), episode, None, scope)  # type: ignore[arg-type]
        asyncio.run(self._seed(hooks, call))

    async def _seed(self, hooks: Sessions, call: ServedCall) -> None:
        await hooks.call_begins(call)
        await hooks.call_replies(call, 200)
        await hooks.call_ends(call)

    def look(self, hooks: Sessions, episode: EpisodeId) -> object:
        """The states of its sessions."""
        scope = Scope.of([episode])
        records = asyncio.run(hooks.export(scope)).records
        states = sorted((record.key, record.state.value()) for record in records)
        return [(key.partition("/")[2], state) for key, state in states] or None
