"""Damaging files of a checkpoint on disk."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cut", "data_file", "flip"]


def data_file(checkpoint: Path, participant: str) -> Path:
    """The only data object of a participant."""
    (found,) = checkpoint.joinpath(participant).glob("records-*")
    return found


def flip(file: Path, offset: int, *, bits: int = 0xFF) -> None:
    """Change one byte; a negative offset counts from the end."""
    data = bytearray(file.read_bytes())
    data[offset] ^= bits
    file.write_bytes(data)


def cut(file: Path, size_bytes: int) -> None:
    """Keep the first bytes only; a negative size leaves out so many at the end."""
    file.write_bytes(file.read_bytes()[:size_bytes])
