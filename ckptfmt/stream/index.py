"""Bytes of the index: PAGE, DGST and INDX.  No I/O.

Entries are sorted by the UTF-8 bytes of their keys, which is the order of code
points, and so the order of Python strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from ckptfmt.errors import CorruptError, SizeError
from ckptfmt.stream.codec import Compressor, decompress
from ckptfmt.stream.cursor import Cursor, varint
from ckptfmt.stream.framing import encode_piece, open_piece
from ckptfmt.wire import (
    DIGEST_BYTES,
    DIGESTS_PER_SECTION,
    MAX_DIRECTORY_BYTES,
    MAX_KEY_BYTES,
    MAX_PAGE_BYTES,
    PAGE_ENTRIES,
    TAG_DIGESTS,
    TAG_INDEX,
    TAG_PAGE,
)

__all__ = ["DigestSection", "Entry", "Index", "Page", "PageRef", "SectionRef", "duplicate"]

_PAGE: Final = Struct("<16sIII")
_SECTION: Final = Struct("<16sQI")
_INDEX: Final = Struct("<16sQQQ32sII")


class Entry(NamedTuple):
    """Where a record lies.

    ``block_offset`` is the file offset of its BLCK piece, ``block_length`` the size of
    that piece and the zstd frame; ``offset`` is that of the line in the block's raw
    bytes, ``length`` that of the line without LF.
    """

    key: str
    ordinal: int
    block_offset: int
    block_length: int
    offset: int
    length: int

    def encode(self) -> bytes:
        """The entry as it stands in a page."""
        return _row(*self)


def duplicate(key: str) -> CorruptError:
    """The error for a key that two entries have."""
    return CorruptError("two records have the same key").at(key=key)


@dataclass(frozen=True, slots=True)
class Page:
    """PAGE: up to 1,024 entries, ascending; equal keys are a finding of whoever looks."""

    uuid: bytes
    number: int
    entries: tuple[Entry, ...]

    def encode(self, compressor: Compressor) -> bytes:
        """The piece."""
        raw = b"".join(entry.encode() for entry in self.entries)
        fixed = _PAGE.pack(self.uuid, self.number, len(self.entries), len(raw))
        return encode_piece(TAG_PAGE, fixed + compressor.compress(raw))

    @classmethod
    def decode(cls, piece: bytes) -> Page:
        """Read the piece.

        Raises:
            CorruptError: it is damaged, malformed or not in order.
        """
        cursor = Cursor(open_piece(piece, TAG_PAGE), "PAGE")
        uuid, number, count, raw_bytes = _PAGE.unpack(cursor.take(_PAGE.size))
        if not 1 <= count <= PAGE_ENTRIES:
            raise CorruptError(f"a page of {count} entries; 1 to {PAGE_ENTRIES} are permitted")
        if raw_bytes > MAX_PAGE_BYTES:
            raise CorruptError(f"a page of {raw_bytes} bytes; {MAX_PAGE_BYTES} are permitted")
        entries = _entries(decompress(cursor.rest(), raw_bytes), count)
        if any(before.key > after.key for before, after in pairwise(entries)):
            raise CorruptError("the entries of a page are not in the order of their keys")
        return cls(uuid, number, entries)


def _entries(raw: bytes, count: int) -> tuple[Entry, ...]:
    cursor = Cursor(raw, "a page")
    entries = tuple(_read_entry(cursor) for _ in range(count))
    cursor.end()
    return entries


def _read_entry(cursor: Cursor) -> Entry:
    number = cursor.varint
    return Entry(cursor.text(MAX_KEY_BYTES), number(), number(), number(), number(), number())


@dataclass(frozen=True, slots=True)
class DigestSection:
    """DGST: the digests of records from ``first_ordinal`` on, one after the other."""

    uuid: bytes
    first_ordinal: int
    digests: bytes

    @property
    def count(self) -> int:
        """How many records it covers."""
        return len(self.digests) // DIGEST_BYTES

    def encode(self) -> bytes:
        """The piece."""
        fixed = _SECTION.pack(self.uuid, self.first_ordinal, self.count)
        return encode_piece(TAG_DIGESTS, fixed + self.digests)

    @classmethod
    def decode(cls, piece: bytes) -> DigestSection:
        """Read the piece.

        Raises:
            CorruptError: it is damaged or malformed.
        """
        cursor = Cursor(open_piece(piece, TAG_DIGESTS), "DGST")
        uuid, first_ordinal, count = _SECTION.unpack(cursor.take(_SECTION.size))
        digests = cursor.rest()
        if not 1 <= count <= DIGESTS_PER_SECTION or len(digests) != count * DIGEST_BYTES:
            raise CorruptError(f"{len(digests)} bytes of digests for {count} records")
        return cls(uuid, first_ordinal, digests)


class PageRef(NamedTuple):
    """A page as the directory has it; ``size_bytes`` is that of the whole piece."""

    first_key: str
    offset: int
    size_bytes: int
    records: int


class SectionRef(NamedTuple):
    """A section of digests as the directory has it."""

    offset: int
    size_bytes: int
    records: int


@dataclass(frozen=True, slots=True)
class Index:
    """INDX: totals, the content digest, and the directories of pages and digest sections.

    ``raw_bytes`` counts the lines with LF.
    """

    uuid: bytes
    records: int
    blocks: int
    raw_bytes: int
    content_digest: bytes
    pages: tuple[PageRef, ...]
    sections: tuple[SectionRef, ...]

    def encode(self) -> bytes:
        """The piece.

        Raises:
            SizeError: the directory has outgrown its limit.
        """
        fixed = _INDEX.pack(
            self.uuid,
            self.records,
            self.blocks,
            self.raw_bytes,
            self.content_digest,
            len(self.pages),
            len(self.sections),
        )
        rows = [_row(*page) for page in self.pages]
        rows += [b"".join(map(varint, section)) for section in self.sections]
        body = fixed + b"".join(rows)
        if len(body) > MAX_DIRECTORY_BYTES:
            raise SizeError(
                f"an index directory of {len(body)} bytes; {MAX_DIRECTORY_BYTES} are permitted"
            )
        return encode_piece(TAG_INDEX, body)

    @classmethod
    def decode(cls, piece: bytes) -> Index:
        """Read the piece and check that its parts fit each other.

        Raises:
            CorruptError: it is damaged or malformed.
        """
        cursor = Cursor(open_piece(piece, TAG_INDEX), "INDX")
        uuid, records, blocks, raw_bytes, content_digest, page_count, section_count = _INDEX.unpack(
            cursor.take(_INDEX.size)
        )
        # The counts need no bound of their own: every row takes bytes that are there.
        pages = tuple(_read_page_row(cursor) for _ in range(page_count))
        sections = tuple(
            SectionRef(cursor.varint(), cursor.varint(), cursor.varint())
            for _ in range(section_count)
        )
        cursor.end()
        index = cls(uuid, records, blocks, raw_bytes, content_digest, pages, sections)
        index._check_directories()
        return index

    def _check_directories(self) -> None:
        if any(before.first_key > after.first_key for before, after in pairwise(self.pages)):
            raise CorruptError("the pages of the directory are not in the order of their keys")
        for what, rows in (("pages", self.pages), ("digest sections", self.sections)):
            found = sum(row.records for row in rows)
            if found != self.records:
                raise CorruptError(f"{what} for {found} records in a stream of {self.records}")
        everything: Sequence[PageRef | SectionRef] = (*self.pages, *self.sections)
        for before, after in pairwise(everything):
            if before.offset + before.size_bytes != after.offset:
                raise CorruptError(
                    f"a piece of the index at {after.offset}, and the one before ends at "
                    f"{before.offset + before.size_bytes}"
                )


def _row(key: str, *numbers: int) -> bytes:
    text = key.encode()
    return varint(len(text)) + text + b"".join(map(varint, numbers))


def _read_page_row(cursor: Cursor) -> PageRef:
    return PageRef(cursor.text(MAX_KEY_BYTES), cursor.varint(), cursor.varint(), cursor.varint())
