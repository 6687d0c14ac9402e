"""Numbers for people."""

from __future__ import annotations

from typing import Final

__all__ = ["count", "number_of", "size"]

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


def count(number: int | None) -> str:
    """``1,024``; a dash for what is not known."""
    return "-" if number is None else f"{number:,}"


def number_of(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def size(size_bytes: int | None) -> str:
    """``12 B``, ``1.4 GiB``; a dash for what is not known."""
    if size_bytes is None:
        return "-"
    if size_bytes < 1024:
        return f"{size_bytes} B"
    amount, place = size_bytes / 1024, 0
    while amount >= 1023.95 and place < len(_UNITS) - 1:
        amount, place = amount / 1024, place + 1
    return f"{amount:.1f} {_UNITS[place]}"
