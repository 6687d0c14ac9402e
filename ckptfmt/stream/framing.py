"""Bytes of the pieces: the envelope of all, and HEAD, BLCK and END.  No I/O.

A piece is one zstd skippable frame: u32 magic, u32 content size, content; the
content is a 4-byte tag, the body, and u32 crc32c over tag and body.  The crc is
checked before anything of the body is looked at, and the content size against
the bound of its tag before the content is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from ckptfmt.errors import CorruptError, NameRefusedError, UnsupportedError
from ckptfmt.identity import check_name
from ckptfmt.stream.checksum import crc32c
from ckptfmt.stream.cursor import Cursor, varint
from ckptfmt.wire import (
    CODEC_ZSTD,
    CRC_BYTES,
    DIGEST_BYTES,
    DIGESTS_PER_SECTION,
    EMPTY_ZSTD_FRAME,
    FORMAT_MAJOR,
    FORMAT_MINOR,
    MAX_BLOCK_RAW_BYTES,
    MAX_BLOCK_RECORDS,
    MAX_DIRECTORY_BYTES,
    MAX_HEAD_BYTES,
    MAX_PAGE_BYTES,
    MAX_RECORD_BYTES,
    MAX_WINDOW_LOG,
    SKIPPABLE_MAGIC,
    TAG_BLOCK,
    TAG_BYTES,
    TAG_DIGESTS,
    TAG_END,
    TAG_HEAD,
    TAG_INDEX,
    TAG_PAGE,
)

__all__ = [
    "END_BYTES",
    "PREFIX_BYTES",
    "BlockHeader",
    "End",
    "Head",
    "Prefix",
    "compress_bound",
    "encode_piece",
    "open_piece",
]

_PREFIX: Final = Struct("<II4s")
_CRC: Final = Struct("<I")
_HEAD: Final = Struct("<HH16sBBbB")
_HEAD_VERSION: Final = Struct("<HH")
_BLOCK: Final = Struct("<16sIQIQQ")
_END: Final = Struct("<16sQQQQ")

PREFIX_BYTES: Final = _PREFIX.size
_OUTSIDE_CONTENT: Final = PREFIX_BYTES - TAG_BYTES
_AROUND_BODY: Final = PREFIX_BYTES + CRC_BYTES
END_BYTES: Final = _AROUND_BODY + _END.size

# A varint of at most MAX_RECORD_BYTES takes five bytes.
_RECORD_ROW_BYTES: Final = 5 + CRC_BYTES
# RFC 8878 section 3.1.1.2: a zstd block takes four bytes or more and holds 128 KiB or less.
_MIN_ZSTD_BLOCK_BYTES: Final = 4
_MAX_ZSTD_BLOCK_RAW_BYTES: Final = 128 << 10


def compress_bound(raw_bytes: int) -> int:
    """The largest zstd frame of ``raw_bytes`` (``ZSTD_COMPRESSBOUND`` of ``zstd.h``)."""
    return raw_bytes + (raw_bytes >> 8) + (max(_MAX_ZSTD_BLOCK_RAW_BYTES - raw_bytes, 0) >> 11)


_MAX_BODY_BYTES: Final = {
    TAG_HEAD: MAX_HEAD_BYTES,
    TAG_BLOCK: _BLOCK.size + MAX_BLOCK_RECORDS * _RECORD_ROW_BYTES,
    TAG_PAGE: 64 + compress_bound(MAX_PAGE_BYTES),
    TAG_DIGESTS: 64 + DIGESTS_PER_SECTION * DIGEST_BYTES,
    TAG_INDEX: MAX_DIRECTORY_BYTES,
    TAG_END: _END.size,
}
_MIN_BODY_BYTES: Final = {TAG_END: _END.size}


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first 12 bytes of a piece: enough to know how long it is.

    ``size_bytes`` is that of the whole piece.
    """

    tag: bytes
    size_bytes: int

    @classmethod
    def decode(cls, data: bytes) -> Prefix:
        """Judge the first bytes of a piece.

        Raises:
            CorruptError: they do not begin a piece, or announce more than its tag permits.
        """
        if len(data) < PREFIX_BYTES:
            raise CorruptError(f"{len(data)} bytes are too few to begin a piece")
        magic, content_bytes, tag = _PREFIX.unpack(data)
        if magic != SKIPPABLE_MAGIC or tag not in _MAX_BODY_BYTES:
            raise CorruptError(f"no piece of a stream begins here: {data.hex(' ')}")
        body_bytes = content_bytes - TAG_BYTES - CRC_BYTES
        if not _MIN_BODY_BYTES.get(tag, 0) <= body_bytes <= _MAX_BODY_BYTES[tag]:
            raise CorruptError(
                f"{_shown(tag)} announces a body of {body_bytes} bytes; "
                f"{_MIN_BODY_BYTES.get(tag, 0)} to {_MAX_BODY_BYTES[tag]} are permitted"
            )
        return cls(tag, _OUTSIDE_CONTENT + content_bytes)


def _shown(tag: bytes) -> str:
    return tag.decode("ascii")


def encode_piece(tag: bytes, body: bytes) -> bytes:
    """``body`` in its envelope."""
    content = tag + body
    size = len(content) + CRC_BYTES
    return b"".join(
        (
            SKIPPABLE_MAGIC.to_bytes(4, "little"),
            size.to_bytes(4, "little"),
            content,
            _CRC.pack(crc32c(content)),
        )
    )


def open_piece(piece: bytes, tag: bytes) -> bytes:
    """The body of ``piece``, which has to be a whole piece of that tag.

    Raises:
        CorruptError: it is not, or its crc32c disagrees.
    """
    prefix = Prefix.decode(piece[:PREFIX_BYTES])
    if prefix.tag != tag:
        raise CorruptError(f"{_shown(prefix.tag)} stands where {_shown(tag)} belongs")
    if prefix.size_bytes != len(piece):
        raise CorruptError(f"{_shown(tag)} has {prefix.size_bytes} bytes instead of {len(piece)}")
    (stated,) = _CRC.unpack(piece[-CRC_BYTES:])
    found = crc32c(piece[_OUTSIDE_CONTENT:-CRC_BYTES])
    if found != stated:
        raise CorruptError(f"crc32c of {_shown(tag)} is {found:08x} instead of {stated:08x}")
    return piece[PREFIX_BYTES:-CRC_BYTES]


@dataclass(frozen=True, slots=True)
class Head:
    """HEAD: versions, the identity of the stream, codec parameters, whose it is.

    ``uuid`` is new for every stream and stands in each of its pieces.
    ``window_log`` bounds the window of every zstd frame of the stream;
    ``level`` is information only.
    """

    uuid: bytes
    kind: str
    instance: str
    checkpoint_id: str
    level: int
    window_log: int = MAX_WINDOW_LOG
    major: int = FORMAT_MAJOR
    minor: int = FORMAT_MINOR

    def encode(self) -> bytes:
        """The piece."""
        fixed = _HEAD.pack(
            self.major, self.minor, self.uuid, CODEC_ZSTD, self.window_log, self.level, 0
        )
        names = (self.kind, self.instance, self.checkpoint_id)
        texts = [bytes((len(name),)) + name.encode("ascii") for name in names]
        return encode_piece(TAG_HEAD, fixed + b"".join(texts))

    @classmethod
    def decode(cls, piece: bytes) -> Head:
        """Read the piece.

        Raises:
            CorruptError: it is damaged or malformed.
            UnsupportedError: a later major version, another codec, or a larger window.
        """
        body = open_piece(piece, TAG_HEAD)
        major, minor = Cursor(body, "HEAD").fields(_HEAD_VERSION)
        # Whatever follows may mean something else in another major version.
        if major != FORMAT_MAJOR:
            raise UnsupportedError(
                f"the stream has format major {major}, and this release reads {FORMAT_MAJOR}"
            )
        cursor = Cursor(body, "HEAD")
        _, _, uuid, codec, window_log, level, reserved = _HEAD.unpack(cursor.take(_HEAD.size))
        if codec != CODEC_ZSTD:
            raise UnsupportedError(f"codec {codec} is not zstd ({CODEC_ZSTD})")
        if window_log > MAX_WINDOW_LOG:
            raise UnsupportedError(f"window log {window_log} is over the limit of {MAX_WINDOW_LOG}")
        if reserved:
            raise CorruptError(f"the reserved byte of HEAD is {reserved} instead of 0")
        kind, instance, checkpoint_id = (
            _name(cursor, what) for what in ("kind", "instance", "checkpoint id")
        )
        if minor <= FORMAT_MINOR:
            cursor.end()
        return cls(uuid, kind, instance, checkpoint_id, level, window_log, major, minor)


def _name(cursor: Cursor, what: str) -> str:
    text = cursor.take(cursor.take(1)[0]).decode("latin-1")
    try:
        return check_name(text, what)
    except NameRefusedError as error:
        raise CorruptError(f"HEAD: {error.message}") from error


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """BLCK: what the zstd frame right behind it holds.

    ``lengths`` are those of the lines without LF; ``raw_bytes`` counts the lines
    with LF, ``stored_bytes`` the zstd frame.
    """

    uuid: bytes
    number: int
    first_ordinal: int
    raw_bytes: int
    stored_bytes: int
    lengths: tuple[int, ...]
    crcs: tuple[int, ...]

    @property
    def next_ordinal(self) -> int:
        """The ordinal of the first record after this block."""
        return self.first_ordinal + len(self.lengths)

    def encode(self) -> bytes:
        """The piece."""
        parts = [
            _BLOCK.pack(
                self.uuid,
                self.number,
                self.first_ordinal,
                len(self.lengths),
                self.raw_bytes,
                self.stored_bytes,
            )
        ]
        for length, crc in zip(self.lengths, self.crcs, strict=True):
            parts += varint(length), _CRC.pack(crc)
        return encode_piece(TAG_BLOCK, b"".join(parts))

    @classmethod
    def decode(cls, piece: bytes) -> BlockHeader:
        """Read the piece and check that its sizes agree and are within the limits.

        Raises:
            CorruptError: it is damaged or malformed.
        """
        cursor = Cursor(open_piece(piece, TAG_BLOCK), "BLCK")
        uuid, number, first_ordinal, count, raw_bytes, stored_bytes = _BLOCK.unpack(
            cursor.take(_BLOCK.size)
        )
        if not 1 <= count <= MAX_BLOCK_RECORDS:
            raise CorruptError(
                f"a block of {count} records; 1 to {MAX_BLOCK_RECORDS} are permitted"
            )
        lengths, crcs = [], []
        for _ in range(count):
            lengths.append(cursor.varint())
            crcs.append(cursor.fields(_CRC)[0])
        cursor.end()
        header = cls(
            uuid, number, first_ordinal, raw_bytes, stored_bytes, tuple(lengths), tuple(crcs)
        )
        header._check_sizes()
        return header

    def _check_sizes(self) -> None:
        count = len(self.lengths)
        if min(self.lengths) == 0:
            raise CorruptError("a record line of 0 bytes")
        if sum(self.lengths) + count != self.raw_bytes:
            raise CorruptError(
                f"lines of {sum(self.lengths) + count} bytes in a block of {self.raw_bytes}"
            )
        limit = MAX_RECORD_BYTES + 1 if count == 1 else MAX_BLOCK_RAW_BYTES
        if self.raw_bytes > limit:
            raise CorruptError(
                f"a block of {self.raw_bytes} bytes in {count} records; the limit is {limit}"
            )
        bound = compress_bound(self.raw_bytes)
        if not len(EMPTY_ZSTD_FRAME) <= self.stored_bytes <= bound:
            raise CorruptError(
                f"a zstd frame of {self.stored_bytes} bytes for {self.raw_bytes}; "
                f"{len(EMPTY_ZSTD_FRAME)} to {bound} are possible"
            )
        if self.raw_bytes > self.stored_bytes // _MIN_ZSTD_BLOCK_BYTES * _MAX_ZSTD_BLOCK_RAW_BYTES:
            raise CorruptError(
                f"a zstd frame of {self.stored_bytes} bytes cannot hold {self.raw_bytes} bytes"
            )


@dataclass(frozen=True, slots=True)
class End:
    """END: the last piece, of constant size; where the index lies and how long the file is."""

    uuid: bytes
    index_offset: int
    index_length: int
    size_bytes: int
    records: int

    def encode(self) -> bytes:
        """The piece."""
        body = _END.pack(
            self.uuid, self.index_offset, self.index_length, self.size_bytes, self.records
        )
        return encode_piece(TAG_END, body)

    @classmethod
    def decode(cls, piece: bytes) -> End:
        """Read the piece.

        Raises:
            CorruptError: it is damaged, or INDX does not end where END begins.
        """
        end = cls(*_END.unpack(open_piece(piece, TAG_END)))
        if end.index_offset + end.index_length + END_BYTES != end.size_bytes:
            raise CorruptError(
                f"INDX ends at {end.index_offset + end.index_length}, and END begins at "
                f"{end.size_bytes - END_BYTES}"
            )
        return end
