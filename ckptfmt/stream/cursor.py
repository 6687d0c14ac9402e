"""Integers and byte strings taken from a piece, never past its end."""

from __future__ import annotations

from struct import Struct
from typing import Final

from ckptfmt.errors import CorruptError

__all__ = ["MAX_VARINT_BYTES", "Cursor", "read_varint", "varint"]

MAX_VARINT_BYTES: Final = 10
_U64_END: Final = 1 << 64


def varint(value: int) -> bytes:
    """``value`` (0 .. 2**64-1) as unsigned LEB128 in its shortest form."""
    if value < 0x80:
        return value.to_bytes(1, "little")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at ``data[at]`` and the position after it.

    Raises:
        CorruptError: it is cut off, longer than it need be, or over 64 bits.
    """
    value = shift = 0
    for position in range(at, min(at + MAX_VARINT_BYTES, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if (byte == 0 and shift) or value >= _U64_END:
                raise CorruptError(f"a varint is not in its shortest 64-bit form (byte {at})")
            return value, position + 1
        shift += 7
    raise CorruptError(f"a varint does not end (byte {at} of {len(data)})")


class Cursor:
    """Reads ``data`` front to back; ``what`` names the piece in errors.

    Every method raises :class:`CorruptError` where the data does not suffice.
    """

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    def take(self, size_bytes: int) -> bytes:
        """The next ``size_bytes`` bytes."""
        start, end = self._at, self._at + size_bytes
        if end > len(self._data):
            raise CorruptError(
                f"{self._what} has {len(self._data)} bytes, and a field of it needs {end}"
            )
        self._at = end
        return self._data[start:end]

    def fields(self, layout: Struct) -> tuple[int, ...]:
        """The integers of ``layout``."""
        return layout.unpack(self.take(layout.size))

    def varint(self) -> int:
        """The next varint."""
        value, self._at = read_varint(self._data, self._at)
        return value

    def text(self, max_bytes: int) -> str:
        """A varint, 1 to ``max_bytes``, and as many bytes of UTF-8."""
        length = self.varint()
        if not 1 <= length <= max_bytes:
            raise CorruptError(f"a text of {length} bytes in {self._what}, not 1 to {max_bytes}")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptError(f"a text in {self._what} is not UTF-8") from error

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            raise CorruptError(
                f"{self._what} has {len(self._data)} bytes, and its fields end at {self._at}"
            )
