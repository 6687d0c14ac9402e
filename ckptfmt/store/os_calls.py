"""Every call to the operating system that the local store makes, in one object.

Tests hand the store a subclass whose :meth:`OsCalls.call` raises, dies, records
or models; the store itself never imports ``os`` functions that touch a disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Callable
from typing import Final, Literal, ParamSpec, TypeVar

from ckptfmt.store.base import BytesLike, Entry

__all__ = ["OsCalls", "close_quietly", "discard", "sync", "write_all"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_RENAME_NOREPLACE: Final = 1
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class OsCalls:
    """The calls, each by the name and with the errors (``OSError``) of its system call.

    Names are single segments relative to ``dir_fd``, and never followed where they
    are symbolic links; only :meth:`open` can be told to follow.
    """

    def call(
        self, name: str, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Carry one call out.  ``name`` is the method's; tests override this."""
        return function(*args, **kwargs)

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """``openat(2)``; the mode is subject to the umask."""
        return self.call("open", os.open, path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        """``close(2)``; the descriptor is gone even where this raises."""
        self.call("close", os.close, fd)

    def write(self, fd: int, data: BytesLike) -> int:
        """``write(2)``: how many bytes were taken, which may be fewer than given."""
        return self.call("write", os.write, fd, data)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """``pread(2)``: fewer bytes at the end of the file, and perhaps elsewhere."""
        return self.call("pread", os.pread, fd, size, offset)

    def fsync(self, fd: int) -> None:
        """``fsync(2)`` of a file or a directory."""
        self.call("fsync", os.fsync, fd)

    def fstat(self, fd: int) -> os.stat_result:
        """``fstat(2)``."""
        return self.call("fstat", os.fstat, fd)

    def stat(self, name: str, *, dir_fd: int) -> os.stat_result:
        """``fstatat(2)`` of the name itself, link or not."""
        return self.call("stat", os.stat, name, dir_fd=dir_fd, follow_symlinks=False)

    def mkdir(self, name: str, *, dir_fd: int) -> None:
        """``mkdirat(2)``; the mode follows umask and the parent's setgid bit."""
        self.call("mkdir", os.mkdir, name, 0o777, dir_fd=dir_fd)

    def rmdir(self, name: str, *, dir_fd: int) -> None:
        """``unlinkat(2)`` of an empty directory."""
        self.call("rmdir", os.rmdir, name, dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """``unlinkat(2)``."""
        self.call("unlink", os.unlink, name, dir_fd=dir_fd)

    def link(self, source: str, target: str, *, dir_fd: int) -> None:
        """``linkat(2)`` within one directory: fails if ``target`` exists."""
        self.call(
            "link",
            os.link,
            source,
            target,
            src_dir_fd=dir_fd,
            dst_dir_fd=dir_fd,
            follow_symlinks=False,
        )

    def rename_noreplace(self, source: str, target: str, *, dir_fd: int) -> None:
        """``renameat2(2)`` with ``RENAME_NOREPLACE``; ``ENOSYS`` where the C library has none."""
        self.call("rename_noreplace", _renameat2, source, target, dir_fd)

    def scandir(self, dir_fd: int) -> list[Entry]:
        """The entries of a directory, in no order."""
        return self.call("scandir", _scandir, dir_fd)


def _scandir(dir_fd: int) -> list[Entry]:
    with os.scandir(dir_fd) as found:
        return [Entry(entry.name, _kind(entry)) for entry in found]


def _kind(entry: os.DirEntry[str]) -> Literal["file", "dir", "other"]:
    if entry.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@functools.cache
def _libc_renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    )
    function.restype = ctypes.c_int
    return function


def _renameat2(source: str, target: str, dir_fd: int) -> None:
    function = _libc_renameat2()
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = os.fsencode(source), os.fsencode(target)
    if function(dir_fd, names[0], dir_fd, names[1], _RENAME_NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source, None, target)


def write_all(calls: OsCalls, fd: int, data: BytesLike) -> None:
    """Write every byte, however short the single writes are."""
    rest = memoryview(data).cast("B")
    while rest:
        taken = calls.write(fd, rest)
        if not taken:
            # Only a broken file system takes nothing without an error; never spin on it.
            raise OSError(errno.EIO, "the file system took none of the bytes")
        rest = rest[taken:]


def sync(calls: OsCalls, fd: int) -> bool:
    """Sync a file or directory; whether its file system knows how.

    Some file systems of user space refuse to sync (directories above all): that is no
    failure to write, and is reported as a store that is not durable.
    """
    try:
        calls.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
        return False
    return True


def discard(calls: OsCalls, name: str, dir_fd: int) -> None:
    """Remove a file of our own if it can be removed; otherwise it stays as a leftover."""
    with contextlib.suppress(OSError):
        calls.unlink(name, dir_fd=dir_fd)


def close_quietly(calls: OsCalls, fd: int) -> None:
    """Close what nothing depends on any more: it was only read, or it is synced or given up."""
    with contextlib.suppress(OSError):
        calls.close(fd)
