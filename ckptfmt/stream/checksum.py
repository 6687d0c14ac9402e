"""The three checks of a record line: crc32c, record digest, content digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import google_crc32c
import msgspec

from ckptfmt.wire import DIGEST_BYTES

__all__ = ["LineChecks", "Piece", "content_rows", "crc32c", "line_checks", "record_digest"]

# What google_crc32c takes without a copy; it refuses memoryview.
Piece = bytes | msgspec.Raw

_LENGTH_BYTES: Final = 8


def crc32c(data: Piece, before: int = 0) -> int:
    """CRC-32C (RFC 3720 appendix B.4) of ``data``; ``before`` is the one of what precedes it."""
    return int(google_crc32c.extend(before, data))


def record_digest(line: bytes | memoryview) -> bytes:
    """The first 16 bytes of the SHA-256 of ``line`` (without LF)."""
    return hashlib.sha256(line).digest()[:DIGEST_BYTES]


class LineChecks(NamedTuple):
    """The crc32c and the record digest of a line."""

    crc: int
    digest: bytes


def line_checks(pieces: Iterable[Piece]) -> LineChecks:
    """The checks of a line that lies in pieces."""
    crc, digest = 0, hashlib.sha256()
    for piece in pieces:
        crc = crc32c(piece, crc)
        digest.update(piece)
    return LineChecks(crc, digest.digest()[:DIGEST_BYTES])


def content_rows(lengths: Sequence[int], digests: Sequence[bytes]) -> bytes:
    """What the content digest takes in: u64le(length of the line) || record digest of each.

    The content digest is the SHA-256 of the rows of all records in order.  It does not
    depend on how records are cut into blocks and objects, nor on how they are
    compressed: equal content compares equal.
    """
    return b"".join(
        length.to_bytes(_LENGTH_BYTES, "little") + digest
        for length, digest in zip(lengths, digests, strict=True)
    )
