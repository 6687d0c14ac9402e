"""Calls an ASGI app in the process, as a server would; a client may go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

__all__ = ["App", "AsgiCall", "AsgiReply", "request"]

App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]


@dataclass(frozen=True, slots=True)
class AsgiReply:
    """A whole reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class AsgiCall:
    """One request under way: await :meth:`reply`, or let the client :meth:`disconnect`."""

    def __init__(
        self,
        app: App,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._body: list[bytes] | None = [body]
        self._gone = asyncio.Event()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        raw, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": raw,
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "server": ("testserver", 80),
            "client": ("testclient", 50000),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    @property
    def has_started(self) -> bool:
        """Whether the first byte of the reply has left."""
        return self._status != 0

    def disconnect(self) -> None:
        """The client goes away."""
        self._gone.set()

    async def reply(self) -> AsgiReply:
        """The whole reply."""
        await self.task
        return AsgiReply(self._status, self._headers, b"".join(self._chunks))

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self._chunks.append(message.get("body", b""))


async def request(
    app: App,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> AsgiReply:
    """Send a request and await its whole reply."""
    return await AsgiCall(app, method, path, body, headers).reply()
