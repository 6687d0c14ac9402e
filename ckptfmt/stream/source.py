"""Where stored bytes come from: ranges of a file of known size."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ckptfmt.errors import MissingError, StateError, StorageFailedError, TornError

__all__ = ["BytesSource", "FileSource", "RangeSource"]


class RangeSource(Protocol):
    """A stored file of a known size whose ranges can be read, from any thread."""

    @property
    def name(self) -> str:
        """For errors: a path relative to the checkpoint, or what the caller knows it by."""

    @property
    def size_bytes(self) -> int:
        """The size when it was opened."""

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Exactly these bytes.

        Raises:
            TornError: the file does not reach that far.
            StorageError: the store failed.
            StateError: it is closed.
        """

    def close(self) -> None:
        """Release what reading needs; may be repeated."""


class BytesSource:
    """A file held in memory."""

    def __init__(self, data: bytes, name: str = "<memory>") -> None:
        self._data = data
        self.name = name
        self.size_bytes = len(data)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """See :class:`RangeSource`."""
        data = self._data[offset : offset + size_bytes]
        return _exactly(data, self, offset, size_bytes)

    def close(self) -> None:
        """See :class:`RangeSource`; there is nothing to release."""


class FileSource:
    """A file on a local disk; closes the descriptor it is given."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name
        self.size_bytes = os.fstat(descriptor).st_size

    @classmethod
    def open(cls, path: str | Path) -> FileSource:
        """Open a file for reading.

        Raises:
            MissingError: there is none.
            StorageFailedError: it cannot be opened.
        """
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
        except FileNotFoundError as error:
            raise MissingError("there is no such file").at(file=str(path)) from error
        except OSError as error:
            raise StorageFailedError(f"cannot open: {error}").at(file=str(path)) from error

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """See :class:`RangeSource`."""
        if self._descriptor < 0:
            raise StateError("the source is closed").at(file=self.name)
        parts, left = [], size_bytes
        try:
            while left and (part := os.pread(self._descriptor, left, offset + size_bytes - left)):
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise StorageFailedError(f"cannot read: {error}").at(
                file=self.name, offset=offset
            ) from error
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return _exactly(data, self, offset, size_bytes)

    def close(self) -> None:
        """Close the descriptor; once is enough."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _exactly(data: bytes, source: RangeSource, offset: int, size_bytes: int) -> bytes:
    if len(data) == size_bytes:
        return data
    raise TornError(
        f"only {len(data)} of {size_bytes} bytes could be read; the file had "
        f"{source.size_bytes} bytes when it was opened"
    ).at(file=source.name, offset=offset)
