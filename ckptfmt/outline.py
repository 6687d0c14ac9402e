"""A long record line without what is long in it, which is judged and read in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from sys import maxsize
from typing import Final

from ckptfmt.errors import CorruptError, DepthError, JsonSyntaxError, SizeError
from ckptfmt.exact.skim import Path, Skim
from ckptfmt.record import EXACT
from ckptfmt.stream import LongLine

__all__ = ["outline", "skim"]

# Longer than any member that a record is read for: an episode's id, a key, a digest.
_KEPT_BYTES: Final = 16 << 10
_MAX_OUTLINE_BYTES: Final = 4 << 20
# What tells an object that is stored as a list of pairs.
_MAP_ENTRY: Final = b'["","map"]]'
_STRING_START: Final = re.compile(rb'"(?:[^"\\]|\\u.{4}|\\[^u])*+', re.DOTALL)

_Span = tuple[int, int]


def outline(line: LongLine) -> bytes:
    """The line with short stand-ins of the same type for its long members.

    It is a record line exactly if ``line`` is one, and of the same key and schema.

    Raises:
        CorruptError: ``line`` is no JSON text in UTF-8.
        SizeError: it has so many members that even this would be long.
    """
    spans: list[_Span] = []
    left_out = 0

    def tell(path: Path, begin: int, end: int) -> None:
        nonlocal left_out
        if end - begin > _KEPT_BYTES and path not in ((), (EXACT,)):
            spans.append((begin, end))
            left_out += end - begin
        if path and end - left_out > _MAX_OUTLINE_BYTES:
            raise SizeError(
                f"a record of {line.size_bytes:,} bytes with more short members than can be held"
            )

    skim(line, Skim(lambda path: path in ((), (EXACT,)), tell))
    return _assembled(line.pieces(), spans)


def skim(line: LongLine, judge: Skim) -> None:
    """Let ``judge`` take the whole line.

    Raises:
        CorruptError: it is no JSON text in UTF-8.
    """
    try:
        for piece in line.pieces():
            piece.decode()
            judge.feed(piece)
        judge.end()
    except UnicodeDecodeError as error:
        raise CorruptError(f"the record line is not UTF-8: {error.reason}") from error
    except (JsonSyntaxError, DepthError) as error:
        raise CorruptError(
            f"a record is not a JSON object: {error.message} (byte {error.location.offset})"
        ) from error


def _assembled(pieces: Iterable[bytes], spans: list[_Span]) -> bytes:
    out = bytearray()
    head = tail = b""
    for part, is_long, is_last in _parts(pieces, spans):
        if not is_long:
            out += part
            continue
        head += part[: _KEPT_BYTES - len(head)]
        tail = (tail + part)[-len(_MAP_ENTRY) :]
        if is_last:
            out += _stand_in(head, tail)
            head = tail = b""
    return bytes(out)


def _parts(pieces: Iterable[bytes], spans: list[_Span]) -> Iterator[tuple[bytes, bool, bool]]:
    """The text in parts; of each whether it is in a span, and whether it ends one."""
    waiting = iter([*spans, (maxsize, maxsize)])
    begin, end = next(waiting)
    at = 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            is_long = at + start >= begin
            stop = min(len(piece), (end if is_long else begin) - at)
            is_last = at + stop == end
            yield piece[start:stop], is_long, is_last
            if is_last:
                begin, end = next(waiting)
            start = stop
        at += len(piece)


def _stand_in(head: bytes, tail: bytes) -> bytes:
    match head[:1]:
        case b'"':
            # Its beginning, since a payload that is kept as a string is told by it.
            string = _STRING_START.match(head)
            assert string is not None
            return string[0].decode(errors="ignore").encode() + b'"'
        case b"{":
            return b"{}"
        case b"[":
            return b"[" + _MAP_ENTRY if tail == _MAP_ENTRY else b"[]"
        case _:
            return b"0"
