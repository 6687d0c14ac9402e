"""RFC 6901 JSON pointers: building them and reading their tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["array_index", "join", "split"]

_INDEX: Final = re.compile(r"0|[1-9][0-9]*")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")


def join(tokens: Iterable[str | int]) -> str:
    """The pointer of ``tokens``; no tokens give ``""``, the whole document."""
    return "".join(
        f"/{token}" if type(token) is int else "/" + _escaped(str(token)) for token in tokens
    )


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


def split(pointer: str) -> list[str]:
    """The tokens of ``pointer``.

    Raises:
        ValueError: it is no JSON pointer.
    """
    if not pointer:
        return []
    if not pointer.startswith("/") or _BAD_ESCAPE.search(pointer):
        raise ValueError("not a JSON pointer")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def array_index(token: str) -> int:
    """The element that ``token`` names.

    Raises:
        ValueError: it is no array index (sign, leading zero, too long, other digits).
    """
    if len(token) > 18 or _INDEX.fullmatch(token) is None:
        raise ValueError("not an array index")
    return int(token)
