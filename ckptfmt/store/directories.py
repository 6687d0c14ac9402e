"""Ways through the directories of a local store, one segment after the other.

The path that the caller gave may lead over symbolic links.  Below it every
segment is opened relative to its parent and never followed, so that nothing that
is planted there leads a read, a write or a removal elsewhere (``openat`` and
``O_NOFOLLOW``: there is no moment between a check and its use).

A directory is durable once its parent was synced.  Whoever made it may have died
before, so every store syncs each directory's parent once, not only for those that
it made itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ckptfmt.store.os_calls import OsCalls, close_quietly, sync

__all__ = ["Directories"]

_LISTABLE: Final = os.O_RDONLY | os.O_DIRECTORY
# Enough to go through a directory that may be searched, but not listed.
_PASSABLE: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY


class Directories:
    """Opens directories at and below ``root``; all errors are ``OSError``.

    ``before_making`` is called with the directory in which the first one is about to be
    made, so that a store that turns out to be unfit refuses with nothing written.
    """

    def __init__(self, root: Path, calls: OsCalls, before_making: Callable[[int], object]) -> None:
        self._root = root
        self._calls = calls
        self._before_making = before_making
        self._synced: set[tuple[str, ...]] = set()

    @contextlib.contextmanager
    def passing(self, segments: tuple[str, ...]) -> Iterator[int]:
        """A descriptor to open, stat or unlink through; for nothing else."""
        fd = self._calls.open(str(self._root), _PASSABLE)
        with contextlib.ExitStack() as stack:
            stack.callback(close_quietly, self._calls, fd)
            for segment in segments:
                fd = self._calls.open(segment, _PASSABLE | os.O_NOFOLLOW, dir_fd=fd)
                stack.callback(close_quietly, self._calls, fd)
            yield fd

    @contextlib.contextmanager
    def listing(self, segments: tuple[str, ...]) -> Iterator[int]:
        """A descriptor to list by."""
        with self.passing(segments) as passing:
            fd = self._calls.open(".", _LISTABLE, dir_fd=passing)
            try:
                yield fd
            finally:
                close_quietly(self._calls, fd)

    @contextlib.contextmanager
    def syncing(self, segments: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """As :meth:`open_synced`, closed at the end of the block."""
        fd = self.open_synced(segments, make=make)
        try:
            yield fd
        finally:
            close_quietly(self._calls, fd)

    def open_synced(self, segments: tuple[str, ...], *, make: bool = False) -> int:
        """A descriptor to sync by, of a directory that is durable itself.

        With ``make``, directories that are missing are made, the root and what leads
        there included.
        """
        fd = self._open_root(make)
        for depth in range(len(segments)):
            parent = fd
            try:
                fd = self._enter(parent, segments[: depth + 1], make)
            finally:
                close_quietly(self._calls, parent)
        return fd

    def _enter(self, parent: int, path: tuple[str, ...], make: bool) -> int:
        flags = _LISTABLE | os.O_NOFOLLOW
        try:
            fd = self._calls.open(path[-1], flags, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
            self._make(parent, path[-1])
            self._synced.discard(path)
            fd = self._calls.open(path[-1], flags, dir_fd=parent)
        return self._with_parent_synced(fd, parent, path)

    def _make(self, parent: int, name: str) -> bool:
        """Make a directory unless another process was first; whether it was us."""
        self._before_making(parent)
        try:
            self._calls.mkdir(name, dir_fd=parent)
        except FileExistsError:
            return False
        return True

    def _with_parent_synced(self, fd: int, parent: int, path: tuple[str, ...]) -> int:
        if path in self._synced:
            return fd
        try:
            sync(self._calls, parent)
        except BaseException:
            close_quietly(self._calls, fd)
            raise
        self._synced.add(path)
        return fd

    def _open_root(self, make: bool) -> int:
        try:
            fd = self._calls.open(str(self._root), _LISTABLE)
        except FileNotFoundError:
            if not make:
                raise
            self._make_above(self._root)
            fd = self._calls.open(str(self._root), _LISTABLE)
        if () in self._synced:
            return fd
        try:
            parent = self._calls.open(str(self._root.parent), _LISTABLE)
        except PermissionError:
            # Whoever may not list the parent did not make the root in it either.
            return fd
        except BaseException:
            close_quietly(self._calls, fd)
            raise
        try:
            return self._with_parent_synced(fd, parent, ())
        finally:
            close_quietly(self._calls, parent)

    def _make_above(self, path: Path) -> None:
        """Make a directory of the caller's own path, and those above it, each of them synced."""
        try:
            parent = self._calls.open(str(path.parent), _LISTABLE)
        except FileNotFoundError:
            self._make_above(path.parent)
            parent = self._calls.open(str(path.parent), _LISTABLE)
        try:
            made = self._make(parent, path.name)
            try:
                sync(self._calls, parent)
            except OSError:
                # Taken back, for a repeat would find it and take it for durable.
                if made:
                    with contextlib.suppress(OSError):
                        self._calls.rmdir(path.name, dir_fd=parent)
                raise
        finally:
            close_quietly(self._calls, parent)
