"""The calls of a rollout as a tree that can be printed.

Most calls continue the one before, so a chain stays in one column, however long it is:
only where a call has several children do these move to the right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ckptfmt.ledger import Call, call_tree

__all__ = ["Node", "indented", "nodes"]

_DEEPEST_COLUMN: Final = 24


@dataclass(frozen=True, slots=True)
class Node:
    """A call in the tree: ``depth`` counts its ancestors, ``column`` the forks among them.

    An orphan names a parent that is not recorded before it, and stands like a root.
    """

    call: Call
    depth: int
    column: int

    @property
    def is_orphan(self) -> bool:
        """Whether the parent that it names is missing."""
        return self.depth == 0 and self.call.parent_call_id is not None


def nodes(calls: Sequence[Call]) -> Iterator[Node]:
    """Each call after its parent, siblings in the order of record; nothing recurses."""
    tree = list(call_tree(calls))
    children = Counter(call.parent_call_id for depth, call in tree if depth)
    columns: dict[str | None, int] = {}
    for depth, call in tree:
        parent = call.parent_call_id
        column = columns[parent] + (children[parent] > 1) if depth else 0
        columns[call.call_id] = column
        yield Node(call, depth, column)


def indented(text: str, column: int) -> str:
    """``text`` moved to a column; one that is too far to the right is told in figures."""
    if column <= _DEEPEST_COLUMN:
        return "  " * column + text
    return "  " * _DEEPEST_COLUMN + f"[{column:,}] {text}"
