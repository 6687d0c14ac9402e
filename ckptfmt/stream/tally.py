"""What a strict reader keeps of the records it has seen, to hold the index against it.

Constant in size, however many records there are: running hashes for what comes in
order, a sum of hashes for the entries of the index, which come sorted by key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import accumulate, repeat

from ckptfmt.stream.checksum import content_rows, record_digest
from ckptfmt.stream.framing import BlockHeader

__all__ = ["Tally", "sum_of"]


def sum_of(rows: Iterable[tuple[int | str, ...]]) -> int:
    """A number for a set of rows: such as (ordinal, block offset, block length, offset, length).

    It does not depend on their order, and says nothing outside this process.
    """
    # Squared, since the hash of a tuple is nearly linear: of two rows that exchange a member
    # the plain sum would often stay the same.
    return sum(hash(row) ** 2 for row in rows)


class Tally:
    """Totals of the blocks so far, and with ``digests`` those of their records."""

    def __init__(self, *, digests: bool) -> None:
        self.with_digests = digests
        self.records = 0
        self.blocks = 0
        self.raw_bytes = 0
        self.places = 0
        self._content = hashlib.sha256()
        self._digests = hashlib.sha256()

    def add(self, header: BlockHeader, offset: int, size_bytes: int, raw: bytes) -> None:
        """Take in a block: where it lies in the file, and its lines."""
        digests: list[bytes] = []
        if self.with_digests:
            with memoryview(raw) as view:
                spans = zip(_starts(header), header.lengths, strict=False)
                digests = [record_digest(view[start : start + size]) for start, size in spans]
        self._add(header, offset, size_bytes, digests)

    def add_long(self, header: BlockHeader, offset: int, size_bytes: int, digest: bytes) -> None:
        """As :meth:`add`, for a block of one line whose record digest is known."""
        self._add(header, offset, size_bytes, [digest] if self.with_digests else [])

    def _add(self, header: BlockHeader, offset: int, size_bytes: int, digests: list[bytes]) -> None:
        if self.with_digests:
            self._content.update(content_rows(header.lengths, digests))
            self._digests.update(b"".join(digests))
        lengths = header.lengths
        ordinals = range(header.first_ordinal, header.next_ordinal)
        self.places += sum_of(
            zip(
                ordinals, repeat(offset), repeat(size_bytes), _starts(header), lengths, strict=False
            )
        )
        self.records += len(lengths)
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


def _starts(header: BlockHeader) -> Iterator[int]:
    # Where each line begins in the block, and where one more would.
    return accumulate((length + 1 for length in header.lengths), initial=0)
