"""Faults in the calls that the local store makes to the operating system.

Each is an :class:`~ckptfmt.store.os_calls.OsCalls` to be handed to a
:class:`~ckptfmt.store.local.LocalStore`.  A sweep over ``nth`` from 1 until
:attr:`FaultyOs.struck` stays false meets every call that an operation makes::

    for nth in itertools.count(1):
        calls = FaultyOs(nth, failing(errno.ENOSPC))
        ...
        if not calls.struck:
            break
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Collection
from typing import Final, NoReturn, ParamSpec, TypeVar

from ckptfmt.store.os_calls import OsCalls

__all__ = ["DEATH", "FaultyOs", "RecordingOs", "die", "failing", "forked", "lacking"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The exit status of a process that died on purpose, unlike any that Python uses.
DEATH: Final = 77


def failing(number: int) -> Callable[[], NoReturn]:
    """A strike that raises ``OSError`` with this errno."""

    def strike() -> NoReturn:
        raise OSError(number, os.strerror(number))

    return strike


def die() -> NoReturn:
    """A strike that ends the process at once, as SIGKILL does: nothing is cleaned up."""
    os._exit(DEATH)


def forked(act: Callable[[], object]) -> int:
    """Run ``act`` in a forked process, wait for it, and return its exit status.

    0 if ``act`` returned, :data:`DEATH` if it died by :func:`die`, 1 if it raised (the
    traceback is on stderr).
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class FaultyOs(OsCalls):
    """Strikes at the ``nth`` call, counted from 1 among those named in ``only`` (or all).

    ``after``: the call is carried out first, so that its reply is lost.  ``lasting``:
    every later call is struck as well.  What is carried out goes to ``under``, which may
    have faults of its own.
    """

    def __init__(
        self,
        nth: int,
        strike: Callable[[], NoReturn],
        *,
        after: bool = False,
        lasting: bool = False,
        only: Collection[str] | None = None,
        under: OsCalls | None = None,
    ) -> None:
        self._nth = nth
        self._strike = strike
        self._after = after
        self._lasting = lasting
        self._only = only
        self._under = under or OsCalls()
        self._count = 0
        self.struck: str | None = None

    def call(
        self, name: str, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Carry the call out, or strike."""
        if self._is_due(name):
            self.struck = self.struck or name
            # A descriptor is gone even where close(2) fails.
            if self._after or name == "close":
                self._under.call(name, function, *args, **kwargs)
            self._strike()
        return self._under.call(name, function, *args, **kwargs)

    def _is_due(self, name: str) -> bool:
        if self._only is not None and name not in self._only:
            return False
        self._count += 1
        return self._count == self._nth or (self._lasting and self._count > self._nth)


def lacking(number: int, *names: str, under: OsCalls | None = None) -> FaultyOs:
    """A system that answers all calls of these names with this errno."""
    return FaultyOs(1, failing(number), lasting=True, only=names, under=under)


class RecordingOs(OsCalls):
    """Keeps the names of the calls, in order, in :attr:`names`."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def call(
        self, name: str, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Carry the call out and keep its name."""
        self.names.append(name)
        return function(*args, **kwargs)
