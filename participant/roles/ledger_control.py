"""A model server's external-staging ledgers, as its ledger routes ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from ckptfmt.errors import NameRefusedError, RetiredError, SizeError
from ckptfmt.ledger.removal import Removal
from ckptfmt.ledger.staging_ledger import StagingLedger
from participant.core.errors import InvalidRequestError, InvalidRolloutIdError, RolloutRetiredError
from participant.roles.ledger_threads import in_thread

__all__ = ["LedgerControl"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class LedgerControl:
    """Carries the calls out in worker threads: files never hold up the event loop."""

    def __init__(self, ledger: StagingLedger) -> None:
        self._ledger = ledger

    async def manifest(self, key: str) -> dict[str, Any]:
        """The rows of a rollout.

        Raises:
            InvalidRolloutIdError: the key is malformed.
            RolloutRetiredError: the rollout is retired.
        """
        return await _translated(self._ledger.manifest, key)

    async def retire(self, keys: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Remove and fence: the keys that had records, and those that had none.

        Raises:
            InvalidRolloutIdError: a key is malformed.
        """
        return _parts(await _translated(self._ledger.retire, keys))

    async def delete(self, keys: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Remove, fences too; otherwise as :meth:`retire`."""
        return _parts(await _translated(self._ledger.delete, keys))


def _parts(removal: Removal) -> tuple[Sequence[str], Sequence[str]]:
    return removal.removed, removal.absent


async def _translated(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    try:
        return await in_thread(function, *args, **kwargs)
    except NameRefusedError as error:
        raise InvalidRolloutIdError(str(error)) from error
    except RetiredError as error:
        raise RolloutRetiredError(error.message) from error
    except SizeError as error:
        raise InvalidRequestError(error.message) from error
