"""The hooks that ship keep the contract that every implementation can be tested by."""

from __future__ import annotations

from ckptfmt.identity import EpisodeId
from participant.roles.generic import StateTable
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
