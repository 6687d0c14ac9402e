"""From strict JSON and its annotations back to the Python value.

Entries are applied in order, children before parents.  Anything that does not
fit is corrupt; nothing is guessed.  That a target is named twice shows in the
target itself: it is no longer what its tag asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec

from ckptfmt.errors import CorruptError, DepthError, JsonSyntaxError, RefusedError
from ckptfmt.exact import pointer
from ckptfmt.exact.annotations import STARRED, Tag, decode_runs
from ckptfmt.exact.encode import MAX_VALUE_DEPTH
from ckptfmt.exact.text import Buffer, check_json, decode_json, nesting_depth, on_fresh_stack

__all__ = ["restore", "verbatim"]

_REPLACEMENT: Final = "\ufffd"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def restore(text: Buffer, annotations: Buffer | None = None) -> Any:
    """The value that :func:`ckptfmt.exact.encode` was given, types and order included.

    Raises:
        CorruptError: text and annotations do not fit each other, with the pointer.
        DepthError: the interpreter's recursion limit is too low for the text.
    """
    try:
        return _restore(text, annotations)
    except RecursionError:
        # Deep keys of a dict are compared on the interpreter's stack.
        return on_fresh_stack(partial(_restore, annotations=annotations), bytes(text))


def _restore(text: Buffer, annotations: Buffer | None) -> Any:
    value = _decoded(text)
    if annotations is None:
        return value
    entries = _entries(annotations)
    if (own_text := _text_of(value, entries)) is not None:
        return _decoded(own_text)
    return _Restoration(value).apply(entries)


def verbatim(text: Buffer, annotations: Buffer | None) -> bytes | None:
    """The payload's own bytes, or None where annotations say more than the text does.

    Raises:
        CorruptError: the annotations are malformed, or the bytes are not JSON in UTF-8.
    """
    own: bytes | None = bytes(text)
    if annotations is not None:
        own = _text_of(_decoded(text), _entries(annotations))
    if own is not None:
        try:
            check_json(own)
        except RefusedError as error:
            raise CorruptError(f"a stored value is unreadable: {error.message}") from error
    return own


def _decoded(text: Buffer) -> Any:
    try:
        return decode_json(text)
    except JsonSyntaxError as error:
        raise CorruptError(f"a stored value is unreadable: {error.message}") from error
    except DepthError as error:
        if nesting_depth(bytes(text)) <= MAX_VALUE_DEPTH:
            raise
        raise CorruptError(f"a stored value is unreadable: {error.message}") from error


def _entries(annotations: Buffer) -> list[tuple[str, str, Any]]:
    try:
        entries = msgspec.json.decode(annotations)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptError("annotations are not a JSON list") from error
    if not isinstance(entries, list) or not entries:
        raise CorruptError("annotations are not a list of entries")
    return [_entry(entry) for entry in entries]


def _entry(entry: Any) -> tuple[str, str, Any]:
    if not isinstance(entry, list) or len(entry) not in (2, 3):
        raise CorruptError("an annotation is not [pointer, tag] or [pointer, tag, arg]")
    target, tag, *arg = entry
    if not isinstance(target, str) or not isinstance(tag, str):
        raise CorruptError("the pointer or tag of an annotation is not a string")
    wants_arg = tag == Tag.SURROGATES or tag in STARRED
    if not wants_arg and tag not in frozenset(Tag):
        raise CorruptError(f"unknown tag {tag[:40]!a}").at(pointer=target)
    if wants_arg != bool(arg):
        raise CorruptError(f"tag {tag} with {len(arg)} arguments").at(pointer=target)
    return target, tag, arg[0] if arg else None


def _text_of(value: Any, entries: list[tuple[str, str, Any]]) -> bytes | None:
    """The JSON text that a ``text`` entry says the value is; None without such an entry."""
    if all(tag != Tag.TEXT for _, tag, _ in entries):
        return None
    if len(entries) != 1 or entries[0][0] != "" or not isinstance(value, str):
        raise CorruptError("a text annotation does not stand alone on a string").at(pointer="")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise CorruptError("a text annotation stands on a lone surrogate") from error


class _Restoration:
    """A value on its way back, held in a list so that its root can be replaced too."""

    def __init__(self, value: Any) -> None:
        self._holder = [value]
        # Dicts made from pairs are done: nothing below them may be named any more.
        self._made: dict[int, Any] = {}

    def apply(self, entries: Iterable[tuple[str, str, Any]]) -> Any:
        for target, tag, arg in entries:
            try:
                parent, key = self._find(target)
                if tag in STARRED:
                    self._apply_starred(parent[key], STARRED[tag], arg)
                else:
                    parent[key] = self._replacement(parent[key], Tag(tag), arg)
            except (ValueError, LookupError, TypeError) as error:
                raise CorruptError(f"annotation {tag} does not fit: {error}").at(
                    pointer=target
                ) from error
        return self._holder[0]

    def _find(self, target: str) -> tuple[Any, Any]:
        parent: Any = self._holder
        key: Any = 0
        for token in pointer.split(target):
            parent = parent[key]
            if type(parent) is list:
                key = pointer.array_index(token)
            elif type(parent) is dict and id(parent) not in self._made:
                key = token
            else:
                raise ValueError("the pointer leads through a value that is no container")
        return parent, key

    def _apply_starred(self, array: Any, tag: Tag, runs: Any) -> None:
        if type(array) is not list:
            raise ValueError("the target is not an array")
        for run in decode_runs(runs, len(array)):
            for index in run:
                array[index] = self._replacement(array[index], tag, None)

    def _replacement(self, stored: Any, tag: Tag, arg: Any) -> Any:
        match tag:
            case Tag.NAN | Tag.INF | Tag.NEG_INF:
                if stored is not None:
                    raise ValueError("the target is not null")
                return float(tag)
            case Tag.TUPLE:
                if type(stored) is not list:
                    raise ValueError("the target is not an array")
                return tuple(stored)
            case Tag.MAP:
                return self._map(stored)
            case _:
                return _with_surrogates(stored, arg)

    def _map(self, pairs: Any) -> dict[Any, Any]:
        if type(pairs) is not list or not all(
            type(pair) is list and len(pair) == 2 for pair in pairs
        ):
            raise ValueError("the target is not an array of pairs")
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("two of the keys are equal")
        self._made[id(made)] = made
        return made


def _with_surrogates(stored: Any, codes: Any) -> str:
    if not isinstance(stored, str) or _SURROGATE.search(stored):
        raise ValueError("the target is not a plain string")
    if not isinstance(codes, list) or not codes or len(codes) % 2:
        raise ValueError("the argument is not pairs of an index and a code")
    characters = list(stored)
    last = -1
    for index, code in zip(codes[::2], codes[1::2], strict=True):
        if type(index) is not int or type(code) is not int or index <= last:
            raise ValueError("indexes and codes are not ascending integers")
        if not 0xD800 <= code <= 0xDFFF or characters[index] != _REPLACEMENT:
            raise ValueError("no surrogate belongs there")
        characters[index] = chr(code)
        last = index
    return "".join(characters)
