"""Showing the first few of many, and saying so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from inspector.output.base import Item

__all__ = ["Limit", "told_cut"]

_T = TypeVar("_T")


@dataclass(slots=True)
class Limit:
    """Lets the first ``most`` through (all, where it is None) and knows whether that cut."""

    most: int | None
    shown: int = 0
    cut: bool = False

    def of(self, things: Iterable[_T]) -> Iterator[_T]:
        """The things that are to be shown; stops at the first one beyond the limit."""
        for thing in things:
            if self.shown == self.most:
                self.cut = True
                return
            self.shown += 1
            yield thing

    def summary(self, total: int | None) -> dict[str, int | bool | None]:
        """What the summary says of it; ``total`` is None where counting would mean reading on."""
        return {"shown": self.shown, "total": total, "truncated": self.cut}


def told_cut(summary: Item) -> Iterator[str]:
    """The line below a list that was cut."""
    if summary.get("truncated"):
        total = summary["total"]
        of_all = "there are more" if total is None else f"of {total:,}"
        yield f"({summary['shown']:,} shown, {of_all}; --limit cut the rest)"
