"""What every control route shares: the token, the bound on bodies, errors as replies."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from participant.core.errors import (
    InternalError,
    InvalidRequestError,
    ParticipantError,
    RequestTooLargeError,
    UnauthorizedError,
)
from participant.http.replies import error_response, json_response

__all__ = ["Handler", "authorized", "read_body"]

_logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Request], Awaitable[bytes]]
"""Answers a request with JSON."""


def authorized(token: str, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint that answers with what ``handle`` returns, to those who have the token.

    A ``ParticipantError`` becomes its reply; anything else is logged, and answered by an
    error that tells nothing.
    """

    async def endpoint(request: Request) -> Response:
        try:
            _authorize(request, token)
            return json_response(await handle(request))
        except ParticipantError as error:
            return error_response(error)
        except ClientDisconnect:
            return error_response(InvalidRequestError("the client left before its body was here"))
        except Exception:
            _logger.exception("the control route %s failed", request.url.path)
            return error_response(InternalError("the server failed; its log says more"))

    return endpoint


def _authorize(request: Request, token: str) -> None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    matches = hmac.compare_digest(given.encode("latin-1", "replace"), token.encode())
    # The name of a scheme is told in any case (RFC 9110, 11.1); the token is not.
    if not matches or scheme.lower() != "bearer":
        raise UnauthorizedError("the control bearer token is missing or wrong")


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The whole body.

    Raises:
        RequestTooLargeError: it has more than ``max_bytes``.
    """
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
