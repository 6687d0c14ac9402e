"""A desk that forgets the last step of each session when it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from examples.job import resources
from examples.job.setup import Setup, serve

__all__ = ["ForgetfulDesk"]


class ForgetfulDesk(resources.Desk):
    """Its sessions run their last step again."""

    checkpoint_mode = "exported"

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """As the desk, one step back."""
        await super().restore_session_states(
            {key: {**state, "steps": state["steps"] - 1} for key, state in states.items()}
        )


if __name__ == "__main__":
    resources.Desk = ForgetfulDesk  # type: ignore[misc]
    serve(resources.make_app(Setup.read()), Setup.read())
