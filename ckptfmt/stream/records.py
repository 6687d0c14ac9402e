"""What goes into a stream and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ckptfmt.stream.checksum import Piece

__all__ = ["Line", "StoredLine", "StreamFacts", "StreamSummary"]

# One record line without LF, in pieces, so that a payload is spliced in and never copied.
Line = tuple[Piece, ...]


class StoredLine(NamedTuple):
    """A record line as read: ``offset`` is that of the line in its block's raw bytes."""

    ordinal: int
    block: int
    offset: int
    line: bytes

    @property
    def size_bytes(self) -> int:
        """The length of the line."""
        return len(self.line)


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What a manifest states of a stream; ``sha256`` is of the file, in lower-case hex."""

    size_bytes: int
    sha256: str
    records: int
    blocks: int
    raw_bytes: int
    index_offset: int
    index_length: int


@dataclass(frozen=True, slots=True)
class StreamSummary(StreamFacts):
    """What a writer knows at the end; ``content_digest`` is the one of the stream alone."""

    content_digest: bytes
