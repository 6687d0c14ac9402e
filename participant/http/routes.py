"""The control routes, ``/ng-control/v1/checkpoint/…``."""

from __future__ import annotations

import hmac
import logging
import math
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from participant.core.errors import (
    InternalError,
    InvalidRequestError,
    ParticipantError,
    RequestTooLargeError,
    UnauthorizedError,
)
from participant.core.messages import REQUESTS, decode_request, encode_reply
from participant.http.replies import error_response, json_response
from participant.runtime.shell import Participant
from participant.transport import CONTROL_PREFIX, SENT_AT_HEADER

__all__ = ["control_routes"]

_logger = logging.getLogger(__name__)
_Handler = Callable[[Request], Awaitable[bytes]]


def control_routes(participant: Participant) -> list[Route]:
    """The routes of a participant, for a Starlette router (and so for FastAPI's)."""

    async def status(request: Request) -> bytes:
        return encode_reply(participant.status())

    def command(name: str) -> _Handler:
        async def handle(request: Request) -> bytes:
            body = await _read(request, participant.settings.max_body_bytes)
            sent_at = _sent_at(request)
            return encode_reply(await participant.call(decode_request(name, body), sent_at))

        return handle

    token = participant.settings.control_auth_token or ""
    handlers = {name: command(name) for name in REQUESTS}
    posts = [
        Route(CONTROL_PREFIX + name, _endpoint(token, handle), methods=["POST"])
        for name, handle in handlers.items()
    ]
    return [Route(CONTROL_PREFIX + "status", _endpoint(token, status), methods=["GET"]), *posts]


def _endpoint(token: str, handle: _Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            _authorize(request, token)
            return json_response(await handle(request))
        except ParticipantError as error:
            return error_response(error)
        except Exception:
            _logger.exception("the control route %s failed", request.url.path)
            return error_response(InternalError("the server failed; its log says more"))

    return endpoint


def _authorize(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "").encode("latin-1", "replace")
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise UnauthorizedError("the control bearer token is missing or wrong")


async def _read(request: Request, max_bytes: int) -> bytes:
    too_large = RequestTooLargeError(f"a control request has at most {max_bytes:,} bytes")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > max_bytes:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def _sent_at(request: Request) -> float | None:
    text = request.headers.get(SENT_AT_HEADER)
    if text is None:
        return None
    try:
        sent_at = float(text)
    except ValueError:
        sent_at = math.nan
    if not math.isfinite(sent_at):
        raise InvalidRequestError(f"{SENT_AT_HEADER} is no finite number")
    return sent_at
