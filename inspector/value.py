"""One value of a record: its stored text, and what JSON cannot spell of it.

The tagged form of a value is that of the format itself (``$exact``): strict JSON, and
beside it a list of ``[pointer, tag]`` and ``[pointer, tag, arg]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ckptfmt.errors import CorruptError, DepthError, JsonSyntaxError
from ckptfmt.exact import pointer
from ckptfmt.exact.annotations import STARRED, Tag, decode_runs
from ckptfmt.payload import JsonPayload
from ckptfmt.record import EXACT
from inspector.json_text import Span, children, find, find_span, replace_nulls

__all__ = ["StoredValue", "find_value", "is_text"]

_SPELLINGS: Final[dict[str, bytes]] = {
    Tag.NAN: b"NaN",
    Tag.INF: b"Infinity",
    Tag.NEG_INF: b"-Infinity",
}
_TEXT: Final = [["", Tag.TEXT]]

_Entry = list[Any]


@dataclass(frozen=True, slots=True)
class StoredValue:
    """``text`` is JSON as it is stored, or as it was given where the format keeps it whole.

    ``exact`` are the annotations below the value, their pointers relative to it.
    """

    text: bytes | memoryview
    exact: tuple[_Entry, ...] = ()

    def payload(self) -> JsonPayload:
        """The value in its strict form, which fits into a line of JSON.

        Raises:
            CorruptError: text that was kept whole is no JSON.
        """
        if self.exact:
            return JsonPayload.stored(
                bytes(self.text), json.dumps(self.exact, separators=(",", ":")).encode()
            )
        try:
            return JsonPayload.from_json(self.text)
        except (JsonSyntaxError, DepthError) as error:
            raise CorruptError(f"a stored value is unreadable: {error.message}") from error

    def python_text(self) -> bytes | memoryview:
        """JSON with NaN, Infinity and -Infinity spelt, as Python's ``json`` spells them.

        Raises:
            CorruptError: annotations are malformed.
        """
        try:
            spellings = dict(self._specials())
        except ValueError as error:
            raise CorruptError(f"annotations are malformed: {error}") from error
        return replace_nulls(bytes(self.text), spellings) if spellings else self.text

    def beyond_json(self) -> list[str]:
        """The tags that :meth:`python_text` does not show."""
        tags = {STARRED.get(tag, tag) for _, tag, *_ in self.exact}
        return sorted(str(tag) for tag in tags if tag not in _SPELLINGS)

    def _specials(self) -> Iterator[tuple[tuple[str, ...], bytes]]:
        for target, tag, *arg in self.exact:
            spelling = _SPELLINGS.get(str(STARRED.get(tag, tag)))
            if spelling is None:
                continue
            path = tuple(pointer.split(target))
            if tag not in STARRED:
                yield path, spelling
                continue
            for run in decode_runs(arg[0], len(self.text)):
                for index in run:
                    yield (*path, str(index)), spelling


def find_value(line: bytes, tokens: Sequence[str]) -> StoredValue | None:
    """The value at a pointer into a record's line; None if there is none.

    Raises:
        CorruptError: annotations do not fit the line.
    """
    if not tokens:
        return StoredValue(line)
    members = dict(children(line, 0))
    span = members.get(tokens[0])
    if span is None:
        return None
    entries = _entries(line, members.get(EXACT), tokens[0])
    if entries == _TEXT:
        own = find(_own_text(line[slice(*span)]), tokens[1:])
        return None if own is None else StoredValue(own)
    found = find_span(line, tokens[1:], span)
    if found is None:
        return None
    # Not copied: it may be nearly all of a line that is a large part of the memory.
    return StoredValue(memoryview(line)[slice(*found)], tuple(_below(entries, tokens[1:])))


def is_text(line: bytes, member: str) -> bool:
    """Whether a member of a record's line is JSON text that is kept whole, as a string.

    Raises:
        CorruptError: its annotations are malformed.
    """
    exact = dict(children(line, 0)).get(EXACT)
    return _entries(line, exact, member) == _TEXT


def _entries(line: bytes, exact: Span | None, member: str) -> list[_Entry]:
    """The annotations of a member; ``exact`` is the place of all annotations."""
    span = None if exact is None else find_span(line, [member], exact)
    if span is None:
        return []
    entries = _decoded(line[slice(*span)])
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise CorruptError("annotations are malformed").at(pointer=pointer.join([EXACT, member]))
    return entries


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) not in (2, 3):
        return False
    target, tag = entry[:2]
    if not isinstance(target, str) or not isinstance(tag, str):
        return False
    try:
        pointer.split(target)
    except ValueError:
        return False
    wants_arg = tag in STARRED or tag == Tag.SURROGATES
    return (tag in STARRED or tag in frozenset(Tag)) and wants_arg == (len(entry) == 3)


def _own_text(text: bytes) -> bytes:
    own = _decoded(text)
    if not isinstance(own, str):
        raise CorruptError("a text annotation does not stand on a string")
    return own.encode(errors="surrogatepass")


def _decoded(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"annotations are malformed: {error}") from error


def _below(entries: list[_Entry], tokens: Sequence[str]) -> Iterator[_Entry]:
    """The entries for a value and what is in it, as seen from there."""
    base = pointer.join(tokens)
    for target, tag, *arg in entries:
        if target == base or target.startswith(base + "/"):
            yield [target[len(base) :], tag, *arg]
        elif (
            tag in STARRED
            and tokens
            and target == pointer.join(tokens[:-1])
            and _is_in_runs(arg[0], tokens[-1])
        ):
            yield ["", STARRED[tag]]


def _is_in_runs(runs: object, token: str) -> bool:
    try:
        index = pointer.array_index(token)
        return any(index in run for run in decode_runs(runs, index + (1 << 40)))
    except ValueError as error:
        raise CorruptError(f"annotations are malformed: {error}") from error
