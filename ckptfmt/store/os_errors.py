"""Errors of the operating system become ours, once, where they enter."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Final

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    ExistsError,
    MissingError,
    StorageFailedError,
    TransientError,
)

__all__ = ["mapped", "spelled"]

# What may pass without anybody mending something.
_PASSING: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
_IN_THE_WAY: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR})

_ADVICE: Final = {
    errno.EACCES: "give this process access to it, then repeat the call",
    errno.EPERM: "give this process access to it, then repeat the call",
    errno.EROFS: "mount the file system writable, then repeat the call",
    errno.ENOSPC: "free space, then repeat the call",
    errno.EDQUOT: "free space within the quota, then repeat the call",
    errno.EFBIG: "raise the file size limit (ulimit -f), then repeat the call",
    errno.EIO: "look into the system log for a failing disk before repeating the call",
}


@contextlib.contextmanager
def mapped(
    action: str, path: str, name: str, *, reading: bool = False, needed_bytes: int | None = None
) -> Iterator[None]:
    """Within the block, turn every ``OSError`` into an error of ours that names ``path``.

    ``action`` is a verb ("create"); ``name`` is the object's name in its store, and is
    added to errors that are ours already.  What is absent is missing to a reader; to a
    writer its absence is a failure.  ``needed_bytes`` is what a write still had to store.
    """
    try:
        yield
    except CkptError as error:
        error.at(file=name)
        raise
    except OSError as error:
        raise _ours(error, action, path, reading, needed_bytes).at(file=name) from error


def spelled(error: OSError) -> str:
    """The error's text and symbol: ``No space left on device (ENOSPC)``."""
    symbol = errno.errorcode.get(error.errno or 0, "no errno")
    return f"{error.strerror or error} ({symbol})"


def _ours(
    error: OSError, action: str, path: str, reading: bool, needed_bytes: int | None
) -> CkptError:
    where = f"{action} {path!a}"
    if reading and error.errno == errno.ENOENT:
        return MissingError(f"cannot {where}: there is no such object")
    if error.errno == errno.EEXIST:
        return ExistsError(f"cannot {where}: it exists already, and was not touched")
    if error.errno in _IN_THE_WAY:
        return CorruptError(
            f"cannot {where}: a part of this path is a symbolic link, which is not followed, "
            f"or of the wrong kind: {spelled(error)}",
            advice="remove what stands there, after looking who put it there",
        )
    text = f"cannot {where}: {spelled(error)}"
    if needed_bytes is not None:
        text += f"; needed: {needed_bytes:,} bytes"
    if error.errno in _PASSING:
        return TransientError(text, advice="repeat the call")
    return StorageFailedError(text, advice=_ADVICE.get(error.errno or 0))
