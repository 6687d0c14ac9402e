"""Members that an object of JSON text names twice.

JSON permits them, and the text is kept as it came; but every reader that makes a dict
keeps the last one only, and most of them say nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ckptfmt.exact import pointer
from ckptfmt.exact.text import from_any_stack

__all__ = ["duplicate_members"]


def duplicate_members(text: bytes) -> Iterator[str]:
    """A pointer to each name that an object has more than once.

    ``text`` is JSON that is no deeper than the format permits.
    """
    root = from_any_stack(_split, text)
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), root)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Members):
            counts = Counter(name for name, _ in value.pairs)
            for name, number in counts.items():
                if number > 1:
                    yield pointer.join((*path, name))
            children = value.pairs
        elif isinstance(value, list):
            children = list(enumerate(value))
        else:
            continue
        nested = [item for item in children if isinstance(item[1], list | _Members)]
        waiting += [((*path, step), child) for step, child in reversed(nested)]


def _split(text: bytes) -> Any:
    return json.loads(text, object_pairs_hook=_Members, parse_int=len, parse_float=len)


class _Members:
    """An object with all that it holds, in the order of the text."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str | int, Any]]) -> None:
        self.pairs = pairs
