"""Stored JSON text by pointer: values are cut out of it, and never decoded and spelled anew.

So digits, white space, escapes and duplicate members stay what they are.  The text is
known to be JSON; nothing here recurses, so depth does not matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

__all__ = ["Span", "children", "find", "find_span", "replace_nulls"]

_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]', re.DOTALL)
_MARK_OR_NULL: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]|null', re.DOTALL)
_WHITE: Final = b" \t\r\n"
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")

Span: TypeAlias = tuple[int, int]
"""Begin and end in a text."""


def find(text: bytes, tokens: Sequence[str]) -> bytes | None:
    """The text of the value that the pointer's tokens name; None if there is none.

    The last of duplicate members is meant, as for every reader that makes a dict.
    """
    span = find_span(text, tokens, (0, len(text)))
    return None if span is None else text[slice(*span)]


def find_span(text: bytes, tokens: Sequence[str], within: Span) -> Span | None:
    """As :func:`find`, below the value that stands ``within``; nothing is copied."""
    begin, end = _trimmed(text, *within)
    for token in tokens:
        if text[begin : begin + 1] == b"{":
            spans = [span for name, span in children(text, begin) if name == token]
        elif text[begin : begin + 1] == b"[" and _INDEX.fullmatch(token):
            wanted = int(token)
            spans = [span for name, span in _up_to(children(text, begin), wanted) if name == wanted]
        else:
            return None
        if not spans:
            return None
        begin, end = spans[-1]
    return begin, end


def _up_to(found: Iterator[tuple[str | int, Span]], index: int) -> Iterator[tuple[str | int, Span]]:
    for name, span in found:
        yield name, span
        if name == index:
            return


def children(text: bytes, begin: int) -> Iterator[tuple[str | int, Span]]:
    """Name or index, and place in ``text``, of each child of the container at ``begin``."""
    depth = 0
    in_object = text[begin : begin + 1] == b"{"
    name: str | int = 0
    index = 0
    start = begin + 1
    label: Span | None = None
    for match in _MARK.finditer(text, begin):
        # Not cut from the match, which copies a string of any length.
        mark = text[match.start() : match.start() + 1]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
            if depth == 0:
                span = _trimmed(text, start, match.start())
                if span[0] < span[1]:
                    yield (name if in_object else index), span
                return
        elif depth > 1:
            continue
        elif mark == b",":
            yield (name if in_object else index), _trimmed(text, start, match.start())
            start, label, index = match.end(), None, index + 1
        elif mark == b":":
            assert label is not None
            name, start = json.loads(text[slice(*label)]), match.end()
        elif label is None:
            label = match.span()


def _trimmed(text: bytes, start: int, end: int) -> Span:
    while start < end and text[start] in _WHITE:
        start += 1
    while start < end and text[end - 1] in _WHITE:
        end -= 1
    return start, end


def replace_nulls(text: bytes, spellings: Mapping[tuple[str, ...], bytes]) -> bytes:
    """``text`` with other spellings for the nulls at the places that pointer tokens name."""
    pieces: list[bytes] = []
    copied = 0
    path: list[str] = []
    indexes: list[int | None] = []
    awaiting_name = False
    for match in _MARK_OR_NULL.finditer(text):
        mark = match[0]
        if mark in b"[{":
            awaiting_name = mark == b"{"
            indexes.append(None if awaiting_name else 0)
            path.append("0")
        elif mark in b"]}":
            indexes.pop()
            path.pop()
        elif mark == b",":
            index = indexes[-1]
            awaiting_name = index is None
            if index is not None:
                indexes[-1] = index + 1
                path[-1] = str(index + 1)
        elif mark == b"null":
            if (spelling := spellings.get(tuple(path))) is not None:
                pieces += (text[copied : match.start()], spelling)
                copied = match.end()
        elif awaiting_name and mark != b":":
            path[-1] = json.loads(mark)
            awaiting_name = False
    return b"".join((*pieces, text[copied:]))
