"""Streams that no reader may believe: each is whole but for the one thing that its name says."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import zstandard

from ckptfmt.stream.checksum import crc32c
from ckptfmt.stream.codec import Compressor
from ckptfmt.stream.framing import BlockHeader, End, encode_piece
from ckptfmt.stream.index import Entry, Index, Page
from ckptfmt.wire import (
    EMPTY_ZSTD_FRAME,
    TAG_BLOCK,
    TAG_DIGESTS,
    TAG_END,
    TAG_HEAD,
    TAG_INDEX,
    TAG_PAGE,
)
from tests.support.streams import parts_of
from tests.vectors.building import STREAM, Case, make_stream, record, uuid_of

__all__ = ["hostile_streams"]

MIB: Final = 1 << 20
BOMB_BYTES: Final = 256 * MIB
PREFIX: Final = 12
COMPRESSOR: Final = Compressor(1)


class Pieces:
    """A stream of three blocks of one record each, taken apart."""

    def __init__(self, name: str = "base") -> None:
        records = [record(f"r{number}", n=number) for number in range(1, 4)]
        self.lines = [made.line for made in records]
        self.uuid = uuid_of(name)
        self.data, self.summary = make_stream(records, name=name, block_target_bytes=1)
        found = [(part, self.data[part.offset : part.end]) for part in parts_of(self.data)]
        self.head = found[0][1]
        self.blocks = [data for part, data in found if part.tag == TAG_BLOCK]
        self.headers = [
            BlockHeader.decode(data[: part.size_bytes])
            for part, data in found
            if part.tag == TAG_BLOCK
        ]
        self.page, self.digests, self.index = (
            next(data for part, data in found if part.tag == tag)
            for tag in (TAG_PAGE, TAG_DIGESTS, TAG_INDEX)
        )
        self.records = 3

    def frame(self, number: int) -> bytes:
        """The zstd frame of a block."""
        return self.blocks[number][len(self.headers[number].encode()) :]

    def joined(self, **changes: int) -> bytes:
        """The stream of the pieces as they are now; ``changes`` are of END."""
        front = EMPTY_ZSTD_FRAME + self.head + b"".join(self.blocks) + self.page + self.digests
        size = len(front) + len(self.index) + 64
        end = End(self.uuid, len(front), len(self.index), size, self.records)
        return front + self.index + replace(end, **changes).encode()


def hostile_streams() -> Iterator[Case]:
    """All of them."""
    for make in (_sizes, _heads, _pieces, _sequence, _blocks, _frames, _bombs, _lines, _indexes):
        for name, code, data in make():
            yield Case(name, {"code": code}, {STREAM: data})


_Found = Iterator[tuple[str, str, bytes]]


def _sizes() -> _Found:
    data = Pieces().data
    marks = {part.tag: part for part in parts_of(data)}
    yield "empty-file", "torn", b""
    yield "cut-in-head", "torn", data[:20]
    yield "cut-in-block", "torn", data[: marks[TAG_BLOCK].end - 1]
    yield "cut-at-frame-border", "torn", data[: marks[TAG_BLOCK].end]
    yield "cut-before-end", "torn", data[: marks[TAG_INDEX].end]
    yield "cut-in-end", "torn", data[:-1]
    yield "grown-by-one", "corrupt", data + b"\n"
    yield "grown-by-itself", "corrupt", data + data
    yield "start-zeroed", "corrupt", bytes(64) + data[64:]
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"{}\n")
    yield "no-stream", "corrupt", frame + data[len(EMPTY_ZSTD_FRAME) :]


def _body(piece: bytes) -> bytes:
    return piece[PREFIX:-4]


def _changed(piece: bytes, tag: bytes, offset: int, new: bytes) -> bytes:
    """The piece with bytes of its body replaced, and a right crc."""
    body = _body(piece)
    return encode_piece(tag, body[:offset] + new + body[offset + len(new) :])


def _heads() -> _Found:
    changes: dict[str, tuple[str, int, bytes]] = {
        "head-major-2": ("unsupported", 0, b"\x02\0"),
        "head-major-0": ("unsupported", 0, b"\0\0"),
        "head-codec-2": ("unsupported", 20, b"\x02"),
        "head-window-log-24": ("unsupported", 21, b"\x18"),
        "head-reserved-byte": ("corrupt", 23, b"\x01"),
        "head-name-too-long": ("corrupt", 24, b"\xff"),
        "head-name-empty": ("corrupt", 24, b"\0"),
        "head-instance-escapes": ("corrupt", 33, b".."),
    }
    for name, (code, offset, new) in changes.items():
        pieces = Pieces()
        pieces.head = _changed(pieces.head, TAG_HEAD, offset, new)
        yield name, code, pieces.joined()
    pieces = Pieces()
    pieces.head = encode_piece(TAG_HEAD, _body(pieces.head) + b"\0")
    yield "head-bytes-behind", "corrupt", pieces.joined()
    pieces.head = encode_piece(TAG_HEAD, _body(pieces.head)[:30])
    yield "head-cut", "corrupt", pieces.joined()


def _pieces() -> _Found:
    def spoilt(change: Callable[[bytes], bytes]) -> bytes:
        pieces = Pieces()
        pieces.page = change(pieces.page)
        return pieces.joined()

    yield "piece-crc", "corrupt", spoilt(lambda page: page[:-1] + bytes([page[-1] ^ 1]))
    yield "piece-of-4-gib", "corrupt", spoilt(lambda page: page[:4] + b"\xff" * 4 + page[8:])
    yield "piece-shorter-than-a-crc", "corrupt", spoilt(lambda page: page[:4] + b"\x04\0\0\0")
    yield "piece-past-the-end", "corrupt", spoilt(lambda page: page[:5] + b"\x40" + page[6:])
    yield "piece-of-unknown-tag", "corrupt", spoilt(lambda page: encode_piece(b"WHAT", _body(page)))
    yield "piece-of-other-magic", "corrupt", spoilt(lambda page: b"\x50" + page[1:])
    yield "piece-twice", "corrupt", spoilt(lambda page: page + page)
    yield "piece-left-out", "corrupt", spoilt(lambda _: b"")
    pieces = Pieces()
    pieces.page = pieces.page[:5] + b"\x40" + pieces.page[6:]
    yield "piece-past-the-end-and-no-end", "torn", pieces.joined(index_offset=0)
    pieces = Pieces()
    pieces.page, pieces.digests = pieces.digests, pieces.page
    yield "pieces-out-of-order", "corrupt", pieces.joined()
    pieces = Pieces()
    pieces.page = pieces.head + pieces.page
    yield "head-twice", "corrupt", pieces.joined()


def _sequence() -> _Found:
    def with_blocks(choose: Callable[[list[bytes]], list[bytes]]) -> bytes:
        pieces = Pieces()
        pieces.blocks = choose(pieces.blocks)
        return pieces.joined()

    stranger = Pieces("stranger").blocks[1]
    yield "block-of-another-stream", "corrupt", with_blocks(lambda b: [b[0], stranger, b[2]])
    yield "blocks-swapped", "corrupt", with_blocks(lambda b: [b[1], b[0], b[2]])
    yield "block-twice", "corrupt", with_blocks(lambda b: [b[0], b[0], b[1], b[2]])
    yield "block-left-out", "corrupt", with_blocks(lambda b: [b[0], b[2]])
    yield "blocks-cut-out", "corrupt", with_blocks(lambda b: b[:1])
    for tag in ("page", "digests", "index"):
        pieces = Pieces()
        setattr(pieces, tag, getattr(Pieces("stranger"), tag))
        yield f"{tag}-of-another-stream", "corrupt", pieces.joined()
    pieces = Pieces()
    pieces.uuid = Pieces("stranger").uuid
    yield "end-of-another-stream", "corrupt", pieces.joined()


def _with_block(header: BlockHeader | bytes, frame: bytes) -> bytes:
    pieces = Pieces()
    piece = header if isinstance(header, bytes) else header.encode()
    pieces.blocks[1] = piece + frame
    return pieces.joined()


def _blocks() -> _Found:
    pieces = Pieces()
    header, frame = pieces.headers[1], pieces.frame(1)
    body = _body(header.encode())
    yield "block-of-no-records", "corrupt", _with_block(_count(body, 0), frame)
    yield "block-of-2-32-records", "corrupt", _with_block(_count(body, 2**32 - 1), frame)
    short = encode_piece(TAG_BLOCK, body[:48] + b"\0" + body[49:])
    yield "block-line-of-no-bytes", "corrupt", _with_block(short, frame)
    lying = replace(header, raw_bytes=header.raw_bytes + 1)
    yield "block-lengths-disagree", "corrupt", _with_block(lying, frame)
    lying = replace(header, lengths=(2**60,), raw_bytes=2**60 + 1)
    yield "block-line-of-2-60-bytes", "corrupt", _with_block(lying, frame)
    lying = replace(header, lengths=(2**30,), raw_bytes=2**30 + 1)
    yield "block-line-of-1-gib", "corrupt", _with_block(lying, frame)
    lying = replace(header, stored_bytes=2**60)
    yield "block-stores-2-60-bytes", "corrupt", _with_block(lying, frame)
    lying = replace(header, stored_bytes=5)
    yield "block-stores-less-than-a-frame", "corrupt", _with_block(lying, frame)
    lying = replace(header, first_ordinal=2**64 - 1)
    yield "block-ordinal-out-of-sequence", "corrupt", _with_block(lying, frame)
    half = replace(header, lengths=(2**24, 2**24), crcs=(0, 0), raw_bytes=2**25 + 2)
    yield "block-of-many-too-large", "corrupt", _with_block(half, frame)
    length = header.lengths[0]
    assert length < 128
    for name, varint in {
        "varint-not-shortest": bytes([length | 0x80, 0]),
        "varint-of-65-bits": b"\x80" * 9 + b"\x02",
        "varint-endless": b"\xff" * 12,
    }.items():
        longer = encode_piece(TAG_BLOCK, body[:48] + varint + body[49:])
        yield name, "corrupt", _with_block(longer, frame)
    behind = encode_piece(TAG_BLOCK, body + b"\0")
    yield "block-bytes-behind", "corrupt", _with_block(behind, frame)


def _count(body: bytes, count: int) -> bytes:
    return encode_piece(TAG_BLOCK, body[:28] + struct.pack("<I", count) + body[32:])


def _with_frame(frame: bytes, raw: bytes | None = None) -> bytes:
    pieces = Pieces()
    line = pieces.lines[1] if raw is None else raw[:-1]
    lengths, crcs = (len(line),), (crc32c(line),)
    header = BlockHeader(pieces.uuid, 1, 1, len(line) + 1, len(frame), lengths, crcs)
    return _with_block(header, frame)


def _compressed(raw: bytes, **options: object) -> bytes:
    settings = {"write_checksum": True, "write_content_size": True, **options}
    return zstandard.ZstdCompressor(**settings).compress(raw)  # type: ignore[arg-type]


def _frames() -> _Found:
    raw = Pieces().lines[1] + b"\n"
    good = _compressed(raw)
    yield "frame-without-checksum", "corrupt", _with_frame(_compressed(raw, write_checksum=False))
    yield "frame-without-size", "corrupt", _with_frame(_compressed(raw, write_content_size=False))
    spoilt = good[:-1] + bytes([good[-1] ^ 1])
    yield "frame-with-wrong-checksum", "corrupt", _with_frame(spoilt)
    yield "frame-of-other-size", "corrupt", _with_frame(_compressed(raw + b"\n"))
    yield "frame-of-noise", "corrupt", _with_frame(bytes(range(1, 60)))
    yield "frame-cut", "corrupt", _with_frame(good[:-5])
    yield "frame-and-another", "corrupt", _with_frame(good + _compressed(b""))
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0what"
    yield "frame-and-a-skippable-one", "corrupt", _with_frame(good + skipped)
    yield "frame-skippable", "corrupt", _with_frame(skipped + bytes(20))
    # Descriptor: content size in four bytes, checksum, and a dictionary of one byte.
    block = good[good.index(raw[:1], 5) - 3 : -4] if good[4] & 0x20 else good[6:-4]
    size = struct.pack("<I", len(raw))
    named = b"\x28\xb5\x2f\xfd" + b"\xa5" + b"\x07" + size + block + good[-4:]
    yield "frame-with-dictionary", "corrupt", _with_frame(named)
    window = b"\x28\xb5\x2f\xfd" + b"\x84" + b"\x70" + size + block + good[-4:]
    yield "frame-window-of-16-mib", "corrupt", _with_frame(window)


def _bombs() -> _Found:
    zeros = _compressed(bytes(BOMB_BYTES))
    assert zeros[4] >> 6 == 2
    size = len(zeros)
    # The content size lies in four bytes behind descriptor and window; this one fits the block.
    lying = zeros[:6] + struct.pack("<I", size) + zeros[10:]
    yield "bomb-of-one-frame", "corrupt", _with_frame(lying, bytes(size))
    yield "bomb-that-states-its-size", "corrupt", _with_frame(zeros, bytes(size))
    line = Pieces().lines[1]
    raw = line[:-1] + b" " * (16 << 10) + b"}\n"
    many = _compressed(raw) + _compressed(bytes(16 * MIB)) * 16
    yield "bomb-of-many-frames", "corrupt", _with_frame(many, raw)
    body = _body(Pieces().page)
    yield "bomb-in-a-page", "corrupt", _with_page(encode_piece(TAG_PAGE, body[:28] + zeros))
    page = body[:24] + struct.pack("<I", size) + lying
    yield "bomb-in-a-page-that-lies", "corrupt", _with_page(encode_piece(TAG_PAGE, page))
    stated = body[:24] + struct.pack("<I", 2**32 - 1) + body[28:]
    yield "page-of-4-gib", "corrupt", _with_page(encode_piece(TAG_PAGE, stated))


def _lines() -> _Found:
    line = Pieces().lines[1]
    header = Pieces().headers[1]
    wrong = replace(header, crcs=(header.crcs[0] ^ 1,))
    yield "line-crc", "corrupt", _with_block(wrong, Pieces().frame(1))
    for name, raw in {
        "line-holds-cr": line[:-1] + b"\r}\n",
        "line-holds-lf": line[:-1] + b"\n}\n",
        "line-ended-by-cr": line + b"\r",
        "line-not-ended": line + b" ",
    }.items():
        yield name, "corrupt", _with_frame(_compressed(raw), raw)


def _with_page(page: bytes) -> bytes:
    pieces = Pieces()
    pieces.page = page
    return pieces.joined()


def _entries(change: Callable[[list[Entry]], list[Entry]], **changes: int) -> bytes:
    """A stream whose index is whole, but for its entries."""
    pieces = Pieces()
    page = Page.decode(pieces.page)
    made = replace(page, entries=tuple(change(list(page.entries))), **changes)
    pieces.page = made.encode(COMPRESSOR)
    index = Index.decode(pieces.index)
    row = index.pages[0]._replace(
        first_key=made.entries[0].key, size_bytes=len(pieces.page), records=len(made.entries)
    )
    moved = len(pieces.page) - index.pages[0].size_bytes
    section = index.sections[0]._replace(offset=index.sections[0].offset + moved)
    pieces.index = replace(index, pages=(row,), sections=(section,)).encode()
    return pieces.joined()


def _indexes() -> _Found:
    yield "page-keys-descend", "corrupt", _entries(lambda e: [e[1], e[0], e[2]])
    yield "page-key-twice", "corrupt", _entries(lambda e: [e[0], e[1]._replace(key="r1"), e[2]])
    yield "page-number-wrong", "corrupt", _entries(list, number=1)
    yield "page-entry-left-out", "corrupt", _entries(lambda e: e[:2])
    for name in ("ordinal", "block_offset", "block_length", "offset", "length"):
        spoilt = _entries(lambda e, name=name: [e[0], e[1]._replace(**{name: 2**40}), e[2]])
        yield f"page-entry-{name.replace('_', '-')}", "corrupt", spoilt
    yield (
        "page-key-too-long",
        "corrupt",
        _entries(lambda e: [e[0], e[1], e[2]._replace(key="r" * 1025)]),
    )
    body = _body(Pieces().page)
    none = encode_piece(TAG_PAGE, body[:20] + bytes(4) + body[24:])
    yield "page-of-no-entries", "corrupt", _with_page(none)
    raw = b"".join(entry.encode() for entry in Page.decode(Pieces().page).entries)
    for name, entries in {
        "page-bytes-behind": raw + b"\0",
        "page-key-not-utf8": raw.replace(b"r1", b"r\xff"),
        "page-key-empty": b"\0" + raw[3:],
    }.items():
        fixed = body[:24] + struct.pack("<I", len(entries))
        yield name, "corrupt", _with_page(encode_piece(TAG_PAGE, fixed + _compressed(entries)))
    yield from _directories()


def _directories() -> _Found:
    for name, offset, new in (
        ("digests-first-ordinal", 16, b"\x01"),
        ("digests-count", 24, b"\x04"),
        ("digests-count-2-32", 24, b"\xff" * 4),
        ("digests-wrong", 30, b"\0\0\0\0"),
    ):
        pieces = Pieces()
        pieces.digests = _changed(pieces.digests, TAG_DIGESTS, offset, new)
        yield name, "corrupt", pieces.joined()
    for name, offset, new in (
        ("index-records", 16, b"\x04"),
        ("index-blocks", 24, b"\x02"),
        ("index-raw-length", 32, b"\0"),
        ("index-content-digest", 40, b"\0\0\0\0"),
        ("index-of-2-32-pages", 72, b"\xff" * 4),
        ("index-of-2-32-sections", 76, b"\xff" * 4),
        ("index-first-key", 81, b"x"),
        ("index-page-offset", 83, b"\x7f"),
    ):
        pieces = Pieces()
        pieces.index = _changed(pieces.index, TAG_INDEX, offset, new)
        yield name, "corrupt", pieces.joined()
    pieces = Pieces()
    yield "end-index-offset", "corrupt", pieces.joined(index_offset=len(pieces.data) - 63)
    yield "end-file-length", "corrupt", pieces.joined(size_bytes=2**63)
    yield "end-records", "corrupt", pieces.joined(records=2)
    longer = encode_piece(TAG_END, _body(pieces.data[-64:]) + b"\0")
    yield "end-longer", "corrupt", pieces.data[:-64] + longer
