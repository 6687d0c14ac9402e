"""Calls from one server of the job to another, for the episode that they belong to."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from starlette.applications import Starlette

from ckptfmt.identity import EpisodeId
from examples.job.setup import Setup
from participant.http.episode_client import EpisodeClient

__all__ = ["PeerError", "Peers", "Reply"]


class PeerError(Exception):
    """A server refused or failed; an episode never takes that for an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The members of a good reply, its headers, and the cookie that it sets."""

    members: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def cookie(self) -> str:
        """As it is sent back; empty if there is none."""
        return self.headers.get("set-cookie", "").partition(";")[0]


class Peers:
    """The other servers; usable while the app of :meth:`lifespan` runs."""

    def __init__(self, setup: Setup) -> None:
        self._addresses = setup.addresses
        self._client: EpisodeClient

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Keep connections open while the server runs."""
        # A cookie is of one session; the sessions of other episodes are not to see it.
        jar = aiohttp.DummyCookieJar()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
            self._client = EpisodeClient(session, is_enabled=True)
            yield

    async def post(
        self, kind: str, path: str, body: Any, *, episode: EpisodeId | None = None, cookie: str = ""
    ) -> Reply:
        """Call a server and read its whole reply.

        Raises:
            PeerError: it refused or failed.
        """
        async with self._send(kind, path, body, episode, cookie) as response:
            await _check(response, kind, path)
            return Reply(await response.json(), response.headers)

    async def stream(self, kind: str, path: str, body: Any) -> AsyncIterator[Any]:
        """Call a server that streams: the JSON value of each event.

        Raises:
            PeerError: it refused or failed, or the stream ended too early.
        """
        async with self._send(kind, path, body) as response:
            await _check(response, kind, path)
            async for line in response.content:
                text = line.strip().removeprefix(b"data: ")
                if text == b"[DONE]":
                    return
                if text:
                    yield json.loads(text)
        raise PeerError(f"{path} of the {kind} server ended before its end")

    def _send(
        self, kind: str, path: str, body: Any, episode: EpisodeId | None = None, cookie: str = ""
    ) -> aiohttp.client._RequestContextManager:
        headers = {"cookie": cookie} if cookie else {}
        url = self._addresses[kind] + path
        return self._client.request("POST", url, episode=episode, json=body, headers=headers)


async def _check(response: aiohttp.ClientResponse, kind: str, path: str) -> None:
    if response.status != 200:
        text = await response.text()
        raise PeerError(f"{path} of the {kind} server answered {response.status}: {text[:500]}")
