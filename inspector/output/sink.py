"""Where output goes: standard output, or a file that appears whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import BinaryIO, Protocol

from ckptfmt.errors import CkptError, StorageFailedError

__all__ = ["FileSink", "Sink", "StandardOutput", "close_quietly", "open_sink"]


class Sink(Protocol):
    """A place for bytes."""

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at it directly."""

    def write(self, data: bytes | memoryview) -> None:
        """Append all of ``data``.

        Raises:
            BrokenPipeError: its reader went away.
            StorageFailedError: it cannot be written.
        """

    def finish(self) -> None:
        """Make everything visible.

        Raises:
            BrokenPipeError, StorageFailedError: as :meth:`write`.
        """


class _Stream:
    """A sink over an open stream."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self.is_terminal = stream.isatty()

    def write(self, data: bytes | memoryview) -> None:
        """As :meth:`Sink.write`."""
        try:
            self._stream.write(data)
            if self.is_terminal:
                self._stream.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def finish(self) -> None:
        """As :meth:`Sink.finish`."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CkptError:
        return StorageFailedError(f"cannot write {self._name}: {error}")


class StandardOutput(_Stream):
    """Standard output."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise StorageFailedError("standard output is closed")
        super().__init__(sys.stdout.buffer, "standard output")


class FileSink(_Stream):
    """A file that takes the place of ``path`` at the end, so that nobody sees half of it.

    Of a link it is what the link names.  Pipes and devices are written directly.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary: Path | None = None
        target = path
        if not _is_special(path):
            self._path = path = _target(path)
            target = path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.tmp")
            self._temporary = target
        try:
            stream = target.open("xb" if self._temporary else "wb")
        except (OSError, ValueError) as error:
            raise StorageFailedError(f"cannot write {str(path)!a}: {error}") from error
        super().__init__(stream, ascii(str(path)))
        self.is_terminal = False

    def finish(self) -> None:
        """Close the file and put it into its place."""
        super().finish()
        try:
            self._stream.close()
            if self._temporary is not None:
                self._temporary.replace(self._path)
                self._temporary = None
        except OSError as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """Remove what was not finished."""
        with contextlib.suppress(OSError):
            self._stream.close()
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink()


def _target(path: Path) -> Path:
    # A name with a NUL is refused where it is opened.
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        return path


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def open_sink(path: Path | None) -> StandardOutput | FileSink:
    """The file ``path``, or standard output, which ``-`` means too.

    Raises:
        StorageFailedError: it cannot be written.
    """
    return StandardOutput() if path in (None, Path("-")) else FileSink(path)


def close_quietly(descriptor: int) -> None:
    """Let what is still buffered for a closed pipe go nowhere, instead of into a traceback."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
