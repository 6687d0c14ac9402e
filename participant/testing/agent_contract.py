"""What the three session hooks of an agent server have to do, as tests to derive from.

::

    class TestMySessions(AgentSessionContract[MyAgent]):
        def make(self) -> MyAgent: ...
        async def fill(self, hooks: MyAgent, key: str, value: int) -> None: ...
        def look(self, hooks: MyAgent, key: str) -> object: ...
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ckptfmt.identity import EpisodeId
from participant.roles.agent import AgentHooks, RestoredSession
from participant.testing.one_server import OneServer
from participant.testing.storage import LineStorage

__all__ = ["AgentSessionContract"]

_Hooks = TypeVar("_Hooks", bound=AgentHooks)

_EPISODE = EpisodeId("r1")
_KEYS = ("a", "b")


class AgentSessionContract(ABC, Generic[_Hooks]):
    """Derive, name the class ``Test…``, and let pytest collect it."""

    damaged_state: object = "no state of this agent"
    """A value that the server cannot take for a state."""

    @abstractmethod
    def make(self) -> _Hooks:
        """An agent server that has just started."""

    @abstractmethod
    async def fill(self, hooks: _Hooks, key: str, value: int) -> None:
        """Build the session ``key`` as a seed does, in a state that depends on ``value``."""

    @abstractmethod
    def look(self, hooks: _Hooks, key: str) -> object:
        """What the server holds of the session, comparable; None for nothing."""

    def test_what_was_exported_is_what_is_restored(self) -> None:
        """Through the bytes that a checkpoint holds: what JSON loses is found here."""

        async def main() -> None:
            old = await self._filled()
            new = await self._restarted(old)
            for key in _KEYS:
                assert self.look(new, key) == self.look(old, key), f"session {key} differs"
                assert self.look(new, key) is not None

        asyncio.run(main())

    def test_exactly_the_sessions_that_were_asked_for_are_exported(self) -> None:
        """Of those that are held."""

        async def main() -> None:
            hooks = await self._filled()
            assert set(await hooks.export_agent_sessions(("a",))) == {"a"}
            assert set(await hooks.export_agent_sessions(())) == set()

        asyncio.run(main())

    def test_an_export_changes_nothing(self) -> None:
        """A checkpoint may be given up."""

        async def main() -> None:
            hooks, twin = await self._filled(), await self._filled()
            await hooks.export_agent_sessions(_KEYS)
            assert [self.look(hooks, key) for key in _KEYS] == [
                self.look(twin, key) for key in _KEYS
            ]

        asyncio.run(main())

    def test_a_restored_session_can_be_saved_again(self) -> None:
        """Before anything has happened to it."""

        async def main() -> None:
            old = await self._filled()
            second = await self._restarted(old)
            third = await self._restarted(second, _EPISODE.continuation)
            for key in _KEYS:
                assert self.look(third, key) == self.look(old, key)

        asyncio.run(main())

    def test_all_sessions_are_restored_or_none(self) -> None:
        """Whichever of them is damaged, and though the others are good."""

        async def main() -> None:
            states = await (await self._filled()).export_agent_sessions(_KEYS)
            for order in (("a", "b", "bad"), ("bad", "a", "b")):
                hooks = self.make()
                mixed = _sessions([(key, states.get(key, self.damaged_state)) for key in order])
                (error,) = await asyncio.gather(
                    hooks.restore_agent_sessions(mixed), return_exceptions=True
                )
                assert isinstance(error, Exception), "a damaged state was restored"
                assert [key for key in order if self.look(hooks, key) is not None] == []

        asyncio.run(main())

    def test_a_retired_session_is_gone_and_the_others_are_not(self) -> None:
        """Also when it is retired again, and where it never was."""

        async def main() -> None:
            hooks, twin = await self._filled(), await self._filled()
            for _ in range(2):
                await hooks.retire_agent_session("a")
                await hooks.retire_agent_session("never")
            assert self.look(hooks, "a") is None
            assert self.look(hooks, "b") == self.look(twin, "b")

        asyncio.run(main())

    async def _filled(self) -> _Hooks:
        hooks = self.make()
        for value, key in enumerate(_KEYS):
            await self.fill(hooks, key, value)
        return hooks

    async def _restarted(self, old: _Hooks, episode: EpisodeId = _EPISODE) -> _Hooks:
        """A fresh process that has restored what the old one held."""
        storage = LineStorage()
        server = OneServer("agent", old, storage)
        if not list(old.held()):
            for key in _KEYS:
                async with old.seed(episode, key):
                    pass
        await server.send("prepare")
        await server.send("commit", episodes=[episode])
        new = self.make()
        await OneServer("agent", new, storage).send("restore", "back", episodes=[episode])
        return new


def _sessions(states: Sequence[tuple[str, Any]]) -> list[RestoredSession]:
    return [RestoredSession(_EPISODE.continuation, key, state) for key, state in states]
