"""The entries of ``$exact``: tags, and the runs of their starred forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

__all__ = ["STARRED", "Tag", "decode_runs", "encode_runs"]


class Tag(StrEnum):
    """What an entry says of its target."""

    NAN = "nan"
    INF = "inf"
    NEG_INF = "-inf"
    SURROGATES = "sur"
    MAP = "map"
    TUPLE = "tuple"
    TEXT = "text"


STARRED: Final = {f"{tag}*": tag for tag in (Tag.NAN, Tag.INF, Tag.NEG_INF, Tag.TUPLE)}
"""Starred form -> the tag that it gives to elements of its target."""


def encode_runs(indexes: Iterable[int]) -> list[int]:
    """``[gap, count, gap, count, ...]`` of ascending element indexes."""
    runs: list[int] = []
    end = 0
    for index in indexes:
        if runs and index == end:
            runs[-1] += 1
        else:
            runs += (index - end, 1)
        end = index + 1
    return runs


def decode_runs(runs: object, length: int) -> Iterator[range]:
    """The element ranges that ``runs`` name in an array of ``length`` elements.

    Raises:
        ValueError: the runs are malformed or reach past the array.
    """
    if not isinstance(runs, list) or not runs or len(runs) % 2 or not _are_counts(runs):
        raise ValueError("runs are not pairs of a gap and a count")
    end = 0
    for place in range(0, len(runs), 2):
        gap, count = runs[place], runs[place + 1]
        if count == 0 or (gap == 0 and place > 0):
            raise ValueError("runs are empty or touch")
        start, end = end + gap, end + gap + count
        if end > length:
            raise ValueError(f"runs reach past the {length} elements of the array")
        yield range(start, end)


def _are_counts(numbers: Sequence[object]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)
