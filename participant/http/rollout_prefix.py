"""ASGI middleware that takes the rollout prefix off a path and remembers the episode.

The prefix stands behind the path that the app is mounted at, if it is mounted: that is
the scope's ``root_path``, and ``path`` begins with it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ckptfmt.identity import EpisodeId
from participant.attribution import current_episode, prefixed, split_prefix
from participant.core.errors import InvalidRolloutIdError
from participant.http.replies import error_response

__all__ = ["RolloutPrefixMiddleware", "route_path"]

_REDIRECTS: Final = range(300, 400)


class RolloutPrefixMiddleware:
    """``/ng-rollout/<key>/x`` is served as ``/x``, with ``current_episode`` set meanwhile.

    A malformed key is answered with 400 ``invalid_rollout_id``.  A redirect to a path of
    the same server stays under the prefix, or the call would lose its episode on the way.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            split = split_prefix(route_path(scope))
            served = scope if split is None else _without_prefix(scope, split[1])
        except InvalidRolloutIdError as error:
            await error_response(error)(scope, receive, send)
            return
        episode = None if split is None else split[0]

        async def reply(message: Message) -> None:
            if episode is not None and message["type"] == "http.response.start":
                _keep_prefix(message, scope, episode)
            await send(message)

        token = current_episode.set(episode)
        try:
            await self._app(served, receive, reply)
        finally:
            current_episode.reset(token)


def route_path(scope: Scope) -> str:
    """The path of a request below the place that the app is mounted at."""
    root = _root(scope)
    path: str = scope["path"]
    return path.removeprefix(root) if path.startswith(root + "/") else path


def _root(scope: Scope) -> str:
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def _without_prefix(scope: Scope, rest: str) -> Scope:
    """The scope of the call without its prefix; the raw path has to mean the same."""
    root = scope["path"].removesuffix(route_path(scope))
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    # The segments of the root, then two of the prefix, then the rest.
    segments = raw.split(b"/", root.count("/") + 3)
    raw_root = b"/".join(segments[: root.count("/") + 1])
    raw_rest = b"/" + b"".join(segments[root.count("/") + 3 :])
    meant = (root + rest).encode("utf-8", "surrogateescape")
    if unquote_to_bytes(raw_root + raw_rest) != meant:
        raise InvalidRolloutIdError("the rollout prefix of the path is encoded ambiguously")
    return dict(scope, path=root + rest, raw_path=raw_root + raw_rest)


def _keep_prefix(message: Message, scope: Scope, episode: EpisodeId) -> None:
    if message["status"] not in _REDIRECTS:
        return
    message.setdefault("headers", [])
    headers = MutableHeaders(scope=message)
    target = urlsplit(headers.get("location", ""))
    is_ours = target.netloc in ("", Headers(scope=scope).get("host"))
    root = _root(scope)
    if is_ours and target.path.startswith(root + "/"):
        path = root + prefixed(target.path.removeprefix(root), episode)
        headers["location"] = urlunsplit(target._replace(path=path))
