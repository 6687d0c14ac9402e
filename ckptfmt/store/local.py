"""The store in a local directory (POSIX).

* Data objects are written under their own names, which carry a token: nothing
  refers to them before they are finished, and what a killed writer left of one can be
  salvaged under the name it was to have.
* Small objects are created by :mod:`ckptfmt.store.create_only`.
* Directories are made, synced and walked by :mod:`ckptfmt.store.directories`.

What is acknowledged is synced: the file, its directory, and every directory above it
up to the root.  A failed sync is never repeated on the same file, since the kernel may
have dropped what it could not write: the object is removed and written anew.
"""

from __future__ import annotations

import contextlib
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ckptfmt.errors import CorruptError, NameRefusedError, StateError, StorageFailedError
from ckptfmt.store.base import BytesLike, Capabilities, Entry, SourceReads, check_range
from ckptfmt.store.create_only import NEW_FILE, NEW_FILE_MODE, CreateOnly
from ckptfmt.store.directories import Directories
from ckptfmt.store.names import split_name, split_prefix, temp_name
from ckptfmt.store.os_calls import OsCalls, close_quietly, discard, sync, write_all
from ckptfmt.store.os_errors import mapped
from ckptfmt.threads import HomeProcess

__all__ = ["SYNC_BYTES", "LocalDataWriter", "LocalSource", "LocalStore"]

# Without O_NONBLOCK the opening of a planted pipe would wait for its writer.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KINDS: Final = {
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


class LocalStore(SourceReads):
    """A :class:`~ckptfmt.store.base.Store` in the directory ``root``.

    The directory need not exist before the first write.  The store holds no open files
    between calls, so it may be used after a fork and after the directory was replaced.

    ``allow_o_excl`` permits file systems without hard links and without
    ``renameat2(RENAME_NOREPLACE)``, see :mod:`ckptfmt.store.create_only`.  ``calls``
    is for tests.

    Raises:
        NameRefusedError: ``root`` is empty or holds a NUL.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        allow_o_excl: bool = False,
        calls: OsCalls | None = None,
    ) -> None:
        text = os.fspath(root)
        if not text or "\0" in text:
            raise NameRefusedError(f"the store's directory {text!a} is empty or holds a NUL")
        self._root = Path(text).absolute()
        self._allow_o_excl = allow_o_excl
        self._calls = calls or OsCalls()
        self._create_only = CreateOnly(self._calls, self.label, allow_o_excl=allow_o_excl)
        self._directories = Directories(self._root, self._calls, self._create_only.require)

    @property
    def root(self) -> Path:
        """The directory, as an absolute path."""
        return self._root

    @property
    def label(self) -> str:
        """The directory's path, in ASCII."""
        return ascii(str(self._root))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label})"

    def __reduce__(self) -> tuple[Callable[..., LocalStore], tuple[Path]]:
        # What was found out of file systems here need not be so where it is unpickled.
        made = partial(type(self), allow_o_excl=self._allow_o_excl, calls=self._calls)
        return made, (self._root,)

    def capabilities(self) -> Capabilities:
        """What the file system of the root can do, tried with two temporary files in it."""
        with self._mapped("try out", ""), self._directories.syncing((), make=True) as dir_fd:
            return self._create_only.capabilities(dir_fd)

    def open_source(self, name: str) -> LocalSource:
        """As :meth:`ckptfmt.store.base.Store.open_source`."""
        segments = split_name(name)
        with self._mapped("read", name, reading=True), self._parent(segments) as dir_fd:
            fd = self._calls.open(segments[-1], _READ, dir_fd=dir_fd)
            try:
                size_bytes = _size_of_file(self._calls.fstat(fd))
            except BaseException:
                close_quietly(self._calls, fd)
                raise
        return LocalSource(self._calls, fd, name, self._path(name), size_bytes)

    def size(self, name: str) -> int:
        """As :meth:`ckptfmt.store.base.Store.size`."""
        segments = split_name(name)
        with self._mapped("look at", name, reading=True), self._parent(segments) as dir_fd:
            return _size_of_file(self._calls.stat(segments[-1], dir_fd=dir_fd))

    def entries(self, prefix: str = "") -> list[Entry]:
        """As :meth:`ckptfmt.store.base.Store.entries`."""
        segments = split_prefix(prefix)
        with self._mapped("list", prefix, reading=True):
            try:
                with self._directories.listing(segments) as dir_fd:
                    return sorted(self._calls.scandir(dir_fd))
            except FileNotFoundError:
                if segments:
                    with self._directories.passing(()):
                        return []
                raise

    def open_data(self, name: str) -> LocalDataWriter:
        """As :meth:`ckptfmt.store.base.Store.open_data`."""
        segments = split_name(name)
        with self._mapped("create", name):
            dir_fd = self._directories.open_synced(segments[:-1], make=True)
            try:
                self._create_only.require(dir_fd)
                fd = self._calls.open(segments[-1], NEW_FILE, NEW_FILE_MODE, dir_fd=dir_fd)
            except BaseException:
                close_quietly(self._calls, dir_fd)
                raise
        return LocalDataWriter(self._calls, dir_fd, fd, name, self._path(name))

    def create(self, name: str, data: BytesLike) -> None:
        """As :meth:`ckptfmt.store.base.Store.create`."""
        *parents, last = split_name(name)
        # Refuses, before any I/O, a name that leaves no room for a temporary one.
        temp_name(last)
        size_bytes = memoryview(data).nbytes
        with (
            self._mapped("create", name, needed_bytes=size_bytes),
            self._directories.syncing(tuple(parents), make=True) as dir_fd,
        ):
            self._create_only.create(dir_fd, last, data)

    def sync(self, name: str) -> None:
        """As :meth:`ckptfmt.store.base.Store.sync`."""
        segments = split_name(name)
        with (
            self._mapped("sync", name, reading=True),
            self._directories.syncing(segments[:-1]) as dir_fd,
        ):
            fd = self._calls.open(segments[-1], _READ, dir_fd=dir_fd)
            try:
                _size_of_file(self._calls.fstat(fd))
                sync(self._calls, fd)
            finally:
                close_quietly(self._calls, fd)
            sync(self._calls, dir_fd)

    def delete(self, name: str) -> None:
        """As :meth:`ckptfmt.store.base.Store.delete`."""
        segments = split_name(name)
        with (
            self._mapped("delete", name, reading=True),
            self._directories.syncing(segments[:-1]) as dir_fd,
        ):
            try:
                # What is no file of ours stays, even though unlink would not follow it.
                _size_of_file(self._calls.stat(segments[-1], dir_fd=dir_fd))
                self._calls.unlink(segments[-1], dir_fd=dir_fd)
            finally:
                # Also where it was not there: the call that removed it may have died since.
                sync(self._calls, dir_fd)

    def _path(self, name: str) -> str:
        return str(self._root / name)

    def _mapped(
        self,
        action: str,
        name: str,
        *,
        reading: bool = False,
        needed_bytes: int | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        return mapped(action, self._path(name), name, reading=reading, needed_bytes=needed_bytes)

    def _parent(self, segments: tuple[str, ...]) -> contextlib.AbstractContextManager[int]:
        return self._directories.passing(segments[:-1])


def _size_of_file(found: os.stat_result) -> int:
    if not stat.S_ISREG(found.st_mode):
        raise CorruptError(
            f"a {_KINDS.get(stat.S_IFMT(found.st_mode), 'special file')} stands where a file "
            "belongs; it is neither followed nor touched"
        )
    return found.st_size


class LocalSource:
    """One file, open for reads of ranges; safe to use from several threads.

    It keeps reading the file that it opened, even if that is deleted and another one
    takes its name.  A source that is dropped without :meth:`close` is closed quietly.
    """

    def __init__(self, calls: OsCalls, fd: int, name: str, path: str, size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._calls = calls
        self._fd = fd
        self._path = path
        self._closing = weakref.finalize(self, close_quietly, calls, fd)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """As :meth:`ckptfmt.store.base.Source.read_at`."""
        check_range(self.name, self.size_bytes, offset, size_bytes)
        if not self._closing.alive:
            raise StateError("a read after close").at(file=self.name)
        with mapped("read", self._path, self.name, reading=True):
            pieces = list(self._pieces(offset, size_bytes))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pieces(self, offset: int, size_bytes: int) -> Iterator[bytes]:
        at, end = offset, offset + size_bytes
        while at < end:
            piece = self._calls.pread(self._fd, end - at, at)
            if not piece:
                # It was cut since it was opened.
                check_range(self.name, at, offset, size_bytes)
            yield piece
            at += len(piece)

    def close(self) -> None:
        """Close the file; may be repeated."""
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


SYNC_BYTES: Final = 8 << 20
"""So much goes to the disk while more is being made; else :meth:`finish` waits for it all."""


class LocalDataWriter:
    """A :class:`~ckptfmt.store.base.DataWriter` onto a file.  Not for several threads at once."""

    def __init__(self, calls: OsCalls, dir_fd: int, fd: int, name: str, path: str) -> None:
        self._calls = calls
        self._dir_fd = dir_fd
        self._fd = fd
        self._name = name
        self._last = name.rpartition("/")[2]
        self._path = path
        self._size_bytes = 0
        self._unsynced_bytes = 0
        self._open = True
        self._home = HomeProcess()

    @property
    def size_bytes(self) -> int:
        """How much was written so far."""
        return self._size_bytes

    def write(self, data: BytesLike) -> None:
        """As :meth:`ckptfmt.store.base.DataWriter.write`."""
        needed_bytes = memoryview(data).nbytes
        with self._step(f"write at byte {self._size_bytes:,} of", needed_bytes):
            write_all(self._calls, self._fd, data)
            self._size_bytes += needed_bytes
            self._unsynced_bytes += needed_bytes
            if self._unsynced_bytes >= SYNC_BYTES:
                sync(self._calls, self._fd)
                self._unsynced_bytes = 0

    def flush(self) -> None:
        """Nothing more: what was written is in the file, and another process can read it."""
        with self._step("flush"):
            pass

    def finish(self) -> None:
        """As :meth:`ckptfmt.store.base.DataWriter.finish`."""
        with self._step("finish"):
            sync(self._calls, self._fd)
            # By its name: somebody may have removed it.
            stored_bytes = self._calls.stat(self._last, dir_fd=self._dir_fd).st_size
            if stored_bytes != self._size_bytes:
                raise StorageFailedError(
                    f"{self._size_bytes:,} bytes were written, and the file has {stored_bytes:,}",
                    advice="look who else writes there, then repeat under a new name",
                )
            sync(self._calls, self._dir_fd)
        self._close()

    def abort(self) -> None:
        """As :meth:`ckptfmt.store.base.DataWriter.abort`."""
        if self._open:
            if self._home.is_here:
                discard(self._calls, self._last, self._dir_fd)
            self._close()

    @contextlib.contextmanager
    def _step(self, action: str, needed_bytes: int | None = None) -> Iterator[None]:
        """One step of writing, after whose failure the object is gone."""
        if not self._open:
            raise StateError("the object was finished or aborted before").at(file=self._name)
        self._home.check()
        try:
            with mapped(action, self._path, self._name, needed_bytes=needed_bytes):
                yield
        except BaseException:
            self.abort()
            raise

    def _close(self) -> None:
        self._open = False
        for fd in (self._fd, self._dir_fd):
            close_quietly(self._calls, fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()
