"""What a strict reader keeps of the records it has seen, to hold the index against it.

Constant in size, however many records there are: running hashes for what comes in
order, a sum of hashes for the entries of the index, which come sorted by key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ckptfmt.stream.checksum import content_rows, record_digest
from ckptfmt.stream.framing import BlockHeader
from ckptfmt.stream.index import Entry

__all__ = ["Places", "Tally"]

_MODULUS = 1 << 64


class Places:
    """A set of record places, as a sum that does not depend on their order.

    Tuples of integers hash alike within a process; the sum never leaves it.
    """

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = 0

    def add(self, places: Iterable[tuple[int, ...]]) -> None:
        """Take in (ordinal, block offset, block length, offset, length) of records."""
        self._sum = (self._sum + sum(map(hash, places))) % _MODULUS

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Take in the entries of a page."""
        self.add(entry[1:] for entry in entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self._sum == other._sum

    __hash__ = None  # type: ignore[assignment]


class Tally:
    """Totals and digests of the blocks so far."""

    def __init__(self) -> None:
        self.records = 0
        self.blocks = 0
        self.raw_bytes = 0
        self.places = Places()
        self._content = hashlib.sha256()
        self._digests = hashlib.sha256()

    def add(
        self, header: BlockHeader, offset: int, size_bytes: int, lines: Iterable[bytes]
    ) -> None:
        """Take in a block: where it lies in the file, and its lines."""
        digests = [record_digest(line) for line in lines]
        self._content.update(content_rows(header.lengths, digests))
        self._digests.update(b"".join(digests))
        places, start = [], 0
        for ordinal, length in enumerate(header.lengths, header.first_ordinal):
            places.append((ordinal, offset, size_bytes, start, length))
            start += length + 1
        self.places.add(places)
        self.records += len(header.lengths)
        self.blocks += 1
        self.raw_bytes += header.raw_bytes

    @property
    def content_digest(self) -> bytes:
        """The content digest of the records so far."""
        return self._content.digest()

    @property
    def digests_digest(self) -> bytes:
        """SHA-256 over the record digests so far."""
        return self._digests.digest()
