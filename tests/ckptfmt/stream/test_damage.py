"""Every bit and every length of a small stream, and pieces that lie with a valid crc32c."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from ckptfmt import wire
from ckptfmt.errors import CorruptError, DataError, TornError, UnsupportedError
from ckptfmt.stream import (
    BytesSource,
    Entry,
    Loss,
    StoredLine,
    StreamReader,
    StreamSummary,
    salvage,
)
from ckptfmt.stream.codec import Compressor
from ckptfmt.stream.framing import BlockHeader, End, Head, encode_piece, open_piece
from ckptfmt.stream.index import DigestSection, Index, Page, PageRef, SectionRef
from tests.support.streams import Part, build, facts_of, lines_of, parts_of, records

LINES = records(7)
DATA, SUMMARY = build(LINES, block_target_bytes=48)
FACTS = facts_of(SUMMARY)
PARTS = parts_of(DATA)
BLOCKS = [part for part in PARTS if part.tag == wire.TAG_BLOCK]


def _part(tag: bytes) -> Part:
    return next(part for part in PARTS if part.tag == tag)


def _lines(data: bytes, *, known: bool) -> list[bytes]:
    return lines_of(data, FACTS if known else None)


def _records_by_key(data: bytes, *, known: bool) -> list[bytes | DataError]:
    found: list[bytes | DataError] = []
    with StreamReader(BytesSource(data, "records.zst"), FACTS if known else None) as reader:
        for key in LINES:
            try:
                found.append(reader.get(key))
            except DataError as error:
                found.append(error)
    return found


def _salvaged(data: bytes) -> dict[int, bytes]:
    """What salvage finds, by ordinal; every ordinal once."""
    found = [item for item in salvage(BytesSource(data)) if isinstance(item, StoredLine)]
    assert len({item.ordinal for item in found}) == len(found)
    return {item.ordinal: item.line for item in found}


def _assert_salvage_tells_no_lie(data: bytes) -> None:
    lines = list(LINES.values())
    assert all(line == lines[ordinal] for ordinal, line in _salvaged(data).items())


def test_the_stream_of_these_tests_has_all_pieces_and_is_small() -> None:
    assert len(DATA) <= 4096
    assert len(BLOCKS) >= 3
    assert {part.tag for part in PARTS} == {
        wire.TAG_HEAD,
        wire.TAG_BLOCK,
        wire.TAG_PAGE,
        wire.TAG_DIGESTS,
        wire.TAG_INDEX,
        wire.TAG_END,
    }


def _flipped(position: int, bit: int) -> bytes:
    data = bytearray(DATA)
    data[position] ^= 1 << bit
    return bytes(data)


# The one bit of a zstd frame header that RFC 8878 section 3.1.1.1.1 lets decoders ignore.
IGNORED_BITS = {(block.frame_offset + 4, 4) for block in BLOCKS}


@pytest.mark.parametrize("bit", range(8))
def test_any_flipped_bit_is_corrupt_for_who_reads_all(bit: int) -> None:
    """F27: no flip reads as other data, none as a shorter file, none without a place."""
    lines = list(LINES.values())
    for position in range(len(DATA)):
        data = _flipped(position, bit)
        known = position % 2 == 0
        if (position, bit) in IGNORED_BITS:
            assert _lines(data, known=known) == lines
            continue
        with pytest.raises(CorruptError) as caught:
            _lines(data, known=known)
        assert caught.value.location.file == "records.zst"
        assert caught.value.location.offset is not None


@pytest.mark.parametrize("bit", range(8))
def test_any_flipped_bit_is_corrupt_or_elsewhere_for_who_reads_one_record(bit: int) -> None:
    """F27."""
    for position in range(len(DATA)):
        found = _records_by_key(_flipped(position, bit), known=position % 2 == 0)
        for line, outcome in zip(LINES.values(), found, strict=True):
            assert outcome == line or isinstance(outcome, CorruptError)
            if isinstance(outcome, CorruptError):
                assert outcome.location.offset is not None


@pytest.mark.parametrize("bit", [0, 5])
def test_salvage_of_any_flipped_bit_loses_one_block_at_most(bit: int) -> None:
    """F43."""
    for position in range(len(DATA)):
        data = _flipped(position, bit)
        _assert_salvage_tells_no_lie(data)
        whole = [block for block in BLOCKS if not block.offset <= position < block.end]
        for block in whole:
            header = BlockHeader.decode(DATA[block.offset : block.frame_offset])
            assert set(range(header.first_ordinal, header.next_ordinal)) <= set(_salvaged(data))


def test_every_cut_is_torn_with_both_sizes() -> None:
    """F28."""
    for size in range(len(DATA)):
        for known in (True, False):
            with pytest.raises(TornError) as caught:
                _lines(DATA[:size], known=known)
            assert f"has {size} bytes" in caught.value.message
            assert caught.value.location.offset is not None
            if known:
                assert f"says {len(DATA)}" in caught.value.message
            for outcome in _records_by_key(DATA[:size], known=known):
                assert isinstance(outcome, TornError)
        _assert_salvage_tells_no_lie(DATA[:size])


def test_no_cut_yields_a_shorter_list_as_if_it_were_whole() -> None:
    """F28: the lines that come before the error are a true beginning."""
    lines = list(LINES.values())
    for size in range(len(DATA)):
        found: list[bytes] = []
        with (
            contextlib.suppress(TornError),
            StreamReader(BytesSource(DATA[:size])) as reader,
        ):
            found += (stored.line for stored in reader.lines())
            pytest.fail("a cut file was read to its end")
        assert found == lines[: len(found)]


@pytest.mark.parametrize("garbage", [b"\0", b"\n", b"x", DATA[:1], DATA[-64:]])
def test_bytes_behind_the_end_are_corrupt_where_known_content_ends(garbage: bytes) -> None:
    """F31."""
    for size in (1, 2, 12, 63, 64, 65, 511, 4096):
        data = DATA + (garbage * 4096)[:size]
        for known in (True, False):
            with pytest.raises(CorruptError) as caught:
                _lines(data, known=known)
            assert caught.value.location.offset == len(DATA)
            for outcome in _records_by_key(data, known=known):
                assert isinstance(outcome, CorruptError)
                assert outcome.location.offset == len(DATA)
        assert list(_salvaged(data).values()) == list(LINES.values())


def test_no_length_of_garbage_is_taken_for_content() -> None:
    """F31: 1 to 4,096 bytes."""
    garbage = random.Random(31).randbytes(4096)
    for size in range(1, 4097):
        with pytest.raises(CorruptError) as caught:
            _lines(DATA + garbage[:size], known=size % 2 == 0)
        assert caught.value.location.offset == len(DATA)


def test_a_second_stream_behind_the_first_is_corrupt_where_the_first_ends() -> None:
    """F31: its END closes the file, and counts the bytes of its own stream only."""
    other, _ = build({"x": b"{}"}, uuid=b"o" * 16)
    for data in (DATA + other, DATA + DATA):
        with pytest.raises(CorruptError) as caught:
            _lines(data, known=False)
        assert caught.value.location.offset == len(DATA)
        for outcome in _records_by_key(data, known=False):
            assert isinstance(outcome, CorruptError)
            assert outcome.location.offset == len(DATA)
        assert list(_salvaged(data).values()) == list(LINES.values())


@pytest.mark.parametrize("start", [0, 13, 60, 200, 400])
def test_a_run_of_zeros_is_corrupt_at_the_piece_it_begins_in(start: int) -> None:
    """F36."""
    data = DATA[:start] + bytes(120) + DATA[start + 120 :]
    with pytest.raises(CorruptError) as caught:
        _lines(data, known=True)
    offset = caught.value.location.offset
    assert offset is not None
    assert any(part.offset == offset for part in PARTS) or offset == 0
    assert offset <= start


def test_the_first_4_kib_zeroed_leave_the_later_blocks_readable() -> None:
    """F36."""
    source = random.Random(36)
    lines = {f"{n}": source.randbytes(300).hex().encode() for n in range(40)}
    data, _ = build(lines, block_target_bytes=1500)
    damaged = bytes(4096) + data[4096:]
    with pytest.raises(CorruptError) as caught:
        lines_of(damaged)
    assert caught.value.location.offset == 0
    found = _salvaged(damaged)
    expected = list(lines.values())
    assert all(expected[ordinal] == line for ordinal, line in found.items())
    first_whole = next(
        part for part in parts_of(data) if part.tag == wire.TAG_BLOCK and part.offset >= 4096
    )
    header = BlockHeader.decode(data[first_whole.offset : first_whole.frame_offset])
    assert sorted(found) == list(range(header.first_ordinal, 40))


def test_a_block_of_another_stream_is_rejected_by_its_uuid() -> None:
    """F32: with all its own checksums intact."""
    other, _ = build(LINES, block_target_bytes=48, uuid=b"o" * 16)
    block = BLOCKS[1]
    data = DATA[: block.offset] + other[block.offset : block.end] + DATA[block.end :]
    assert len(data) == len(DATA)
    with pytest.raises(CorruptError, match=f"stream {(b'o' * 16).hex()}") as caught:
        _lines(data, known=False)
    assert (caught.value.location.block, caught.value.location.offset) == (1, block.offset)
    header = BlockHeader.decode(DATA[block.offset : block.frame_offset])
    outcomes = _records_by_key(data, known=True)
    for ordinal, (line, outcome) in enumerate(zip(LINES.values(), outcomes, strict=True)):
        inside = header.first_ordinal <= ordinal < header.next_ordinal
        assert isinstance(outcome, CorruptError) if inside else outcome == line
    assert set(_salvaged(data)) == set(range(7)) - set(
        range(header.first_ordinal, header.next_ordinal)
    )


def test_blocks_in_another_order_or_twice_are_rejected_and_salvaged_once() -> None:
    first, second = (DATA[block.offset : block.end] for block in BLOCKS[:2])
    rest = DATA[BLOCKS[1].end :]
    start = DATA[: BLOCKS[0].offset]
    for middle in (second + first, first + first + second, first + second + first, second):
        with pytest.raises(CorruptError) as caught:
            _lines(start + middle + rest, known=False)
        assert caught.value.location.block is not None
    for middle in (second + first, first + first + second, first + second + first):
        assert _salvaged(start + middle + rest) == dict(enumerate(LINES.values()))


def _decoded(part: Part) -> bytes:
    return DATA[part.offset : part.frame_offset]


def _with(part: Part, piece: bytes) -> bytes:
    return DATA[: part.offset] + piece + DATA[part.frame_offset :]


def _repaged(data: bytes, summary: StreamSummary, pages: list[Page]) -> bytes:
    """The stream with these pages, and a directory and END that fit them."""
    index = Index.decode(data[summary.index_offset : -64])
    offset = index.pages[0].offset
    sections = data[index.sections[0].offset : summary.index_offset]
    refs = []
    out = data[:offset]
    for page in pages:
        piece = page.encode(Compressor(1))
        refs.append(PageRef(page.entries[0].key, len(out), len(piece), len(page.entries)))
        out += piece
    shift = len(out) - index.sections[0].offset
    moved = tuple(SectionRef(ref.offset + shift, *ref[1:]) for ref in index.sections)
    out += sections
    directory = replace(index, pages=tuple(refs), sections=moved).encode()
    size = len(out) + len(directory) + 64
    return out + directory + End(index.uuid, len(out), len(directory), size, index.records).encode()


def _page(**change: object) -> bytes:
    page = Page.decode(_decoded(_part(wire.TAG_PAGE)))
    return _repaged(DATA, SUMMARY, [replace(page, **change)])  # type: ignore[arg-type]


def _entries(change: Callable[[list[Entry]], object]) -> bytes:
    entries = list(Page.decode(_decoded(_part(wire.TAG_PAGE))).entries)
    change(entries)
    return _page(entries=tuple(entries))


def _index(**change: object) -> bytes:
    index = Index.decode(_decoded(_part(wire.TAG_INDEX)))
    return _with(_part(wire.TAG_INDEX), replace(index, **change).encode())  # type: ignore[arg-type]


def _digests(**change: object) -> bytes:
    section = DigestSection.decode(_decoded(_part(wire.TAG_DIGESTS)))
    return _with(
        _part(wire.TAG_DIGESTS),
        replace(section, **change).encode(),  # type: ignore[arg-type]
    )


def _end(**change: object) -> bytes:
    end = End.decode(DATA[-64:])
    return DATA[:-64] + replace(end, **change).encode()  # type: ignore[arg-type]


def _block(which: int, **change: object) -> bytes:
    part = BLOCKS[which]
    header = BlockHeader.decode(_decoded(part))
    return _with(part, replace(header, **change).encode())  # type: ignore[arg-type]


INDEX = Index.decode(_decoded(_part(wire.TAG_INDEX)))
HEADER = BlockHeader.decode(_decoded(BLOCKS[1]))

LIES = {
    "block number": lambda: _block(1, number=2),
    "first ordinal": lambda: _block(1, first_ordinal=0),
    "lengths shifted": lambda: _block(1, lengths=_shifted(HEADER.lengths)),
    "stored length short": lambda: _block(1, stored_bytes=HEADER.stored_bytes - 1),
    "stored length long": lambda: _block(1, stored_bytes=HEADER.stored_bytes + 1),
    "page uuid": lambda: _page(uuid=b"o" * 16),
    "page number": lambda: _page(number=1),
    "page order": lambda: _entries(lambda entries: entries.reverse()),
    "a place out of the file": lambda: _entries(
        lambda entries: entries.__setitem__(2, entries[2]._replace(block_offset=2**63))
    ),
    "a place in the middle of a block": lambda: _entries(
        lambda entries: entries.__setitem__(2, entries[2]._replace(offset=1))
    ),
    "an ordinal twice": lambda: _entries(
        lambda entries: entries.__setitem__(2, entries[2]._replace(ordinal=0))
    ),
    "digests of others": lambda: _digests(digests=bytes(16 * 7)),
    "digests from elsewhere": lambda: _digests(first_ordinal=1),
    "digest uuid": lambda: _digests(uuid=b"o" * 16),
    "index uuid": lambda: _index(uuid=b"o" * 16),
    "records": lambda: _index(records=6),
    "blocks": lambda: _index(blocks=9),
    "raw bytes": lambda: _index(raw_bytes=1),
    "content digest": lambda: _index(content_digest=bytes(32)),
    "no pages": lambda: _index(pages=()),
    "page offset": lambda: _index(
        pages=(INDEX.pages[0]._replace(offset=INDEX.pages[0].offset + 1),)
    ),
    "page size": lambda: _index(pages=(INDEX.pages[0]._replace(size_bytes=2**40),)),
    "first key": lambda: _index(pages=(INDEX.pages[0]._replace(first_key="zzz-key"),)),
    "end uuid": lambda: _end(uuid=b"o" * 16),
    "end records": lambda: _end(records=8),
    "end index": lambda: _end(
        index_offset=SUMMARY.index_offset - 1, index_length=SUMMARY.index_length + 1
    ),
    "end size": lambda: _end(index_length=SUMMARY.index_length + 1, size_bytes=len(DATA) + 1),
}


def _shifted(lengths: tuple[int, ...]) -> tuple[int, ...]:
    return (lengths[0] + 1, lengths[1] - 1, *lengths[2:])


@pytest.mark.parametrize("name", LIES)
def test_a_piece_that_lies_with_a_valid_crc_is_corrupt(name: str) -> None:
    data = LIES[name]()
    assert data != DATA
    with pytest.raises(CorruptError) as caught:
        _lines(data, known=False)
    assert caught.value.location.offset is not None
    for line, outcome in zip(LINES.values(), _records_by_key(data, known=False), strict=True):
        assert outcome == line or isinstance(outcome, DataError)
    _assert_salvage_tells_no_lie(data)


def test_pieces_in_another_order_are_corrupt() -> None:
    page, digests = _part(wire.TAG_PAGE), _part(wire.TAG_DIGESTS)
    swapped = (
        DATA[: page.offset]
        + DATA[digests.offset : digests.end]
        + DATA[page.offset : page.end]
        + DATA[digests.end :]
    )
    without_index = DATA[: _part(wire.TAG_INDEX).offset] + DATA[-64:]
    head_again = DATA[: page.offset] + _decoded(_part(wire.TAG_HEAD)) + DATA[page.offset :]
    for data in (swapped, without_index, head_again):
        with pytest.raises(CorruptError):
            _lines(data, known=False)


def test_keys_that_change_places_are_left_to_who_knows_the_records() -> None:
    """The blocks do not hold keys, so the container cannot tell; the record's own key can."""

    def swap(entries: list[Entry]) -> None:
        first, second = entries[:2]
        entries[:2] = Entry(first.key, *second[1:]), Entry(second.key, *first[1:])

    data = _entries(swap)
    assert _lines(data, known=False) == list(LINES.values())
    keys = sorted(LINES)
    with StreamReader(BytesSource(data)) as reader:
        assert reader.get(keys[0]) == LINES[keys[1]]


def test_a_key_that_stands_twice_is_reported_by_all_who_meet_it() -> None:
    """F8: a lookup by that key does not pick one; other keys are served."""
    keys = list(LINES)

    def rename(entries: list[Entry]) -> None:
        position = next(n for n, entry in enumerate(entries) if entry.key == keys[2])
        entries[position] = entries[position]._replace(key=entries[position - 1].key)

    data = _entries(rename)
    twice = next(e.key for e, f in _pairs(data) if e.key == f.key)
    with StreamReader(BytesSource(data)) as reader:
        for read in (lambda: reader.get(twice), lambda: list(reader.entries())):
            with pytest.raises(CorruptError, match="same key") as caught:
                read()
            assert caught.value.location.key == twice
        with pytest.raises(CorruptError, match="same key"):
            list(reader.lines())
        for key in set(keys) - {twice, keys[2]}:
            assert reader.get(key) == LINES[key]


def _pairs(data: bytes) -> list[tuple[Entry, Entry]]:
    part = next(part for part in parts_of(data) if part.tag == wire.TAG_PAGE)
    entries = Page.decode(data[part.offset : part.end]).entries
    return list(pairwise(entries))


def test_a_key_that_stands_twice_across_two_pages_is_reported() -> None:
    """F8."""
    count = wire.PAGE_ENTRIES + 1
    data, summary = build({f"{n:05d}": b"{}" for n in range(count)})
    first, last = (
        Page.decode(data[part.offset : part.end])
        for part in parts_of(data)
        if part.tag == wire.TAG_PAGE
    )
    twin = replace(last, entries=(last.entries[0]._replace(key=first.entries[-1].key),))
    forged = _repaged(data, summary, [first, twin])
    with StreamReader(BytesSource(forged)) as reader:
        with pytest.raises(CorruptError, match="same key"):
            reader.get(first.entries[-1].key)
        with pytest.raises(CorruptError, match="same key"):
            list(reader.lines())
        assert reader.get("00007") == b"{}"


def test_a_later_major_is_unsupported_and_salvage_says_so() -> None:
    head = _part(wire.TAG_HEAD)
    body = open_piece(_decoded(head), wire.TAG_HEAD)
    later = _with(head, encode_piece(wire.TAG_HEAD, b"\x02\x00" + body[2:]))
    with pytest.raises(UnsupportedError) as caught:
        _lines(later, known=True)
    assert caught.value.location.offset == head.offset
    (loss,) = salvage(BytesSource(later))
    assert isinstance(loss, Loss)
    assert "major 2" in loss.message


def test_a_stream_of_a_later_minor_is_read() -> None:
    head = _part(wire.TAG_HEAD)
    minor = replace(Head.decode(_decoded(head)), minor=wire.FORMAT_MINOR + 1).encode()
    assert _lines(_with(head, minor), known=True) == list(LINES.values())


def test_a_file_that_is_no_stream_is_corrupt_or_torn_and_gives_nothing_to_salvage() -> None:
    noise = random.Random(9).randbytes(5000)
    for data, error in ((noise, CorruptError), (b"", TornError), (b'{"a":1}\n', TornError)):
        with pytest.raises(error):
            _lines(data, known=False)
        found = list(salvage(BytesSource(data)))
        assert all(isinstance(item, Loss) for item in found)
        assert found
