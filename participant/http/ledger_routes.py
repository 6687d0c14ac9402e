"""The ledger routes, ``/training-token-capture/control/rollouts/…``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from participant.core.errors import CheckpointConflictError, InvalidRequestError
from participant.http.endpoint import authorized, read_body
from participant.http.ledger_wire import LEDGER_PREFIX, MAX_BODY_BYTES, RemovalReply, RolloutBatch

__all__ = ["RolloutLedgers", "ledger_routes"]

_Removal: TypeAlias = tuple[Sequence[str], Sequence[str]]


class RolloutLedgers(Protocol):
    """What the routes ask of a server's capture ledgers.

    All raise ``InvalidRolloutIdError`` for a malformed key.
    """

    async def manifest(self, key: str) -> Mapping[str, Any]:
        """The rows of a rollout; ``RolloutRetiredError`` if it is retired."""

    async def retire(self, keys: Sequence[str]) -> _Removal:
        """Remove and fence: the keys that had records, and those that had none."""

    async def delete(self, keys: Sequence[str]) -> _Removal:
        """Remove, fences too: the keys that had records, and those that had none."""


def ledger_routes(
    ledgers: RolloutLedgers, *, token: str, removal_blocked: Callable[[], str | None]
) -> list[Route]:
    """The routes, for a Starlette router (and so for FastAPI's).

    ``removal_blocked`` says why nothing may be removed now, as while a checkpoint is open;
    None where it may.

    Raises:
        ValueError: ``token`` is empty.
    """
    if not token:
        raise ValueError("the ledger routes need a bearer token")

    async def manifest(request: Request) -> bytes:
        return msgspec.json.encode(await ledgers.manifest(request.path_params["key"]))

    def removal(remove: Callable[[Sequence[str]], Awaitable[_Removal]]) -> Route:
        async def handle(request: Request) -> bytes:
            keys = _keys(await read_body(request, MAX_BODY_BYTES))
            if (reason := removal_blocked()) is not None:
                raise CheckpointConflictError(reason)
            removed, absent = await remove(keys)
            return msgspec.json.encode(RemovalReply(list(removed), list(absent)))

        path = f"{LEDGER_PREFIX}/{remove.__name__}"
        return Route(path, authorized(token, handle), methods=["POST"])

    # A path with slashes or dot segments has to be answered as a malformed key, not as no route.
    reading = Route(f"{LEDGER_PREFIX}/{{key:path}}/manifest", authorized(token, manifest))
    return [removal(ledgers.retire), removal(ledgers.delete), reading]


def _keys(body: bytes) -> list[str]:
    try:
        return msgspec.json.decode(body, type=RolloutBatch).rollout_ids
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"not a batch of rollout ids: {error}") from error
