"""Every number that ``docs/format.md`` states: magics, tags, versions, limits.

Sizes are bytes, counts are plain integers.  All integers on the wire are
little-endian.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BLOCK_TARGET_BYTES",
    "CODEC_ZSTD",
    "CRC_BYTES",
    "DIGESTS_PER_SECTION",
    "DIGEST_BYTES",
    "EMPTY_ZSTD_FRAME",
    "FORMAT_MAJOR",
    "FORMAT_MINOR",
    "FORMAT_NAME",
    "MAX_ANNOTATION_BYTES",
    "MAX_BLOCK_RAW_BYTES",
    "MAX_BLOCK_RECORDS",
    "MAX_DEPTH",
    "MAX_DIRECTORY_BYTES",
    "MAX_HEAD_BYTES",
    "MAX_INLINE_DEPTH",
    "MAX_INTEGER_DIGITS",
    "MAX_KEY_BYTES",
    "MAX_LEVEL",
    "MAX_MANIFEST_BYTES",
    "MAX_NAME_CHARS",
    "MAX_PAGE_BYTES",
    "MAX_RECORD_BYTES",
    "MAX_WINDOW_BYTES",
    "MAX_WINDOW_LOG",
    "MIN_LEVEL",
    "OBJECT_TARGET_BYTES",
    "PAGE_ENTRIES",
    "SKIPPABLE_MAGIC",
    "STARRED_FROM",
    "TAG_BLOCK",
    "TAG_BYTES",
    "TAG_DIGESTS",
    "TAG_END",
    "TAG_HEAD",
    "TAG_INDEX",
    "TAG_PAGE",
    "TOKEN_BYTES",
    "UUID_BYTES",
    "ZSTD_MAGIC",
]

FORMAT_NAME: Final = "ckptfmt"
FORMAT_MAJOR: Final = 1
FORMAT_MINOR: Final = 0

# RFC 8878 section 3.1.2 gives sixteen magics for skippable frames; ours is the thirteenth.
SKIPPABLE_MAGIC: Final = 0x184D2A5C
ZSTD_MAGIC: Final = 0xFD2FB528
EMPTY_ZSTD_FRAME: Final = bytes.fromhex("28b52ffd240001000099e9d851")

TAG_BYTES: Final = 4
TAG_HEAD: Final = b"HEAD"
TAG_BLOCK: Final = b"BLCK"
TAG_PAGE: Final = b"PAGE"
TAG_DIGESTS: Final = b"DGST"
TAG_INDEX: Final = b"INDX"
TAG_END: Final = b"END."

CODEC_ZSTD: Final = 1
MAX_WINDOW_LOG: Final = 23
MAX_WINDOW_BYTES: Final = 1 << MAX_WINDOW_LOG
# Levels above 19 would ask for a window larger than that.
MIN_LEVEL: Final = -7
MAX_LEVEL: Final = 19

UUID_BYTES: Final = 16
# Random bits of an attempt's token, which stands in file names and manifests as hex.
TOKEN_BYTES: Final = 12
CRC_BYTES: Final = 4
DIGEST_BYTES: Final = 16

BLOCK_TARGET_BYTES: Final = 2 << 20
MAX_RECORD_BYTES: Final = 1 << 30
# A block of several records; one record larger than this has a block of its own.
MAX_BLOCK_RAW_BYTES: Final = 1 << 24
MAX_BLOCK_RECORDS: Final = 1 << 16
MAX_HEAD_BYTES: Final = 4096
# A participant that holds more goes on in a further data object.
OBJECT_TARGET_BYTES: Final = 4 << 30
PAGE_ENTRIES: Final = 1024
MAX_PAGE_BYTES: Final = 4 << 20
DIGESTS_PER_SECTION: Final = 1 << 16
MAX_DIRECTORY_BYTES: Final = 64 << 20
MAX_MANIFEST_BYTES: Final = 64 << 20

MAX_NAME_CHARS: Final = 128
MAX_KEY_BYTES: Final = 1024

MAX_DEPTH: Final = 500
MAX_INLINE_DEPTH: Final = 250
MAX_INTEGER_DIGITS: Final = 4300
STARRED_FROM: Final = 4
# Pointers repeat every key above them: text that a model wrote could make gigabytes of them.
MAX_ANNOTATION_BYTES: Final = 64 << 20
