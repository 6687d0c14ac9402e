"""Sequential reading of a stored file, hashed on the way."""

from __future__ import annotations

import hashlib
from typing import Final

from ckptfmt.stream.diagnosis import past_end
from ckptfmt.stream.framing import PREFIX_BYTES, Prefix
from ckptfmt.stream.source import RangeSource

__all__ = ["Feed"]

# One request: large enough for an object store, small beside the 64 MiB of a reader.
_CHUNK_BYTES: Final = 4 << 20


class Feed:
    """Reads a source front to back and hashes all of it on the way.

    ``whole`` says that the size of the file is known to be the right one.
    """

    __slots__ = (
        "_buffer",
        "_chunk_bytes",
        "_fetched",
        "_hash",
        "_source",
        "_start",
        "_whole",
        "offset",
    )

    def __init__(
        self, source: RangeSource, *, whole: bool, chunk_bytes: int = _CHUNK_BYTES
    ) -> None:
        self._source = source
        self._whole = whole
        self._chunk_bytes = chunk_bytes
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
        self.require(size_bytes)
        end = self.offset + size_bytes
        if end > self._fetched:
            wanted = max(end - self._fetched, self._chunk_bytes)
            more = self._source.read_at(
                self._fetched, min(wanted, self._source.size_bytes - self._fetched)
            )
            self._hash.update(more)
            self._fetched += len(more)
            self._buffer = self._buffer[self._start :] + more
            self._start = 0
        return self._buffer[self._start : self._start + size_bytes]

    def require(self, size_bytes: int) -> None:
        """Check that as many bytes follow, without reading them.

        Raises:
            TornError, CorruptError: as :func:`past_end`.
        """
        end = self.offset + size_bytes
        if end > self._source.size_bytes:
            raise past_end(self._source, self.offset, end, whole=self._whole)

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
