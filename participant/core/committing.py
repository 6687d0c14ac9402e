"""One checkpoint's save: exported once, written until it is stored, then what it left out freed.

::

    new --export--> exporting --> exported --write--> writing --> written --release--> done
         <--failed--                       <--failed--                    <--failed--

A repeated commit joins the step under way, or takes the next one up where it failed: the
records of the first export are the ones that are stored.  A save that is given up may
leave a *doubt*: whether it published.  A doubt ends by the writer's own word, or is
settled by reading back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

import msgspec

from ckptfmt.identity import EpisodeId
from participant.core.desk import Desk
from participant.core.effects import Abandon, Export, Forget, Release, Settle, Write
from participant.core.errors import CheckpointConflictError, ParticipantError
from participant.core.messages import Commit, CommitReply
from participant.core.phases import Move
from participant.core.scope import Scope

__all__ = ["Committing", "Save", "SaveStage"]


class SaveStage(StrEnum):
    """How far a save is; the middle of each pair in the module's diagram has a job running."""

    NEW = "new"
    EXPORTING = "exporting"
    EXPORTED = "exported"
    WRITING = "writing"
    WRITTEN = "written"
    RELEASING = "releasing"
    DONE = "done"


class _Doubt(Enum):
    NONE = auto()
    ASKED = auto()  # The writer was told to stop and has not said whether it had claimed.
    CLAIMED = auto()  # It had; it will end in its own time.
    UNKNOWN = auto()  # It ended without knowing.


@dataclass(slots=True)
class Save:
    """The save of one checkpoint; its arguments are those of the first commit."""

    number: int
    checkpoint_id: str
    checkpoint_dir: str
    scope: Scope
    stage: SaveStage = SaveStage.NEW
    doubt: _Doubt = _Doubt.NONE
    episodes: frozenset[EpisodeId] = frozenset()
    extras: dict[str, Any] = field(default_factory=dict)
    manifest: msgspec.Raw = field(default_factory=msgspec.Raw)
    reply: CommitReply | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it may be given up without leaving anything that still moves."""
        return self.doubt is _Doubt.NONE and self.stage is not SaveStage.RELEASING


class Committing:
    """The save of the open checkpoint, and the doubts that earlier ones left."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.save: Save | None = None
        self._doubts: set[int] = set()

    @property
    def publication(self) -> str | None:
        """``unknown`` while it is not known whether a save that was given up published."""
        return "unknown" if self._doubts else None

    def check_arguments(self, request: Commit) -> None:
        """Refuse a repeat that differs from the first commit.

        Raises:
            CheckpointConflictError: in directory or scope.
        """
        save = self.save
        if save is None:
            return
        if (save.checkpoint_dir, save.scope) != (request.checkpoint_dir, request.scope):
            raise CheckpointConflictError(
                f"{save.checkpoint_id} is being committed with another directory or scope"
            )

    def begin(self, request: Commit) -> Save:
        """The save of this request, new or already begun."""
        if self.save is None:
            self.save = Save(
                self._desk.number(), request.checkpoint_id, request.checkpoint_dir, request.scope
            )
        return self.save

    def proceed(self, restored: frozenset[EpisodeId]) -> None:
        """Take the next step, unless one is under way.

        ``restored`` are the restored episodes whose replacement has not started.
        """
        save = self.save
        assert save is not None
        if save.stage is SaveStage.NEW:
            save.stage = SaveStage.EXPORTING
            self._desk.emit(Export(save.number, save.scope))
        elif save.stage is SaveStage.EXPORTED:
            save.stage = SaveStage.WRITING
            save.doubt = _Doubt.NONE
            self._desk.emit(Write(save.number, save.checkpoint_id, save.checkpoint_dir))
        elif save.stage is SaveStage.WRITTEN:
            unwanted = save.scope.left_out(restored)
            save.stage = SaveStage.RELEASING if unwanted else SaveStage.DONE
            if unwanted:
                self._desk.emit(Release(save.number, unwanted))

    def at(self, number: int, stage: SaveStage) -> Save | None:
        """The current save, if it has this number and is at this stage."""
        save = self.save
        return save if save and save.number == number and save.stage is stage else None

    def failed(self, number: int, error: ParticipantError, *, unknown: bool) -> bool:
        """A step failed: go back to where it can be repeated.  False if it is not ours."""
        save = self.save
        if number in self._doubts:
            self._doubted(number, unknown=unknown)
            return True
        if save is None or save.number != number:
            return False
        save.stage = {
            SaveStage.EXPORTING: SaveStage.NEW,
            SaveStage.WRITING: SaveStage.EXPORTED,
            SaveStage.RELEASING: SaveStage.WRITTEN,
        }[save.stage]
        was_claimed = save.doubt is not _Doubt.NONE
        save.doubt = _Doubt.UNKNOWN if unknown else _Doubt.NONE
        if unknown and was_claimed:
            self._desk.emit(Settle(number))
        self._desk.refuse_all(Move.COMMIT, error)
        return True

    def call_off(self) -> None:
        """The checkpoint ends: stop what has not claimed publication."""
        save = self.save
        if save is None:
            return
        if save.stage is SaveStage.WRITING and save.doubt is _Doubt.NONE:
            save.doubt = _Doubt.ASKED
            self._desk.emit(Abandon(save.number))
        elif save.stage is SaveStage.EXPORTED and save.doubt is _Doubt.UNKNOWN:
            self._desk.emit(Settle(save.number))

    def abandoned(self, number: int, *, clear: bool) -> None:
        """The writer was told to stop."""
        if number in self._doubts and clear:
            self.settled(number)
        save = self.at(number, SaveStage.WRITING)
        if save is not None and save.doubt is _Doubt.ASKED:
            save.doubt = _Doubt.NONE if clear else _Doubt.CLAIMED

    def settled(self, number: int) -> None:
        """It is known what became of a publication."""
        if number in self._doubts:
            self._doubts.discard(number)
            self._desk.emit(Forget(number))
        elif self.save is not None and self.save.number == number:
            self.save.doubt = _Doubt.NONE

    def give_up(self) -> None:
        """Drop the save; what is in doubt stays in doubt until it is settled."""
        save, self.save = self.save, None
        if save is None:
            return
        if save.doubt is _Doubt.NONE:
            self._desk.emit(Forget(save.number))
        else:
            self._doubts.add(save.number)

    def _doubted(self, number: int, *, unknown: bool) -> None:
        if unknown:
            self._desk.emit(Settle(number))
        else:
            self.settled(number)
