"""The hooks as the machine asks them: whatever they raise is one error, and is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from participant.core.census import CensusError
from participant.core.gate import GateCounts
from participant.hooks import ParticipantHooks

__all__ = ["HooksCensus"]

_logger = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class HooksCensus:
    """A :class:`participant.core.census.Census` over hooks."""

    def __init__(self, hooks: ParticipantHooks) -> None:
        self._hooks = hooks

    def needs_scope(self) -> bool:
        """As :attr:`ParticipantHooks.needs_scope`."""
        return self._ask("needs_scope", lambda: self._hooks.needs_scope)

    def blocking(self) -> int:
        """As :meth:`ParticipantHooks.blocking`."""
        return self._ask("blocking", self._hooks.blocking)

    def blockers(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.blockers`."""
        return self._ask("blockers", lambda: tuple(self._hooks.blockers()))

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """As :meth:`ParticipantHooks.counts`."""
        return self._ask("counts", lambda: self._hooks.counts(gate))

    def held(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.held`."""
        return self._ask("held", lambda: tuple(self._hooks.held()))

    def status(self, pending: int) -> Mapping[str, Any]:
        """As :meth:`ParticipantHooks.status`."""
        return self._ask("status", lambda: self._hooks.status(pending))

    def _ask(self, name: str, question: Callable[[], _Answer]) -> _Answer:
        try:
            return question()
        except Exception as error:
            _logger.exception("the hook %s failed", name)
            raise CensusError(f"the hook {name} raised {type(error).__name__}") from error
