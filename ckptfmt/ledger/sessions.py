"""A rollout under its lock, as it is kept in memory between calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from ckptfmt.errors import CkptError, NameRefusedError, RefusedError
from ckptfmt.ledger.cache import BoundedCache
from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.locks import Locks
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.store.os_calls import OsCalls

__all__ = ["Session", "Sessions"]

# Each holds up to three descriptors.
_MAX_OPEN: Final = 64
_TRANSLATED: Final = (OSError, CkptError)


class _Kept(Protocol):
    """What is kept of a rollout."""

    @property
    def weight(self) -> int:
        """How much memory it takes, in a unit of its own."""

    def refresh(self) -> None:
        """Look what other processes did."""

    def close(self) -> None:
        """Close its files."""


_K = TypeVar("_K", bound=_Kept)


class Sessions(Generic[_K]):
    """Opens rollouts of the directory ``root``, one user each at a time.

    ``make`` gives what is kept of a rollout that was not seen yet; ``main`` is the kind
    of file that errors name where no other is known.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        calls: OsCalls,
        make: Callable[[Folder, str], _K],
        main: Kind,
        max_weight: int,
    ) -> None:
        self.folder = Folder(root, calls)
        self.locks = Locks(self.folder)
        self.kept: BoundedCache[_K] = BoundedCache(_MAX_OPEN, max_weight, _close)
        self.make = make
        self._main = main

    def open(self, key: str, action: str) -> Session[_K]:
        """Within a ``with`` block: what is kept of the rollout, brought up to date, locked.

        ``OSError`` becomes an error of ours that says what could not be done ("freeze").
        A malformed key raises ``NameRefusedError``.
        """
        return Session(self, key, action)

    def forget(self, keys: Sequence[str]) -> None:
        """Close what is kept of rollouts that are about to go."""
        for key in keys:
            if (kept := self.kept.take(key)) is not None:
                kept.close()

    def close(self) -> None:
        """Close everything; no session is open, and none is opened afterwards."""
        self.kept.clear()
        self.locks.close()
        self.folder.close()

    def raise_mapped(self, error: OSError | CkptError, key: str, action: str) -> None:
        """Raise an error of ours for this one, with the file named."""
        with self.folder.mapped(action, file_name(key, self._main)):
            raise error


def _close(kept: _Kept) -> None:
    kept.close()


class Session(Generic[_K]):
    """One use of a rollout.  A class, for a generator costs a put several microseconds."""

    __slots__ = ("_action", "_held", "_kept", "_key", "_sessions")

    def __init__(self, sessions: Sessions[_K], key: str, action: str) -> None:
        self._sessions = sessions
        self._key = key
        self._action = action

    def __enter__(self) -> _K:
        sessions, key = self._sessions, self._key
        try:
            held = sessions.locks.acquire(key)
            try:
                kept = sessions.kept.take(key) or sessions.make(sessions.folder, key)
                kept.refresh()
            except BaseException:
                sessions.locks.release(held)
                raise
        except NameRefusedError:
            raise
        except _TRANSLATED as error:
            sessions.raise_mapped(error, key, self._action)
        self._held = held
        self._kept = kept
        return kept

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After any other error memory may have gone ahead of the disk, or fallen behind.
        if error is None or isinstance(error, RefusedError):
            self._sessions.kept.put(self._key, self._kept, self._kept.weight)
        else:
            self._kept.close()
        self._sessions.locks.release(self._held)
        if isinstance(error, _TRANSLATED):
            self._sessions.raise_mapped(error, self._key, self._action)
