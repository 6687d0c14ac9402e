"""The control routes, ``/ng-control/v1/checkpoint/…``."""

from __future__ import annotations

import math

from starlette.requests import Request
from starlette.routing import Route

from participant.core.errors import InvalidRequestError
from participant.core.messages import REQUESTS, decode_request, encode_reply
from participant.http.endpoint import Handler, authorized, read_body
from participant.runtime.shell import Participant
from participant.transport import CONTROL_PREFIX, SENT_AT_HEADER

__all__ = ["control_routes"]


def control_routes(participant: Participant) -> list[Route]:
    """The routes of a participant, for a Starlette router (and so for FastAPI's)."""

    async def status(request: Request) -> bytes:
        return encode_reply(participant.status())

    def command(name: str) -> Handler:
        async def handle(request: Request) -> bytes:
            body = await read_body(request, participant.settings.max_body_bytes)
            sent_at = _sent_at(request)
            return encode_reply(await participant.call(decode_request(name, body), sent_at))

        return handle

    token = participant.settings.control_auth_token or ""
    handlers = {name: command(name) for name in REQUESTS}
    posts = [
        Route(CONTROL_PREFIX + name, authorized(token, handle), methods=["POST"])
        for name, handle in handlers.items()
    ]
    return [Route(CONTROL_PREFIX + "status", authorized(token, status), methods=["GET"]), *posts]


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
