"""Tells when the client of a request has gone away."""

from __future__ import annotations

from starlette.types import Receive

from participant.runtime.admission import Gone

__all__ = ["until_gone"]


def until_gone(receive: Receive) -> Gone:
    """For a request whose body has been read in full: ``until_gone(request.receive)``."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return gone
