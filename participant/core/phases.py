"""The phase table: the one place that says which command leads where.

A pair that is not in the table is refused and changes nothing.  The diagram in
``docs/control.md`` is drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["TABLE", "Move", "Phase", "diagram"]


class Phase(StrEnum):
    """Where a participant is in a checkpoint or a restore."""

    IDLE = "idle"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTED = "committed"
    RESTORED = "restored"


class Move(StrEnum):
    """What changes a phase: the controller's commands, and four things that happen."""

    PREPARE = "prepare"
    COMMIT = "commit"
    RENEW = "renew"
    RETIRE = "retire"
    RESTORE = "restore"
    RESUME = "resume"
    READY = "all at a boundary"
    FAIL = "closing or waiting fails"
    EXPIRE = "lease runs out"


TABLE: Final[Mapping[tuple[Phase, Move], Phase]] = {
    (Phase.IDLE, Move.PREPARE): Phase.PREPARING,
    (Phase.IDLE, Move.RESTORE): Phase.RESTORED,
    (Phase.IDLE, Move.RETIRE): Phase.IDLE,
    (Phase.IDLE, Move.RESUME): Phase.IDLE,
    (Phase.PREPARING, Move.PREPARE): Phase.PREPARING,
    (Phase.PREPARING, Move.READY): Phase.PREPARED,
    (Phase.PREPARING, Move.FAIL): Phase.IDLE,
    (Phase.PREPARING, Move.RENEW): Phase.PREPARING,
    (Phase.PREPARING, Move.RESUME): Phase.IDLE,
    (Phase.PREPARING, Move.EXPIRE): Phase.IDLE,
    (Phase.PREPARED, Move.PREPARE): Phase.PREPARED,
    (Phase.PREPARED, Move.COMMIT): Phase.COMMITTED,
    (Phase.PREPARED, Move.RENEW): Phase.PREPARED,
    (Phase.PREPARED, Move.RESUME): Phase.IDLE,
    (Phase.PREPARED, Move.EXPIRE): Phase.IDLE,
    (Phase.COMMITTED, Move.COMMIT): Phase.COMMITTED,
    (Phase.COMMITTED, Move.RENEW): Phase.COMMITTED,
    (Phase.COMMITTED, Move.RESUME): Phase.IDLE,
    (Phase.COMMITTED, Move.EXPIRE): Phase.IDLE,
    (Phase.RESTORED, Move.RESTORE): Phase.RESTORED,
    (Phase.RESTORED, Move.RETIRE): Phase.RESTORED,
    (Phase.RESTORED, Move.RENEW): Phase.RESTORED,
    (Phase.RESTORED, Move.RESUME): Phase.IDLE,
    (Phase.RESTORED, Move.EXPIRE): Phase.IDLE,
}


def diagram() -> str:
    """The table as a Mermaid state diagram; moves between the same two phases share a line."""
    arrows: dict[tuple[Phase, Phase], list[str]] = {}
    for (start, move), end in TABLE.items():
        arrows.setdefault((start, end), []).append(move.value)
    lines = [f"    {start} --> {end}: {', '.join(moves)}" for (start, end), moves in arrows.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {Phase.IDLE}", *lines]) + "\n"
