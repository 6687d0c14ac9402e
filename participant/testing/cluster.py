"""Several servers in one process, and a control transport between them that can fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from participant.clock import Clock
from participant.testing.asgi import App, request
from participant.transport import CONTROL_PREFIX, SENT_AT_HEADER, ControlReply, TransportError

__all__ = ["Delivery", "MemoryCluster"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What becomes of one control call.

    It arrives after ``delay_s``, as often as ``copies`` says (0: it is lost), and its reply
    is lost where ``loses_reply``.
    """

    delay_s: float = 0.0
    copies: int = 1
    loses_reply: bool = False


class MemoryCluster:
    """A :class:`participant.transport.ControlTransport` to ASGI apps by name.

    ``deliver`` decides about each call; by default all arrive once, at once.
    """

    def __init__(self, clock: Clock, token: str) -> None:
        self._clock = clock
        self._token = token
        self._servers: dict[str, App] = {}
        self.deliver: Callable[[str, str], Delivery] = lambda server, command: Delivery()

    def add(self, server: str, app: App) -> None:
        """Make ``app`` reachable; one of the same name is replaced, as by a restart."""
        self._servers[server] = app

    def remove(self, server: str) -> None:
        """Make a server unreachable."""
        del self._servers[server]

    async def call(
        self, server: str, command: str, members: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlReply:
        """As :meth:`ControlTransport.call`."""
        work = asyncio.ensure_future(self._deliver(server, command, members))
        work.add_done_callback(_take_note)
        limit = asyncio.ensure_future(self._clock.sleep_until(self._clock.monotonic() + timeout_s))
        try:
            await asyncio.wait({work, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise TransportError(f"{command} of {server}: no reply within {timeout_s} s")
            return work.result()
        finally:
            limit.cancel()

    async def _deliver(
        self, server: str, command: str, members: Mapping[str, Any] | None
    ) -> ControlReply:
        delivery = self.deliver(server, command)
        headers = {
            "authorization": f"Bearer {self._token}",
            SENT_AT_HEADER: str(self._clock.wall()),
        }
        if delivery.delay_s:
            await self._clock.sleep_until(self._clock.monotonic() + delivery.delay_s)
        app = self._servers.get(server)
        if app is None:
            raise TransportError(f"{command} of {server}: nobody listens")
        method, body = ("GET", b"") if members is None else ("POST", json.dumps(members).encode())
        copies = [
            request(app, method, CONTROL_PREFIX + command, body, headers)
            for _ in range(delivery.copies)
        ]
        replies = await asyncio.gather(*copies)
        if not replies or delivery.loses_reply:
            raise TransportError(f"{command} of {server}: the connection was lost")
        return ControlReply(replies[0].status, replies[0].json)


def _take_note(work: asyncio.Future[ControlReply]) -> None:
    # A delivery goes on when its caller no longer waits; how it ends is nobody's news then.
    if not work.cancelled():
        work.exception()
