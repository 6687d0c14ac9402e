"""Cutting an append-only file into lines, at byte 0x0A and nowhere else.

No more than one line and one chunk is held, and a line beyond
:data:`~ckptfmt.ledger.limits.MAX_LINE_BYTES` is passed over, not held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ckptfmt.ledger.limits import MAX_LINE_BYTES

__all__ = ["Line", "lines"]

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline; ``text`` is None where it is too long to be held.

    ``offset`` and ``end`` are bytes from the start of the file; ``end`` includes the
    newline, which only the last line can lack (``is_ended``).
    """

    text: bytes | None
    offset: int
    end: int
    is_ended: bool = True

    @property
    def is_blank(self) -> bool:
        """Whether the line holds nothing, as some editors leave at the end of a file."""
        return self.text is not None and not self.text.strip()


def lines(read: Callable[[int, int], bytes], start: int, stop: int) -> Iterator[Line]:
    """The lines between two offsets; ``start`` begins a line.

    ``read(size, offset)`` gives fewer bytes than asked for only where the file ends.
    """
    held: list[bytes] = []
    offset = position = start
    while position < stop:
        chunk = read(min(_CHUNK_BYTES, stop - position), position)
        if not chunk:
            break
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            position += len(part) + 1
            yield Line(_joined(held, part, position - 1 - offset), offset, position)
            offset = position
            held = []
        position += len(rest)
        if position - offset > MAX_LINE_BYTES:
            held = []
        else:
            held.append(rest)
    if position > offset:
        yield Line(_joined(held, b"", position - offset), offset, position, is_ended=False)


def _joined(held: list[bytes], last: bytes, size_bytes: int) -> bytes | None:
    if size_bytes > MAX_LINE_BYTES:
        return None
    return b"".join((*held, last)) if held else last
