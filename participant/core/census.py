"""What the machine asks about work that admission does not see: counts, never a wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from participant.core.gate import GateCounts

__all__ = ["Census", "CensusError"]


class CensusError(Exception):
    """The hooks could not count; raised by an implementation of :class:`Census`."""


class Census(Protocol):
    """The hooks as the machine sees them.  Every method may raise :class:`CensusError`."""

    def needs_scope(self) -> bool:
        """Whether a commit has to name its episodes."""

    def blocking(self) -> int:
        """How many things a checkpoint has to wait for, beside admitted calls.  Costs no scan."""

    def blockers(self) -> Iterable[str]:
        """Their capture keys, or labels where no episode can be named."""

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """The counts of the report."""

    def held(self) -> Iterable[str]:
        """A few names of what would keep a restore from finding the server fresh."""

    def status(self, pending: int) -> Mapping[str, Any]:
        """What the role adds to the status; ``pending`` restored episodes wait to be continued."""
