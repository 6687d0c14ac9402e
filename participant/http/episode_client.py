"""The client for calls of episodes: every call says to which episode it belongs."""

from __future__ import annotations

from typing import Any, Final

import aiohttp

from ckptfmt.identity import EpisodeId
from participant.attribution import current_episode, prefixed

__all__ = ["CONNECT_TIMEOUT_S", "EpisodeClient"]

CONNECT_TIMEOUT_S: Final = 30.0


class EpisodeClient:
    """Calls model and resources servers for the episode being served.

    The call may wait at the other end as long as a checkpoint is open, so nothing but the
    making of a connection is timed.  No POST or PATCH is sent twice: whether a request whose
    reply was lost has been carried out only its sender's logic can tell.  The other methods
    HTTP declares safe to repeat, and aiohttp does so once.
    """

    def __init__(self, session: aiohttp.ClientSession, *, is_enabled: bool) -> None:
        self._session = session
        self._is_enabled = is_enabled

    def request(
        self, method: str, url: str, *, episode: EpisodeId | None = None, **options: Any
    ) -> aiohttp.client._RequestContextManager:
        """As :meth:`aiohttp.ClientSession.request`, under the prefix of the episode.

        ``episode`` is by default the one that the request being served belongs to.  Where
        checkpointing is off, and for calls of no episode, the URL stays as it is.
        """
        if self._is_enabled:
            url = prefixed(url, episode or current_episode.get())
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        return self._session.request(method, url, timeout=timeout, **options)
