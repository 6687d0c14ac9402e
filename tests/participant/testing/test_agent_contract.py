"""The contract of agent sessions passes a good server, and finds each bad one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from participant.roles.agent import AgentHooks, LoopOnlyHooks, RestoredSession
from participant.testing.agent_contract import AgentSessionContract


class Diary(AgentHooks):
    """Sessions of pairs, which JSON alone would not bring back."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, list[tuple[int, float]]] = {}

    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The pages."""
        return {key: {"pages": list(self.pages[key])} for key in keys}

    async def restore_agent_sessions(self, sessions: Sequence[RestoredSession]) -> None:
        """All of them are looked at before one is kept."""
        self.pages.update({session.key: session.state["pages"] for session in sessions})

    async def retire_agent_session(self, key: str) -> None:
        """Nothing is left."""
        self.pages.pop(key, None)


class DiaryContract(AgentSessionContract[Any]):
    """How the contract drives diaries."""

    hooks: type[Diary] = Diary

    def make(self) -> Diary:
        """A diary."""
        return self.hooks()

    async def fill(self, hooks: Diary, key: str, value: int) -> None:
        """A page."""
        hooks.pages[key] = [(value, float("inf"))]

    def look(self, hooks: Diary, key: str) -> object:
        """The pages."""
        return hooks.pages.get(key)


class TestDiary(DiaryContract):
    """The good one."""


class Greedy(Diary):
    """Exports everything."""

    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Whatever was asked for."""
        return {key: {"pages": pages} for key, pages in self.pages.items()}


class Draining(Diary):
    """Exports by giving away."""

    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """The pages are gone afterwards."""
        return {key: {"pages": self.pages.pop(key)} for key in keys}


class Flattened(Diary):
    """Loses the type of its pages."""

    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Lists instead of pairs."""
        return {key: {"pages": [list(page) for page in self.pages[key]]} for key in keys}


class Halfway(Diary):
    """Keeps what it restored before it met a damaged one."""

    async def restore_agent_sessions(self, sessions: Sequence[RestoredSession]) -> None:
        """One by one."""
        for session in sessions:
            self.pages[session.key] = session.state["pages"]


class Credulous(Diary):
    """Restores anything."""

    async def restore_agent_sessions(self, sessions: Sequence[RestoredSession]) -> None:
        """Whatever it is."""
        good = [session for session in sessions if isinstance(session.state, dict)]
        await super().restore_agent_sessions(good)


class Touchy(Diary):
    """Cannot retire twice."""

    async def retire_agent_session(self, key: str) -> None:
        """Fails where there is nothing."""
        del self.pages[key]


class Sweeping(Diary):
    """Retires everything."""

    async def retire_agent_session(self, key: str) -> None:
        """Whatever was named."""
        self.pages.clear()


class Undeclared(LoopOnlyHooks, Diary):
    """Keeps pages, and says that it keeps nothing."""


RESTORED = "test_what_was_exported_is_what_is_restored"
RETIRED = "test_a_retired_session_is_gone_and_the_others_are_not"
WHOLE = "test_all_sessions_are_restored_or_none"
CASES: Sequence[tuple[type[Diary], str]] = [
    (Greedy, "test_exactly_the_sessions_that_were_asked_for_are_exported"),
    (Draining, "test_an_export_changes_nothing"),
    (Flattened, RESTORED),
    (Flattened, "test_a_restored_session_can_be_saved_again"),
    (Halfway, WHOLE),
    (Credulous, WHOLE),
    (Touchy, RETIRED),
    (Sweeping, RETIRED),
    (Undeclared, RESTORED),
]


@pytest.mark.parametrize(("server", "test"), CASES)
def test_the_contract_finds(server: type[Diary], test: str) -> None:
    contract = DiaryContract()
    contract.hooks = server
    with pytest.raises(Exception):  # noqa: B017, PT011 - of whatever kind, it has to be seen
        getattr(contract, test)()
