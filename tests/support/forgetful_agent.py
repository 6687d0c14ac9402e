"""An agent that begins every loop from its input, restored or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from examples.job import agent
from examples.job.setup import Setup, serve
from participant.roles.simple_agent import SimpleAgent

__all__ = ["ForgetfulAgent"]


class ForgetfulAgent(SimpleAgent):
    """Its sessions are there, their boundaries are not."""

    async def restore_agent_sessions(self, sessions: Sequence[Any]) -> None:
        """As the Simple Agent; the boundaries go in :meth:`install`."""

    async def install(self, records: Sequence[Any], episodes: frozenset[Any]) -> None:
        """As the Simple Agent, and then every boundary is forgotten."""
        await super().install(records, episodes)
        for session in self._sessions.values():
            session.boundary = None


if __name__ == "__main__":
    agent.SimpleAgent = ForgetfulAgent  # type: ignore[misc]
    serve(agent.make_app(Setup.read()), Setup.read())
