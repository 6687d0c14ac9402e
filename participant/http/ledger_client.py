"""The client of the ledger routes: how a training framework reads and removes ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from ckptfmt.identity import EpisodeId
from participant.core.errors import InvalidRequestError, RolloutRetiredError
from participant.http.ledger_wire import LEDGER_PREFIX, MAX_BATCH_KEYS, RemovalReply, RolloutBatch
from participant.transport import TransportError

__all__ = ["LedgerCallError", "LedgerClient"]

_RETIRED: Final = 410
_T = TypeVar("_T")


class LedgerCallError(Exception):
    """The server refused: ``status`` and body of its reply."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"the ledger route answered {status}: {body[:2000]}")
        self.status = status


class LedgerClient:
    """Calls the ledger routes of one server; ``base_url`` is the server's.

    Every call may be repeated after a failure.  Keys are checked before anything is sent,
    and raise ``ckptfmt.errors.NameRefusedError``: a path with dot segments would otherwise
    reach another rollout.
    """

    def __init__(
        self, session: aiohttp.ClientSession, base_url: str, *, token: str, timeout_s: float
    ) -> None:
        self._session = session
        self._url = base_url.rstrip("/") + LEDGER_PREFIX
        self._token = token
        self._timeout_s = timeout_s

    async def manifest(self, key: str) -> Mapping[str, Any]:
        """The rows of a rollout.

        Raises:
            RolloutRetiredError: it is retired.
            LedgerCallError: the server refused otherwise.
            TransportError: no reply came.
        """
        (key,) = _checked([key])
        reply = await self._call("GET", f"/{key}/manifest", None)
        return _decoded(reply, dict[str, Any])

    async def retire(self, keys: Sequence[str]) -> RemovalReply:
        """Remove ledgers and leave fences.

        Raises:
            InvalidRequestError: a bare string for the list.
            LedgerCallError: the server refused.
            TransportError: no reply came.
        """
        return await self._remove("/retire", keys)

    async def delete(self, keys: Sequence[str]) -> RemovalReply:
        """Remove ledgers and fences; otherwise as :meth:`retire`."""
        return await self._remove("/delete", keys)

    async def _remove(self, path: str, keys: Sequence[str]) -> RemovalReply:
        # All of them before the first batch: a bad key must not show after others are gone,
        # and one in two batches would be told both removed and absent.
        checked = _checked(keys)
        removed: list[str] = []
        absent: list[str] = []
        for start in range(0, len(checked), MAX_BATCH_KEYS):
            body = msgspec.json.encode(RolloutBatch(checked[start : start + MAX_BATCH_KEYS]))
            reply = _decoded(await self._call("POST", path, body), RemovalReply)
            removed += reply.removed
            absent += reply.absent
        return RemovalReply(removed, absent)

    async def _call(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        try:
            async with self._session.request(
                method, self._url + path, data=body, headers=headers, timeout=timeout,
                allow_redirects=False,
            ) as response:  # fmt: skip
                reply = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"{method} {path}: {type(error).__name__}: {error}"
            raise TransportError(text) from error
        if status == _RETIRED:
            raise RolloutRetiredError(reply.decode(errors="replace")[:2000])
        if status != 200:
            raise LedgerCallError(status, reply.decode(errors="replace"))
        return reply


def _checked(keys: Sequence[str]) -> list[str]:
    if isinstance(keys, str | bytes):
        raise InvalidRequestError("one capture key where a list of them is expected")
    found = (EpisodeId.from_capture_key(key).check_length().capture_key for key in keys)
    return list(dict.fromkeys(found))


def _decoded(reply: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(reply, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TransportError(f"the reply is not of the expected form: {error}") from error
