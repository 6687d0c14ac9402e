"""One control call: the seam that coordination stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

__all__ = [
    "CONTROL_PREFIX",
    "SENT_AT_HEADER",
    "ControlReply",
    "ControlTransport",
    "MalformedReplyError",
    "TransportError",
]

CONTROL_PREFIX: Final = "/ng-control/v1/checkpoint/"
SENT_AT_HEADER: Final = "x-ng-checkpoint-sent-at"
"""The sender's Unix time: the receiver then takes the deadline as a budget from there."""


class TransportError(Exception):
    """No reply came: refused, lost, timed out, or not JSON."""


class MalformedReplyError(TransportError):
    """A reply came, and it is no JSON object of a permitted size."""


@dataclass(frozen=True, slots=True)
class ControlReply:
    """The HTTP status and the members of a reply; of an error, ``{"error": {…}}``."""

    status: int
    members: Mapping[str, Any]


class ControlTransport(Protocol):
    """Sends control calls."""

    async def call(
        self, server: str, command: str, members: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlReply:
        """Send ``command`` (GET without ``members``, else POST) and await the reply.

        Raises:
            TransportError: there was none within ``timeout_s``.
        """
