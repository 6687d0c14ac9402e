"""The index and END at the end of a strict read, held against the blocks before them."""

from __future__ import annotations

import hashlib

from ckptfmt.errors import CorruptError
from ckptfmt.stream.diagnosis import trailing
from ckptfmt.stream.feed import Feed
from ckptfmt.stream.framing import End
from ckptfmt.stream.index import DigestSection, Index, Page, PageRef, SectionRef, duplicate
from ckptfmt.stream.records import StreamFacts
from ckptfmt.stream.source import RangeSource
from ckptfmt.stream.tally import Tally, sum_of
from ckptfmt.wire import TAG_DIGESTS, TAG_INDEX, TAG_PAGE

__all__ = ["check_tail"]


def check_tail(
    feed: Feed, source: RangeSource, uuid: bytes, tally: Tally, facts: StreamFacts | None
) -> None:
    """Read from the first piece after the blocks to the end of the file.

    Raises:
        CorruptError: a piece is damaged or disagrees with the blocks, with another piece
            or with ``facts``; or something stands behind END.
        TornError: the file ends before END does.
    """
    tail = _Tail(feed, uuid, tally)
    while True:
        offset = feed.offset
        try:
            piece, tag = feed.take_piece()
            end = tail.take(piece, tag, offset)
            if end is not None:
                _check_end(end, source, feed, facts, tally)
                return
        except CorruptError as error:
            error.at(file=source.name, offset=offset)
            raise


class _Tail:
    """PAGE*, DGST*, INDX, END, in this order."""

    def __init__(self, feed: Feed, uuid: bytes, tally: Tally) -> None:
        self._feed = feed
        self._uuid = uuid
        self._tally = tally
        self._pages: list[PageRef] = []
        self._sections: list[SectionRef] = []
        self._last_key = ""
        self._places = 0
        self._digests = hashlib.sha256()
        self._records = 0
        self._index: tuple[int, int] | None = None

    def take(self, piece: bytes, tag: bytes, offset: int) -> End | None:
        """Judge the next piece; END is given back."""
        if self._index is not None:
            return self._end(piece)
        if tag == TAG_PAGE and not self._sections:
            self._page(piece, offset)
        elif tag == TAG_DIGESTS:
            self._section(piece, offset)
        elif tag == TAG_INDEX:
            self._directory(piece)
            self._index = (offset, len(piece))
        else:
            raise CorruptError(f"{tag.decode('ascii')} stands where the index belongs")
        return None

    def _page(self, piece: bytes, offset: int) -> None:
        page = Page.decode(piece)
        self._check_uuid(page.uuid)
        if page.number != len(self._pages):
            raise CorruptError(f"page {page.number} stands where page {len(self._pages)} belongs")
        for entry in page.entries:
            if entry.key == self._last_key:
                raise duplicate(entry.key)
            self._last_key, before = entry.key, self._last_key
            if before > entry.key:
                raise CorruptError("the entries of the index are not in the order of their keys")
        self._places += sum_of(entry[1:] for entry in page.entries)
        self._pages.append(PageRef(page.entries[0].key, offset, len(piece), len(page.entries)))

    def _section(self, piece: bytes, offset: int) -> None:
        section = DigestSection.decode(piece)
        self._check_uuid(section.uuid)
        if section.first_ordinal != self._records:
            raise CorruptError(
                f"digests from ordinal {section.first_ordinal} on, where {self._records} is next"
            )
        self._digests.update(section.digests)
        self._records += section.count
        self._sections.append(SectionRef(offset, len(piece), section.count))

    def _directory(self, piece: bytes) -> None:
        tally = self._tally
        index = Index.decode(piece)
        expected = Index(
            self._uuid,
            tally.records,
            tally.blocks,
            tally.raw_bytes,
            tally.content_digest if tally.with_digests else index.content_digest,
            tuple(self._pages),
            tuple(self._sections),
        )
        if index != expected:
            raise CorruptError("INDX is not the index of the blocks and pieces before it")
        if self._places != tally.places:
            raise CorruptError("the entries of the index are not the places of the records")
        if tally.with_digests and self._digests.digest() != tally.digests_digest:
            raise CorruptError("the record digests are not those of the records")

    def _end(self, piece: bytes) -> End:
        end = End.decode(piece)
        self._check_uuid(end.uuid)
        if (end.index_offset, end.index_length) != self._index:
            raise CorruptError(
                f"END puts INDX at {end.index_offset}, {end.index_length} bytes long"
            )
        if end.records != self._tally.records:
            raise CorruptError(f"END counts {end.records} records; there are {self._tally.records}")
        return end

    def _check_uuid(self, uuid: bytes) -> None:
        if uuid != self._uuid:
            raise CorruptError(f"a piece of stream {uuid.hex()} in stream {self._uuid.hex()}")


def _check_end(
    end: End, source: RangeSource, feed: Feed, facts: StreamFacts | None, tally: Tally
) -> None:
    if not feed.at_end:
        raise trailing(source, feed.offset)
    if end.size_bytes != feed.offset:
        raise CorruptError(f"END says that the file has {end.size_bytes} bytes, not {feed.offset}")
    if facts is None:
        return
    found = (tally.records, tally.blocks, tally.raw_bytes, end.index_offset, end.index_length)
    stated = (
        facts.records,
        facts.blocks,
        facts.raw_bytes,
        facts.index_offset,
        facts.index_length,
    )
    if found != stated:
        raise CorruptError(
            f"records, blocks, raw bytes, index offset and length are {found}, and the manifest "
            f"says {stated}"
        )
