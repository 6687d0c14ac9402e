from __future__ import annotations

import hashlib

import msgspec

from ckptfmt.stream.checksum import content_rows, crc32c, line_checks, record_digest


def test_crc32c_is_the_one_of_rfc_3720() -> None:
    assert crc32c(b"\0" * 32) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


def test_a_line_in_pieces_has_the_checks_of_the_whole() -> None:
    line = b'{"a":[1,2,3]}'
    pieces = (line[:5], msgspec.Raw(line[5:9]), line[9:])
    assert line_checks(pieces) == (crc32c(line), record_digest(line))
    assert record_digest(line) == hashlib.sha256(line).digest()[:16]


def test_content_rows_are_length_and_digest() -> None:
    rows = content_rows([1, 258], [b"a" * 16, b"b" * 16])
    assert rows == b"\x01" + bytes(7) + b"a" * 16 + b"\x02\x01" + bytes(6) + b"b" * 16
