"""The file side of a writer: pieces in order, the hash of the file, the index."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

from ckptfmt.errors import StorageFailedError
from ckptfmt.stream.block import EncodedBlock
from ckptfmt.stream.checksum import content_rows
from ckptfmt.stream.codec import Compressor
from ckptfmt.stream.framing import END_BYTES, End, Head
from ckptfmt.stream.index import DigestSection, Entry, Index, Page, PageRef, SectionRef
from ckptfmt.stream.records import StreamSummary
from ckptfmt.wire import DIGEST_BYTES, DIGESTS_PER_SECTION, EMPTY_ZSTD_FRAME, PAGE_ENTRIES

__all__ = ["Output", "Sink"]


class Sink(Protocol):
    """Where a writer's bytes go, such as an open file.  Called from one thread at a time."""

    def write(self, data: bytes, /) -> object:
        """Take all of ``data``; a returned count that is smaller ends the stream."""

    def flush(self) -> object:
        """Hand on what was written."""


class _Place(NamedTuple):
    offset: int
    size_bytes: int


class Output:
    """Writes the pieces of one stream and keeps what its index needs.

    That is 32 bytes a record, besides the keys that the caller holds.  ``content``
    is a running SHA-256 to be fed with the same rows as the stream's own content digest.
    """

    def __init__(self, sink: Sink, head: Head, content: hashlib._Hash | None) -> None:
        self._sink = sink
        self._uuid = head.uuid
        self._file_hash = hashlib.sha256()
        self._content_hashes = [hashlib.sha256()] + ([content] if content else [])
        self._size_bytes = 0
        self._raw_bytes = 0
        self._places: list[_Place] = []
        self._first_ordinals: list[int] = []
        self._offsets = array("Q")
        self._lengths = array("Q")
        self._digests = bytearray()
        self._put(EMPTY_ZSTD_FRAME + head.encode())

    def put_block(self, block: EncodedBlock) -> None:
        """Append the next block.

        Raises:
            whatever the sink raises.
        """
        place = _Place(self._size_bytes, block.size_bytes)
        self._put(block.piece, *block.frame)
        header = block.header
        self._places.append(place)
        self._first_ordinals.append(header.first_ordinal)
        self._raw_bytes += header.raw_bytes
        offset = 0
        for length in header.lengths:
            self._offsets.append(offset)
            offset += length + 1
        self._lengths.extend(header.lengths)
        self._digests += b"".join(block.digests)
        rows = content_rows(header.lengths, block.digests)
        for content in self._content_hashes:
            content.update(rows)

    def flush(self) -> None:
        """Hand on what was written.

        Raises:
            whatever the sink raises.
        """
        self._sink.flush()

    def finish(self, ordinals: Mapping[str, int], compressor: Compressor) -> StreamSummary:
        """Append the index and END, and flush; ``ordinals`` gives each key's record.

        Raises:
            SizeError: the index directory has outgrown its limit.
            whatever the sink raises.
        """
        content_digest = self._content_hashes[0].digest()
        pages = self._put_pages(ordinals, compressor)
        sections = self._put_digests()
        index_offset = self._size_bytes
        index = Index(
            self._uuid,
            len(self._lengths),
            len(self._places),
            self._raw_bytes,
            content_digest,
            pages,
            sections,
        ).encode()
        size_bytes = index_offset + len(index) + END_BYTES
        end = End(self._uuid, index_offset, len(index), size_bytes, len(self._lengths))
        self._put(index, end.encode())
        self.flush()
        return StreamSummary(
            size_bytes=size_bytes,
            sha256=self._file_hash.hexdigest(),
            records=len(self._lengths),
            blocks=len(self._places),
            raw_bytes=self._raw_bytes,
            index_offset=index_offset,
            index_length=len(index),
            content_digest=content_digest,
        )

    def _put(self, *parts: bytes) -> None:
        for part in parts:
            taken = self._sink.write(part)
            if isinstance(taken, int) and taken != len(part):
                raise StorageFailedError(f"the sink took {taken} of {len(part)} bytes")
            self._file_hash.update(part)
            self._size_bytes += len(part)

    def _put_pages(
        self, ordinals: Mapping[str, int], compressor: Compressor
    ) -> tuple[PageRef, ...]:
        entries = self._entries(ordinals)
        pages: list[PageRef] = []
        while some := tuple(islice(entries, PAGE_ENTRIES)):
            piece = Page(self._uuid, len(pages), some).encode(compressor)
            pages.append(PageRef(some[0].key, self._size_bytes, len(piece), len(some)))
            self._put(piece)
        return tuple(pages)

    def _entries(self, ordinals: Mapping[str, int]) -> Iterator[Entry]:
        for key in sorted(ordinals):
            ordinal = ordinals[key]
            place = self._places[bisect_right(self._first_ordinals, ordinal) - 1]
            yield Entry(key, ordinal, *place, self._offsets[ordinal], self._lengths[ordinal])

    def _put_digests(self) -> tuple[SectionRef, ...]:
        sections = []
        step = DIGESTS_PER_SECTION * DIGEST_BYTES
        for start in range(0, len(self._digests), step):
            section = DigestSection(
                self._uuid, start // DIGEST_BYTES, bytes(self._digests[start : start + step])
            )
            piece = section.encode()
            sections.append(SectionRef(self._size_bytes, len(piece), section.count))
            self._put(piece)
        return tuple(sections)
