"""One value of a record whose line is too long to be held, in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ckptfmt.errors import CorruptError
from ckptfmt.exact.skim import Path, Skim
from ckptfmt.outline import outline
from ckptfmt.stream import LongLine
from inspector.value import is_text

__all__ = ["long_value"]

_Pieces = Callable[[], Iterator[bytes]]
# What a string holds up to an escape, or a pair of them, that the border of a piece cuts.
_WHOLE_ESCAPES: Final = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....)*+", re.DOTALL
)


def long_value(line: LongLine, tokens: Sequence[str]) -> Iterator[bytes] | None:
    """The stored text of the value at a pointer; None if there is none.

    It is the one that :func:`inspector.value.find_value` gives.

    Raises:
        CorruptError: annotations do not fit the line.
    """
    if not tokens:
        return line.pieces()
    if not is_text(outline(line), tokens[0]):
        return _at(line.pieces, tokens)
    if _at(line.pieces, tokens[:1]) is None:
        return None

    def own() -> Iterator[bytes]:
        string = _at(line.pieces, tokens[:1])
        assert string is not None
        return _unescaped(string)

    return _at(own, tokens[1:])


def _at(pieces: _Pieces, tokens: Sequence[str]) -> Iterator[bytes] | None:
    found: tuple[int, int] | None = None

    def is_on_the_way(path: Path) -> bool:
        return all(str(step) == token for step, token in zip(path, tokens, strict=False))

    def tell(path: Path, begin: int, end: int) -> None:
        nonlocal found
        if not is_on_the_way(path):
            return
        if len(path) == len(tokens):
            found = begin, end
        elif found is not None and found[0] < begin:
            # Of duplicate members the last is meant, and this one has no such value.
            found = None

    judge = Skim(lambda path: len(path) < len(tokens) and is_on_the_way(path), tell)
    for piece in pieces():
        judge.feed(piece)
    judge.end()
    return None if found is None else _cut(pieces(), *found)


def _cut(pieces: Iterator[bytes], begin: int, end: int) -> Iterator[bytes]:
    at = 0
    for piece in pieces:
        if at >= end:
            return
        if part := piece[max(begin - at, 0) : max(end - at, 0)]:
            yield part
        at += len(piece)


def _unescaped(string: Iterator[bytes]) -> Iterator[bytes]:
    """The text of a JSON string that comes in pieces, cut between characters."""
    rest, is_first = b"", True
    for piece in string:
        if is_first and piece[:1] != b'"':
            raise CorruptError("a text annotation does not stand on a string")
        rest += piece[is_first:]
        is_first = False
        match = _WHOLE_ESCAPES.match(rest[:-1] if rest.endswith(b'"') else rest)
        assert match is not None
        yield _plain(match[0])
        rest = rest[match.end() :]
    yield _plain(rest[:-1])


def _plain(escaped: bytes) -> bytes:
    text: str = json.loads(b'"%b"' % escaped)
    return text.encode(errors="surrogatepass")
