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
from collections.abc import Iterator
from typing import TypeAlias

from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.limits import LOCK_STRIPES
from ckptfmt.ledger.names import Kind, check_key, file_name, stripe_name, stripe_of

__all__ = ["Held", "Locks"]

Held: TypeAlias = tuple[threading.Lock, int, int | None]
"""One holding of a lock: the mutex, the stripe, and the descriptor of the rollout's own lock."""


class Locks:
    """The locks of a capture directory; a descriptor of each stripe used is held open."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._call = folder.calls.call
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._mutexes = [threading.Lock() for _ in range(LOCK_STRIPES)]
        self._stripes: dict[int, int] = {}

    @contextlib.contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Within the block nobody else writes to the rollout; errors are ``OSError``."""
        held = self.acquire(key)
        try:
            yield
        finally:
            self.release(held)

    def acquire(self, key: str) -> Held:
        """Wait for the rollout's lock: what :meth:`release` has to be given.

        Raises:
            NameRefusedError: the key is malformed.
        """
        # A child shares the parent's descriptors, and with them the parent's locks.
        if self._pid != os.getpid():
            self.close()
            self._start()
        stripe, own_name = _lock_names(key)
        mutex = self._mutexes[stripe]
        mutex.acquire()
        try:
            fd = self._stripes.get(stripe)
            if fd is None:
                fd = self._stripes[stripe] = self._folder.open_append(stripe_name(stripe))
            self._call("flock", fcntl.flock, fd, fcntl.LOCK_EX)
            try:
                own_fd = self._own_lock(own_name) if self._folder.exists(own_name) else None
            except BaseException:
                self._unlock(stripe)
                raise
        except BaseException:
            mutex.release()
            raise
        return mutex, stripe, own_fd

    def release(self, held: Held) -> None:
        """Undo :meth:`acquire`; never fails, for the work is done."""
        mutex, stripe, own_fd = held
        try:
            if own_fd is not None:
                # Closing the only descriptor of an open file releases its lock.
                self._close(own_fd)
            self._unlock(stripe)
        finally:
            mutex.release()

    def _unlock(self, stripe: int) -> None:
        try:
            self._call("flock", fcntl.flock, self._stripes[stripe], fcntl.LOCK_UN)
        except OSError:
            self._close(self._stripes.pop(stripe))

    def close(self) -> None:
        """Close the descriptors; the locks may be used again."""
        while self._stripes:
            self._close(self._stripes.popitem()[1])

    def _own_lock(self, name: str) -> int | None:
        while (fd := self._folder.open_existing(name, os.O_RDWR)) is not None:
            try:
                self._call("flock", fcntl.flock, fd, fcntl.LOCK_EX)
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

    def _close(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            self._folder.calls.close(fd)


@functools.lru_cache(maxsize=4096)
def _lock_names(key: str) -> tuple[int, str]:
    check_key(key)
    return stripe_of(key), file_name(key, Kind.LOCK)
