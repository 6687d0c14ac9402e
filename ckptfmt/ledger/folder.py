"""A capture directory as its writers see it: one descriptor, names relative to it.

The path that the caller gave may lead over symbolic links; below it none is followed,
and only regular files are opened.  All errors are ``OSError``; whoever calls turns
them into ours, once, by :meth:`Folder.mapped`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ckptfmt.errors import NameRefusedError, SizeError
from ckptfmt.ledger.names import new_temporary
from ckptfmt.store.base import BytesLike, Entry
from ckptfmt.store.directories import Directories
from ckptfmt.store.os_calls import OsCalls, discard, sync, write_all
from ckptfmt.store.os_errors import mapped

__all__ = ["Folder", "capture_directory", "open_regular", "read_range", "read_whole"]

# Without O_NONBLOCK the opening of a planted pipe would wait for its other end.
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_READ: Final = os.O_RDONLY | _SAFE
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFE
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
_MODE: Final = 0o666


def capture_directory(root: str | os.PathLike[str]) -> Path:
    """The absolute path of a capture directory.

    Raises:
        NameRefusedError: ``root`` is empty or holds a NUL.
    """
    text = os.fspath(root)
    if not text or "\0" in text:
        raise NameRefusedError(f"the capture directory {text!a} is empty or holds a NUL")
    return Path(text).absolute()


class Folder:
    """The directory ``root``, made if it is missing, durable itself, and held open."""

    def __init__(self, root: str | os.PathLike[str], calls: OsCalls) -> None:
        path = capture_directory(root)
        self.calls = calls
        self._label = str(path)
        with mapped("open", self._label, "."):
            self._fd = Directories(path, calls, lambda _: None).open_synced((), make=True)
        self._closing = weakref.finalize(self, _close_quietly, calls, self._fd)

    def close(self) -> None:
        """Close the directory; closing twice does nothing."""
        self._closing()

    def mapped(self, action: str, name: str) -> AbstractContextManager[None]:
        """Within the block every ``OSError`` becomes an error of ours that names the file."""
        return mapped(action, f"{self._label}/{name}", name)

    def exists(self, name: str) -> bool:
        """Whether there is a file, or anything else, of this name."""
        # Unlike stat, this raises no exception where there is none, which is the usual case.
        return self.calls.call(
            "access", os.access, name, os.F_OK, dir_fd=self._fd, follow_symlinks=False
        )

    def stat(self, name: str) -> os.stat_result | None:
        """The status of a file; None if there is none."""
        try:
            return self.calls.stat(name, dir_fd=self._fd)
        except FileNotFoundError:
            return None

    def open_append(self, name: str) -> int:
        """A descriptor to read a regular file by, and to append to it; made if missing."""
        return open_regular(self.calls, name, _APPEND, self._fd)

    def open_existing(self, name: str, flags: int = os.O_RDONLY) -> int | None:
        """A descriptor of a regular file that is there; None if there is none."""
        try:
            return open_regular(self.calls, name, flags | _SAFE, self._fd)
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: BytesLike) -> os.stat_result:
        """Put a file with this content, synced, in the place of whatever has the name.

        The name itself is durable after the next :meth:`sync`.
        """
        temporary, status = self.stage(data)
        self.publish(temporary, name)
        return status

    def stage(self, data: BytesLike) -> tuple[str, os.stat_result]:
        """Write a temporary file with this content, synced: its name and status."""
        temporary = new_temporary()
        fd = self.calls.open(temporary, _NEW, _MODE, dir_fd=self._fd)
        try:
            write_all(self.calls, fd, data)
            sync(self.calls, fd)
            status = self.calls.fstat(fd)
        except BaseException:
            discard(self.calls, temporary, self._fd)
            raise
        finally:
            _close_quietly(self.calls, fd)
        return temporary, status

    def publish(self, temporary: str, name: str) -> None:
        """Rename a temporary file over ``name``."""
        try:
            self.calls.call(
                "replace", os.replace, temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd
            )
        except BaseException:
            self.discard(temporary)
            raise

    def discard(self, temporary: str) -> None:
        """Remove a temporary file if it can be removed."""
        discard(self.calls, temporary, self._fd)

    def unlink(self, name: str) -> bool:
        """Remove a file; whether there was one."""
        try:
            self.calls.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        return True

    def truncate(self, fd: int, size_bytes: int) -> None:
        """``ftruncate(2)``."""
        self.calls.call("ftruncate", os.ftruncate, fd, size_bytes)

    def sync(self) -> None:
        """Make every name durable that was made, renamed or removed so far."""
        sync(self.calls, self._fd)

    def entries(self) -> list[Entry]:
        """What the directory holds, in no order."""
        # Through a descriptor of its own: a second listing must not move this one's position.
        fd = self.calls.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._fd)
        try:
            return self.calls.scandir(fd)
        finally:
            _close_quietly(self.calls, fd)


def open_regular(calls: OsCalls, name: str, flags: int, dir_fd: int) -> int:
    """Open a regular file, not following a link; anything else is ``ELOOP`` or ``EISDIR``."""
    fd = calls.open(name, flags, _MODE, dir_fd=dir_fd)
    try:
        if not stat.S_ISREG(calls.fstat(fd).st_mode):
            raise OSError(errno.EISDIR, "not a regular file")
    except BaseException:
        _close_quietly(calls, fd)
        raise
    return fd


def read_range(calls: OsCalls, fd: int, size: int, offset: int) -> bytes:
    """``size`` bytes from ``offset``; fewer only where the file ends."""
    data = calls.pread(fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    while data and (missing := size - sum(map(len, parts))):
        data = calls.pread(fd, missing, offset + size - missing)
        parts.append(data)
    return b"".join(parts)


def read_whole(folder: Folder, name: str, limit_bytes: int) -> bytes | None:
    """The content of a small file; None if there is none.

    Raises:
        SizeError: it is larger than ``limit_bytes``.
    """
    fd = folder.open_existing(name)
    if fd is None:
        return None
    try:
        size_bytes = folder.calls.fstat(fd).st_size
        if size_bytes > limit_bytes:
            raise SizeError(f"{size_bytes:,} bytes; at most {limit_bytes:,}").at(file=name)
        return read_range(folder.calls, fd, size_bytes, 0)
    finally:
        _close_quietly(folder.calls, fd)


def _close_quietly(calls: OsCalls, fd: int) -> None:
    with contextlib.suppress(OSError):
        calls.close(fd)
