"""ASGI middleware that takes the rollout prefix off a path and remembers the episode."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from participant.attribution import current_episode, split_prefix
from participant.core.errors import InvalidRolloutIdError
from participant.http.replies import error_response

__all__ = ["RolloutPrefixMiddleware"]


class RolloutPrefixMiddleware:
    """``/ng-rollout/<key>/x`` is served as ``/x``, with ``current_episode`` set meanwhile.

    A malformed key is answered with 400 ``invalid_rollout_id``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            split = split_prefix(scope["path"])
            if split is not None:
                scope = dict(scope, path=split[1], raw_path=_raw_rest(scope, split[1]))
        except InvalidRolloutIdError as error:
            await error_response(error)(scope, receive, send)
            return
        token = current_episode.set(None if split is None else split[0])
        try:
            await self._app(scope, receive, send)
        finally:
            current_episode.reset(token)


def _raw_rest(scope: Scope, rest: str) -> bytes:
    """What stands behind the key in the raw path; it must be the same as in the decoded one."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    _, _, behind = raw.removeprefix(b"/").partition(b"/")
    _, slash, raw_rest = behind.partition(b"/")
    raw_rest = slash + raw_rest or b"/"
    if unquote_to_bytes(raw_rest) != rest.encode("utf-8", "surrogateescape"):
        raise InvalidRolloutIdError("the rollout prefix of the path is encoded ambiguously")
    return raw_rest
