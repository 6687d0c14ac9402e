"""Sessions in signed cookies: the id of a session travels with its client.

What a handler puts into ``request.session["session_id"]`` comes back with the client's next
call, also to another process that has the same secret.  Middleware of other makers that
fills ``scope["session"]`` in this way serves as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SESSION_ID", "SessionCookieMiddleware"]

SESSION_ID: Final = "session_id"
"""The member of ``scope["session"]`` that names the session."""

# The characters that a cookie's value may hold without quotes, but for the dot before the mark.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class SessionCookieMiddleware:
    """Reads and writes the cookie ``session``: ``<id>.<HMAC-SHA256 of the id, in hex>``.

    A cookie that is not ours counts as none.  The cookie is set once, in the reply to the
    call that changed the id, and taken back where a handler removed it.

    Raises:
        ValueError: the secret is empty, or a handler chose an id that no cookie carries.
    """

    def __init__(self, app: ASGIApp, secret: str, cookie: str = "session") -> None:
        if not secret:
            raise ValueError("session cookies need a secret")
        self._app = app
        self._secret = secret.encode()
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        sent = self._read(HTTPConnection(scope).cookies.get(self._cookie, ""))
        session = scope["session"] = {} if sent is None else {SESSION_ID: sent}

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start" and session.get(SESSION_ID) != sent:
                headers = MutableHeaders(scope=message)
                headers.append("set-cookie", self._written(session.get(SESSION_ID)))
            await send(message)

        await self._app(scope, receive, reply)

    def _read(self, value: str) -> str | None:
        session_id, _, mark = value.rpartition(".")
        is_ours = hmac.compare_digest(self._mark(session_id).encode(), mark.encode())
        return session_id if is_ours and _ID.fullmatch(session_id) else None

    def _written(self, session_id: str | None) -> str:
        if session_id is None:
            return f"{self._cookie}=; path=/; max-age=0; httponly; samesite=lax"
        if _ID.fullmatch(session_id) is None:
            raise ValueError("a session id is 1 to 128 letters, digits, '_' or '-'")
        value = f"{session_id}.{self._mark(session_id)}"
        return f"{self._cookie}={value}; path=/; httponly; samesite=lax"

    def _mark(self, session_id: str) -> str:
        return hmac.new(self._secret, session_id.encode(), hashlib.sha256).hexdigest()
