"""Threads beside a caller: how many, and what neither they nor a child of fork may go on with."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, ParamSpec, TypeVar

from ckptfmt.errors import StateError, TransientError

__all__ = ["HomeProcess", "submit", "worker_count"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MAX_WORKERS: Final = 2


def worker_count() -> int:
    """How many threads may work beside a busy caller: it has a processor to itself, if any."""
    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(max(processors - 1, 1), _MAX_WORKERS)


class HomeProcess:
    """The process in which a writer was begun.

    A child of fork has copies of its parent's writers, without their threads: it can neither
    go on with them, nor may it clean up what its parent is still writing.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process, and not a child of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """To be called before anything waits for a thread.

        Raises:
            StateError: this is a child of that process.
        """
        if not self.is_here:
            raise StateError(
                "this was begun before the process forked, and is its parent's to finish",
                advice="begin a new one in this process",
            )


def submit(
    executor: Executor, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
) -> Future[_R]:
    """Let a thread of the executor make the call.

    Raises:
        TransientError: no thread can be started.
    """
    try:
        return executor.submit(call, *args, **kwargs)
    except RuntimeError as error:
        raise TransientError(
            f"no thread can be started: {error}",
            advice="repeat when the process has fewer; where the program is ending, do this before",
        ) from error
