"""What a participant tells about itself, beside its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["NullTelemetry", "Telemetry"]


class Telemetry(Protocol):
    """Receives events; must not raise, and must not wait."""

    def count(self, name: str, attributes: Mapping[str, str]) -> None:
        """Something happened: ``refused``, ``lease_expired``, ``prepare_not_ready``."""


class NullTelemetry:
    """Receives everything and tells nobody."""

    def count(self, name: str, attributes: Mapping[str, str]) -> None:
        """As :meth:`Telemetry.count`."""
