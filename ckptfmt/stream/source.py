"""Where stored bytes come from: byte ranges, and sequential reading with a hash."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from ckptfmt.errors import CorruptError, DataError, MissingError, StorageFailedError, TornError
from ckptfmt.stream.framing import END_BYTES, PREFIX_BYTES, End, Prefix

__all__ = ["BytesSource", "Feed", "FileSource", "RangeSource", "past_end", "read_piece"]

# One request of a sequential read: large enough for an object store, small beside the 64 MiB.
_CHUNK_BYTES: Final = 4 << 20


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
        """


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


def past_end(source: RangeSource, offset: int, end: int, *, whole: bool = False) -> DataError:
    """The error for content at ``offset`` that would end at ``end``, past the end of the file.

    Torn, unless the file is known to be whole (its size is the stated one, or an
    intact END closes it): then the length that led there is wrong.
    """
    size = source.size_bytes
    if whole or _ends_well(source):
        error: DataError = CorruptError(
            f"what begins here would end at {end}, and the file, which is whole, has {size} bytes"
        )
    else:
        error = TornError(f"the file has {size} bytes, and what begins here ends at {end} or later")
    return error.at(file=source.name, offset=offset)


def _ends_well(source: RangeSource) -> bool:
    size = source.size_bytes
    if size < END_BYTES:
        return False
    try:
        end = End.decode(source.read_at(size - END_BYTES, END_BYTES))
    except CorruptError:
        return False
    return end.size_bytes == size


def read_piece(source: RangeSource, offset: int, size_bytes: int, *, whole: bool = False) -> bytes:
    """A range that has to lie within the file.

    Raises:
        TornError, CorruptError: as :func:`past_end`.
    """
    if offset + size_bytes > source.size_bytes:
        raise past_end(source, offset, offset + size_bytes, whole=whole)
    return source.read_at(offset, size_bytes)


class Feed:
    """Reads a source front to back and hashes all of it on the way.

    ``whole`` says that the size of the file is known to be the right one.
    """

    __slots__ = ("_buffer", "_fetched", "_hash", "_source", "_start", "_whole", "offset")

    def __init__(self, source: RangeSource, *, whole: bool = False) -> None:
        self._source = source
        self._whole = whole
        self._hash = hashlib.sha256()
        self._buffer = b""
        self._start = 0
        self._fetched = 0
        self.offset = 0

    def take(self, size_bytes: int) -> bytes:
        """The next ``size_bytes`` bytes.

        Raises:
            TornError, CorruptError: as :func:`past_end`.
            StorageError: the store failed.
        """
        data = self.peek(size_bytes)
        self._start += size_bytes
        self.offset += size_bytes
        return data

    def peek(self, size_bytes: int) -> bytes:
        """As :meth:`take`, without moving on."""
        end = self.offset + size_bytes
        if end > self._source.size_bytes:
            raise past_end(self._source, self.offset, end, whole=self._whole)
        if end > self._fetched:
            wanted = max(end - self._fetched, _CHUNK_BYTES)
            more = self._source.read_at(
                self._fetched, min(wanted, self._source.size_bytes - self._fetched)
            )
            self._hash.update(more)
            self._fetched += len(more)
            self._buffer = self._buffer[self._start :] + more
            self._start = 0
        return self._buffer[self._start : self._start + size_bytes]

    def take_piece(self) -> tuple[bytes, bytes]:
        """The next piece whole, and its tag.

        Raises:
            CorruptError: no piece begins here.
            TornError: it ends past the end of the file.
        """
        prefix = Prefix.decode(self.peek(PREFIX_BYTES))
        return self.take(prefix.size_bytes), prefix.tag

    @property
    def at_end(self) -> bool:
        """Whether all has been taken."""
        return self.offset == self._source.size_bytes

    @property
    def sha256(self) -> str:
        """SHA-256 in hex of all that was fetched: of the file, once at the end."""
        return self._hash.hexdigest()
