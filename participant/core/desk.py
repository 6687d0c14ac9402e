"""The commands that wait for their answer, and the effects of the step under way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from participant.core.effects import Answer, Effect, Note, Refuse
from participant.core.errors import ParticipantError
from participant.core.messages import Reply
from participant.core.phases import Move

__all__ = ["Desk"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    move: Move
    deadline: float
    wall_offset: float


class Desk:
    """Every command is answered exactly once, unless its caller hangs up."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._effects: list[Effect] = []
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def number(self) -> int:
        """A number for a new job."""
        self._numbers += 1
        return self._numbers

    def emit(self, *effects: Effect) -> None:
        """Add to the effects of this step."""
        self._effects += effects

    def take(self) -> tuple[Effect, ...]:
        """The effects of this step; the next one begins with none."""
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    def hold(self, call: int, move: Move, deadline: float, wall_offset: float) -> None:
        """Keep a command until it is answered, refused, or due at ``deadline``."""
        self._waiting[call] = _Waiting(move, deadline, wall_offset)

    def answer(self, call: int, reply: Reply) -> None:
        """Answer a command."""
        self._waiting.pop(call, None)
        self.emit(Answer(call, reply))

    def refuse(self, call: int, error: ParticipantError) -> None:
        """Refuse a command."""
        self._waiting.pop(call, None)
        self.emit(Note("refused", error.code), Refuse(call, error))

    def answer_all(self, move: Move, reply: Reply) -> None:
        """Answer every command of a kind that waits."""
        for call in self.waiting(move):
            self.answer(call, reply)

    def refuse_all(self, move: Move, error: ParticipantError) -> None:
        """Refuse every command of a kind that waits."""
        for call in self.waiting(move):
            self.refuse(call, error)

    def drop(self, call: int) -> None:
        """Its caller has gone."""
        self._waiting.pop(call, None)

    def waiting(self, move: Move) -> list[int]:
        """The commands of a kind that wait."""
        return [call for call, held in self._waiting.items() if held.move is move]

    def still(self, calls: Iterable[int]) -> list[int]:
        """Those of ``calls`` that wait."""
        return [call for call in calls if call in self._waiting]

    def due(self, now: float) -> list[tuple[int, Move, float]]:
        """The commands whose deadline has come, with their offset of wall time."""
        return [
            (call, held.move, held.wall_offset)
            for call, held in self._waiting.items()
            if now >= held.deadline
        ]

    @property
    def next_deadline(self) -> float | None:
        """When the next command is due."""
        return min((held.deadline for held in self._waiting.values()), default=None)
