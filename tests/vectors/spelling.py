"""Values spelled so that nothing is lost: what an ``expected.json`` says that a value is."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator

__all__ = ["spell"]

_LONE = re.compile("[\ud800-\udfff]")


def spell(value: object) -> str:
    """``value`` as text that tells types, order and bits apart.

    Integers in decimal, floats as ``0x`` and the 16 hex digits of their IEEE 754 bits or
    ``nan``, text as ASCII JSON or, with a lone surrogate in it, as ``u[code points]``; lists in
    brackets, tuples in parentheses, dicts in braces in their order.
    """
    return "".join(_parts(value))


def _parts(value: object) -> Iterator[str]:
    # No recursion: values are as deep as a record permits.
    waiting: list[object] = [value]
    while waiting:
        value = waiting.pop()
        match value:
            case _Mark(mark):
                yield mark
            case dict():
                items = [
                    part for item in value.items() for part in (item[0], _COLON, item[1], _COMMA)
                ]
                waiting += [_Mark("}"), *reversed(items[:-1])]
                yield "{"
            case list() | tuple():
                opening, closing = "[]" if isinstance(value, list) else "()"
                items = [part for item in value for part in (item, _COMMA)]
                waiting += [_Mark(closing), *reversed(items[:-1])]
                yield opening
            case _:
                yield _scalar(value)


class _Mark:
    __match_args__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_COMMA, _COLON = _Mark(","), _Mark(":")


def _scalar(value: object) -> str:
    if isinstance(value, float):
        # The sign and payload of a NaN are no part of what is promised.
        return "nan" if value != value else f"0x{struct.pack('>d', value).hex()}"
    if isinstance(value, str) and _LONE.search(value):
        return f"u{json.dumps(list(map(ord, value)), separators=(',', ':'))}"
    assert value is None or isinstance(value, (bool, int, str)), f"{type(value)} has no spelling"
    return json.dumps(value)
