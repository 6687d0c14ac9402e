"""Which checkpoint without a sequence is the latest: clocks and hints say, if at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ckptfmt.errors import AmbiguousLatestError

__all__ = ["Undated", "choose_latest"]


@dataclass(frozen=True, slots=True)
class Undated:
    """A complete checkpoint: its folder's name, its id, and its time as it is spelt."""

    folder: str
    checkpoint_id: str
    created_at: str


def choose_latest(candidates: Sequence[Undated], hint: bytes | None) -> tuple[int, str]:
    """The index of the latest, and how that was told; ``hint`` is the content of ``LATEST``.

    ``created_at`` decides where all have one and one is later than all others; otherwise
    ``LATEST`` does, if it names one.

    Raises:
        AmbiguousLatestError: neither does.
    """
    if len(candidates) == 1:
        return 0, "as the only complete checkpoint; its layout has no sequence"
    dated = _by_time(candidates)
    if dated is not None:
        return dated, "by created_at, which a clock said: its layout has no sequence"
    named = None if hint is None else _named(hint)
    for index, candidate in enumerate(candidates):
        if named is not None and named in (candidate.folder, candidate.checkpoint_id):
            return index, "by the file LATEST, which is a hint: its layout has no sequence"
    folders = ", ".join(sorted(candidate.folder for candidate in candidates)[:10])
    raise AmbiguousLatestError(
        f"nothing tells which of {folders} is the latest: NeMo Gym's layout has no sequence",
        advice="name the checkpoint to restore",
    )


def _by_time(candidates: Sequence[Undated]) -> int | None:
    try:
        times = [datetime.fromisoformat(item.created_at) for item in candidates]
        latest = max(times)
    except (ValueError, TypeError):
        # Not a time, or only some of them tell their zone.
        return None
    return times.index(latest) if times.count(latest) == 1 else None


def _named(hint: bytes) -> str | None:
    """The last segment of the path or name that the hint is, plain or as a member of JSON."""
    try:
        text = hint.decode().strip()
        told = json.loads(text) if text.startswith(("{", '"')) else text
    except (ValueError, RecursionError):
        return None
    if isinstance(told, dict):
        told = told.get("checkpoint_id")
    return told.rstrip("/").rpartition("/")[2] if isinstance(told, str) else None
