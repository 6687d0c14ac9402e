"""The reserved pool of control connections.

Calls of episodes may be parked on every connection of the data pool.  If control calls
shared it, the resume that frees them could not get through.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from participant.settings import PoolSettings
from participant.transport import (
    CONTROL_PREFIX,
    SENT_AT_HEADER,
    ControlReply,
    MalformedReplyError,
    TransportError,
)

__all__ = ["MAX_REPLY_BYTES", "ControlPool"]

MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
"""A control reply is small; the manifest in a commit's reply is the largest of its parts."""


class ControlPool:
    """A :class:`participant.transport.ControlTransport` over aiohttp; one event loop's own.

    ``server`` of a call is the server's base URL.  Use it as a context manager, or call
    :meth:`close`.
    """

    def __init__(self, token: str, settings: PoolSettings | None = None) -> None:
        self._token = token
        self._settings = settings or PoolSettings()
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"ControlPool({self._settings!r})"

    async def call(
        self, server: str, command: str, members: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlReply:
        """As :meth:`ControlTransport.call`."""
        url = server.rstrip("/") + CONTROL_PREFIX + command
        body = None if members is None else msgspec.json.encode(members)
        try:
            async with self._open().request(
                "GET" if body is None else "POST",
                url,
                data=body,
                headers=self._headers(),
                timeout=aiohttp.ClientTimeout(total=max(timeout_s, 0.001)),
                allow_redirects=False,
            ) as response:
                return ControlReply(response.status, await _members(response))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportError(
                f"{command} of {server}: {type(error).__name__}: {error}"
            ) from error

    def _headers(self) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self._token}",
            "content-type": "application/json",
            SENT_AT_HEADER: f"{time.time():.6f}",
        }

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._settings.global_aiohttp_control_connector_limit,
                limit_per_host=self._settings.global_aiohttp_control_connector_limit_per_host,
            )
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    async def close(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def _members(response: aiohttp.ClientResponse) -> Mapping[str, Any]:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise MalformedReplyError(f"the reply has more than {MAX_REPLY_BYTES:,} bytes")
    try:
        return msgspec.json.decode(bytes(body), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        if response.status == 404:
            return {}  # No such route, so no participant; the body is whatever the server says.
        # Of a proxy, say, whose server is just starting.
        kind = TransportError if response.status >= 500 else MalformedReplyError
        raise kind(f"the reply of status {response.status} is no JSON object") from error
