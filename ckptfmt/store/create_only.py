"""Create-only on a local disk: a name gets its content whole, once, and durably.

The content is written to a temporary file in the same directory and synced; then
one call gives it its final name and fails if that exists:

1. ``link(2)``;
2. ``renameat2(2)`` with ``RENAME_NOREPLACE``, where hard links are not supported;
3. nothing: the store is refused.  Only if the caller allows it, ``O_EXCL`` at the
   final name, where a writer that dies leaves a part of the content behind.

Which of them works is tried with two temporary files, once for each file system,
before anything else is written there.

**Doubt.**  Over a network a call can report a failure and have worked.  So after any
error of the call the temporary name is removed *first*: without it a late request can
do nothing.  Then the final name is looked at.  Our file is still open, so its inode
cannot be given to another file: equal device and inode mean that the name is ours,
absence means that it never will be, and anything else that it is another's.  (That
the link count is 2 would say the same of ``link`` alone.)
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptfmt.errors import CapabilityError, CommitUnknownError, ExistsError, TransientError
from ckptfmt.store.base import BytesLike, Capabilities
from ckptfmt.store.names import PROBE_NAME, temp_name
from ckptfmt.store.os_calls import OsCalls, close_quietly, discard, sync, write_all
from ckptfmt.store.os_errors import spelled

__all__ = ["NEW_FILE", "NEW_FILE_MODE", "CreateOnly", "Method"]

# 0666 less the umask, as for any file: a checkpoint is not a secret of its writer.
NEW_FILE_MODE: Final = 0o666
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

# What file systems answer where they lack hard links (EMLINK: one link is the limit;
# EXDEV: some file systems of user space) or the flag of renameat2 (EINVAL).
_LACKING: Final = frozenset(
    {
        errno.EPERM,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EMLINK,
        errno.EXDEV,
        errno.EINVAL,
    }
)


# What a file system over a network reports when no answer came, so that one may still come.
_WITHOUT_REPLY: Final = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN})

_TAKEN: Final = "the name exists already; its content was not touched"


class Method(enum.Enum):
    """How a name is given to a file; the value says it to people."""

    LINK = "link(2)"
    RENAME = "renameat2(2) with RENAME_NOREPLACE"
    EXCLUSIVE = "O_EXCL at the final name"
    NONE = "neither hard links nor renameat2(RENAME_NOREPLACE)"


@dataclass(frozen=True, slots=True)
class _Found:
    """What a file system turned out to support."""

    method: Method
    durable: bool


class CreateOnly:
    """Creates files whose names are given once, on the file systems of one store.

    Directories are passed as descriptors that can be synced.  Errors are ``OSError``,
    after which nothing was created, or those of :meth:`ckptfmt.store.base.Store.create`.
    """

    def __init__(self, calls: OsCalls, label: str, *, allow_o_excl: bool) -> None:
        self._calls = calls
        self._label = label
        self._allow_o_excl = allow_o_excl
        self._found: dict[int, _Found] = {}

    def capabilities(self, dir_fd: int) -> Capabilities:
        """What the file system of the directory can do."""
        found = self._look(dir_fd)
        return Capabilities(
            create_if_absent=found.method is not Method.NONE,
            atomic_publish=found.method in (Method.LINK, Method.RENAME),
            durable=found.durable,
            how=found.method.value + ("" if found.durable else "; it cannot be synced"),
        )

    def require(self, dir_fd: int) -> Method:
        """How files get their names in the directory.

        Raises:
            CapabilityError: there is no way.
        """
        method = self._look(dir_fd).method
        if method is Method.NONE:
            raise CapabilityError(
                f"the file system of {self._label} has {method.value}: a manifest cannot be "
                "created whole and only once",
                advice="put checkpoints on a local disk (ext4, XFS, Btrfs), on NFS or in an "
                "object store; allow_o_excl=True uses this one all the same, and then a writer "
                "that dies can leave a torn manifest whose name is spent",
            )
        return method

    def create(self, dir_fd: int, name: str, data: BytesLike) -> None:
        """Give ``name`` the content ``data``; see :meth:`ckptfmt.store.base.Store.create`."""
        method = self.require(dir_fd)
        if method is Method.EXCLUSIVE:
            self._create_in_place(dir_fd, name, data)
            self._confirm(dir_fd)
            return
        temp = temp_name(name)
        try:
            with self._written(dir_fd, temp, data) as fd:
                self._publish(method, dir_fd, temp, name, fd)
            self._confirm(dir_fd)
        finally:
            discard(self._calls, temp, dir_fd)

    @contextlib.contextmanager
    def _written(self, dir_fd: int, name: str, data: BytesLike) -> Iterator[int]:
        """A new file with this content, synced, and open within the block."""
        fd = self._calls.open(name, NEW_FILE, NEW_FILE_MODE, dir_fd=dir_fd)
        try:
            self._fill(fd, data)
            yield fd
        finally:
            close_quietly(self._calls, fd)

    def _fill(self, fd: int, data: BytesLike) -> None:
        write_all(self._calls, fd, data)
        sync(self._calls, fd)

    def _publish(self, method: Method, dir_fd: int, temp: str, name: str, fd: int) -> None:
        try:
            self._move(method, dir_fd, temp, name)
        except OSError as error:
            self._settle(dir_fd, temp, name, fd, error)

    def _move(self, method: Method, dir_fd: int, source: str, target: str) -> None:
        move = self._calls.link if method is Method.LINK else self._calls.rename_noreplace
        move(source, target, dir_fd=dir_fd)

    def _settle(self, dir_fd: int, temp: str, name: str, fd: int, error: OSError) -> None:
        """Return if ``name`` is our file in spite of ``error``; otherwise raise what is so."""
        try:
            self._withdraw(temp, dir_fd, error)
            ours = self._calls.fstat(fd)
            there = self._calls.stat(name, dir_fd=dir_fd)
        except FileNotFoundError:
            if error.errno == errno.EEXIST:
                raise TransientError(
                    "the name was taken and became free again meanwhile", advice="repeat the call"
                ) from error
            raise error from None
        except OSError as second:
            raise _in_doubt("giving the object its name", error, second) from error
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            raise ExistsError(_TAKEN) from error

    def _withdraw(self, temp: str, dir_fd: int, error: OSError) -> None:
        """Remove the temporary name, so that a call which is still under way finds nothing."""
        try:
            self._calls.unlink(temp, dir_fd=dir_fd)
        except FileNotFoundError:
            pass
        except OSError:
            if error.errno in _WITHOUT_REPLY:
                raise

    def _create_in_place(self, dir_fd: int, name: str, data: BytesLike) -> None:
        try:
            fd = self._calls.open(name, NEW_FILE, NEW_FILE_MODE, dir_fd=dir_fd)
        except FileExistsError as error:
            raise ExistsError(_TAKEN) from error
        except OSError as error:
            self._expect_absent(dir_fd, name, error)
            raise
        try:
            self._fill(fd, data)
        except OSError as error:
            try:
                self._calls.unlink(name, dir_fd=dir_fd)
            except OSError as second:
                raise _in_doubt("writing the object", error, second) from error
            raise
        finally:
            close_quietly(self._calls, fd)

    def _expect_absent(self, dir_fd: int, name: str, error: OSError) -> None:
        try:
            self._calls.stat(name, dir_fd=dir_fd)
        except FileNotFoundError:
            return
        except OSError as second:
            raise _in_doubt("opening the object", error, second) from error
        raise CommitUnknownError(
            f"opening the object failed ({spelled(error)}), and there is one of this name, of "
            "this call or of another",
            advice="read it back before doing anything else",
        ) from error

    def _confirm(self, dir_fd: int) -> None:
        try:
            sync(self._calls, dir_fd)
        except OSError as error:
            raise CommitUnknownError(
                "the object is there, but its directory could not be synced, so that a loss of "
                f"power may undo it: {spelled(error)}",
                advice="read it back, and sync it before relying on it",
            ) from error

    def _look(self, dir_fd: int) -> _Found:
        device = self._calls.fstat(dir_fd).st_dev
        if device not in self._found:
            self._found[device] = self._try_out(dir_fd)
        return self._found[device]

    def _try_out(self, dir_fd: int) -> _Found:
        source, target = temp_name(PROBE_NAME), temp_name(PROBE_NAME)
        try:
            with self._written(dir_fd, source, b"") as fd:
                durable = sync(self._calls, fd) and sync(self._calls, dir_fd)
            for method in (Method.LINK, Method.RENAME):
                if self._supports(method, dir_fd, source, target):
                    return _Found(method, durable)
        finally:
            discard(self._calls, source, dir_fd)
            discard(self._calls, target, dir_fd)
        return _Found(Method.EXCLUSIVE if self._allow_o_excl else Method.NONE, durable)

    def _supports(self, method: Method, dir_fd: int, source: str, target: str) -> bool:
        try:
            self._move(method, dir_fd, source, target)
        except OSError as error:
            if error.errno not in _LACKING:
                raise
            return False
        return True


def _in_doubt(action: str, first: OSError, second: OSError) -> CommitUnknownError:
    return CommitUnknownError(
        f"{action} failed ({spelled(first)}), and so did looking what became of it: "
        f"{spelled(second)}",
        advice="read it back before doing anything else",
    )
