"""What the rules of :mod:`participant.core.machine` share: the small machines, and checks.

Nothing here decides; it is the table that the decisions are made at.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from ckptfmt.identity import EpisodeId
from participant.core.census import Census
from participant.core.committing import Committing
from participant.core.desk import Desk
from participant.core.effects import Release
from participant.core.errors import (
    CheckpointConflictError,
    DeadlineExceededError,
    InvalidPhaseError,
    StaleCheckpointError,
)
from participant.core.events import Call
from participant.core.fences import Fences
from participant.core.gate import Blockers, Gate
from participant.core.lease import Lease
from participant.core.messages import PrepareReply, Report, Request
from participant.core.phases import TABLE, Move, Phase
from participant.core.restoring import Restored, Restoring
from participant.core.retiring import Retiring

__all__ = ["REMEMBERED_IDS", "Ending", "Limits", "State"]

REMEMBERED_IDS: Final = 64
"""How many resumed checkpoint ids are remembered; the next resume forgets the first."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that the machine obeys; seconds, and a number of calls."""

    lease_grace_s: float = 600.0
    retire_fence_s: float = 60.0
    max_waiting: int = 10_000


@dataclass(slots=True)
class Ending:
    """A checkpoint that is being ended, and the resumes that wait for that."""

    move: Move
    deadline: float
    calls: list[int]


class State:
    """The small machines of one participant, and what is neither of them alone."""

    def __init__(self, limits: Limits, census: Census) -> None:
        self.limits = limits
        self.census = census
        self.desk = Desk()
        self.blockers = Blockers()
        self.gate = Gate(limits.max_waiting, self.blockers)
        self.fences = Fences(limits.retire_fence_s)
        self.lease = Lease()
        self.committing = Committing(self.desk)
        self.retiring = Retiring(self.desk, self.gate, self.blockers)
        self.restoring: Restoring | None = None
        self.restored = Restored()
        self.ending: Ending | None = None
        self.holds: dict[int, frozenset[EpisodeId]] = {}
        self.resumed: OrderedDict[str, None] = OrderedDict()
        self.phase = Phase.IDLE
        self.checkpoint_id: str | None = None
        self.prepared: PrepareReply | None = None
        self.hooks_closed = False
        self.is_spoiled = False
        self.failed_restore_id: str | None = None

    def check_id(self, request: Request) -> None:
        """Refuse a checkpoint id that is spent, or that is not the open one.

        Raises:
            StaleCheckpointError, CheckpointConflictError: in this order.
        """
        if request.checkpoint_id in self.resumed:
            raise StaleCheckpointError(f"{request.checkpoint_id} was resumed here; use another id")
        self.check_open_id(request)

    def check_open_id(self, request: Request) -> None:
        """Refuse a checkpoint id while another one is open.

        Raises:
            CheckpointConflictError: it is.
        """
        if self.checkpoint_id not in (None, request.checkpoint_id):
            raise CheckpointConflictError(
                f"{self.checkpoint_id} is open in phase {self.phase}; resume it first"
            )

    def check_deadline(self, call: Call) -> None:
        """Refuse a command whose deadline had passed when it arrived.

        Raises:
            DeadlineExceededError: it had.
        """
        if call.budget_s <= 0:
            raise DeadlineExceededError(
                f"deadline_ts {call.request.deadline_ts:.3f} had passed by "
                f"{-call.budget_s:.3f} s on arrival; it is {call.wall_now:.3f} here"
            )

    def permit(self, move: Move, advice: str = "") -> None:
        """Refuse a move that the phase does not permit.

        Raises:
            InvalidPhaseError: the table has no such pair.
        """
        if (self.phase, move) not in TABLE:
            raise InvalidPhaseError(f"{move} is not permitted in phase {self.phase}{advice}")

    def move(self, move: Move) -> None:
        """Go where the table says."""
        self.phase = TABLE[self.phase, move]

    def wait(self, now: float, call: Call, move: Move) -> None:
        """Keep a command until its answer or its deadline."""
        self.desk.hold(call.call, move, now + call.budget_s, call.wall_now - now)

    def lease_until(self, now: float, call: Call) -> float:
        """How far a command carries the lease."""
        return now + call.budget_s + self.limits.lease_grace_s

    def remember(self, checkpoint_id: str) -> None:
        """The id is spent."""
        self.resumed[checkpoint_id] = None
        while len(self.resumed) > REMEMBERED_IDS:
            self.resumed.popitem(last=False)

    def blocking(self) -> int:
        """How much a checkpoint has to wait for; no scan."""
        return len(self.blockers) + self.census.blocking()

    def report(self) -> Report:
        """The report; only here are blockers listed."""
        count = self.blocking()
        return Report(
            ready=count == 0,
            blockers=self.blockers.listed(self.census.blockers()) if count else (),
            blocker_count=count,
            counts=dict(self.census.counts(self.gate.counts)),
        )

    def hold(self, number: int, episodes: frozenset[EpisodeId]) -> None:
        """Keep admission closed, and the next checkpoint waiting, while a job frees these."""
        self.holds[number] = episodes
        for episode in episodes:
            self.blockers.add(episode)

    def unhold(self, number: int) -> frozenset[EpisodeId]:
        """The job has ended."""
        episodes = self.holds.pop(number, frozenset())
        for episode in episodes:
            self.blockers.remove(episode)
        return episodes

    def release(self, episodes: frozenset[EpisodeId]) -> None:
        """Free restored state that must not run."""
        number = self.desk.number()
        self.hold(number, episodes)
        self.desk.emit(Release(number, episodes))

    def is_retired(self, now: float, episode: EpisodeId) -> bool:
        """Whether the attempt is being retired, or was just now."""
        fenced = self.fences.retired_ago(now, episode) is not None
        return fenced or self.retiring.covers(episode)
