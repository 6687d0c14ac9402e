"""Who may write to a rollout: striped locks, and the rollout's own lock where it exists.

A key belongs to one of a fixed number of lock files, so that these do not grow with
the job and are never removed: nobody can be left waiting for a file that is gone.
``flock(2)`` holds between processes, a mutex between the threads of one.  A process
never holds two stripes, so there is no order to observe.

``<key>.tokens.lock`` is what other writers of such directories lock.  It is taken
after the stripe, hence only one process of ours waits for it, and never made here.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import threading

from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.limits import LOCK_STRIPES
from ckptfmt.ledger.names import Kind, file_name, stripe_name, stripe_of

__all__ = ["Held", "Locks"]


class Locks:
    """The locks of a capture directory; a descriptor of each stripe used is held open."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._mutexes = [threading.Lock() for _ in range(LOCK_STRIPES)]
        self._stripes: dict[int, int] = {}

    def holding(self, key: str) -> Held:
        """Within a ``with`` block nobody else writes to the rollout; errors are ``OSError``."""
        # A child shares the parent's descriptors, and with them the parent's locks.
        if self._pid != os.getpid():
            self.close()
            self._start()
        stripe, own_name = _lock_names(key)
        return Held(self, stripe, self._mutexes[stripe], own_name)

    def close(self) -> None:
        """Close the descriptors; the locks may be used again."""
        while self._stripes:
            self._close(self._stripes.popitem()[1])

    def acquire(self, stripe: int, own_name: str) -> int | None:
        """Lock a stripe, and then the rollout's own lock: its descriptor, if there is one."""
        fd = self._stripes.get(stripe)
        if fd is None:
            fd = self._stripes[stripe] = self._folder.open_append(stripe_name(stripe))
        self._flock(fd, fcntl.LOCK_EX)
        try:
            return self._own_lock(own_name) if self._folder.exists(own_name) else None
        except BaseException:
            self.release(stripe, None)
            raise

    def release(self, stripe: int, own_fd: int | None) -> None:
        """Undo :meth:`acquire`; never fails, for the work is done."""
        if own_fd is not None:
            # Closing the only descriptor of an open file releases its lock.
            self._close(own_fd)
        try:
            self._flock(self._stripes[stripe], fcntl.LOCK_UN)
        except OSError:
            self._close(self._stripes.pop(stripe))

    def _own_lock(self, name: str) -> int | None:
        while (fd := self._folder.open_existing(name, os.O_RDWR)) is not None:
            try:
                self._flock(fd, fcntl.LOCK_EX)
                named = self._folder.stat(name)
                # Whoever held it may have removed it; the lock of a file that is gone excludes
                # nobody.
                if named is not None and named.st_ino == self._folder.calls.fstat(fd).st_ino:
                    return fd
            except BaseException:
                self._close(fd)
                raise
            self._close(fd)
        return None

    def _flock(self, fd: int, operation: int) -> None:
        self._folder.calls.call("flock", fcntl.flock, fd, operation)

    def _close(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            self._folder.calls.close(fd)


@functools.lru_cache(maxsize=4096)
def _lock_names(key: str) -> tuple[int, str]:
    return stripe_of(key), file_name(key, Kind.LOCK)


class Held:
    """One holding of a lock; also a ``with`` block."""

    __slots__ = ("_locks", "_mutex", "_own_fd", "_own_name", "_stripe")

    def __init__(self, locks: Locks, stripe: int, mutex: threading.Lock, own_name: str) -> None:
        self._locks = locks
        self._stripe = stripe
        self._mutex = mutex
        self._own_name = own_name
        self._own_fd: int | None = None

    def acquire(self) -> None:
        """Wait for the lock and take it."""
        self._mutex.acquire()
        try:
            self._own_fd = self._locks.acquire(self._stripe, self._own_name)
        except BaseException:
            self._mutex.release()
            raise

    def release(self) -> None:
        """Give the lock back."""
        try:
            self._locks.release(self._stripe, self._own_fd)
        finally:
            self._mutex.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
