"""What commands hand over, and what becomes of it.

A command gives *items*: members with a ``type``.  At its end comes the *summary*, also
after an early error.  In NDJSON each is a line; in JSON they are one document; as text a
*view* of each type says how it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from ckptfmt.stream import LongLine

__all__ = ["Color", "Column", "Format", "Item", "Table", "Verbatim", "View", "Views", "Writer"]

Item: TypeAlias = Mapping[str, Any]
"""Members in order.  Values are JSON, an ``orjson.Fragment`` or a :class:`Verbatim`."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON text that may be a large part of the memory that there is: it is never copied.

    It stands for a member of an item, not deeper.  A long line is never held either.
    """

    text: bytes | LongLine

    def pieces(self) -> Iterable[bytes]:
        """The text, cut between characters."""
        return self.text.pieces() if isinstance(self.text, LongLine) else (self.text,)


class Format(StrEnum):
    """What goes to standard output."""

    TEXT = "text"
    JSON = "json"
    NDJSON = "ndjson"


class Color(StrEnum):
    """When text is coloured; colour never carries meaning alone."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.  ``style`` names a colour for a cell, for those who see it."""

    title: str
    show: Callable[[Item], str]
    right: bool = False
    style: Callable[[str], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Table:
    """Items of one type as rows."""

    columns: tuple[Column, ...]


View: TypeAlias = Table | Callable[[Item], Iterable[str | Iterator[str]]]
"""Rows of a table, or lines of text, each whole or in pieces."""

Views: TypeAlias = Mapping[str, View]
"""Type of an item -> its view.  An item without one is not shown as text."""


class Writer(Protocol):
    """One format of the output."""

    def item(self, item: Item) -> None:
        """Write an item."""

    def end(self, summary: Item) -> None:
        """Write the summary and what is still held back."""
