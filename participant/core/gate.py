"""Admission: who runs, who waits, and how many a checkpoint has to wait for.

Work that arrives while the gate is closed waits; it is not refused, because a refusal
would be taken for a tool's answer, or lose a clean-up that is sent only once.  A waiting
call is no execution and blocks nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ckptfmt.identity import EpisodeId
from participant.core.errors import AdmissionClosedError, CheckpointParkedError
from participant.core.messages import MAX_LISTED_BLOCKERS
from participant.core.steps import StepMode, Steps

__all__ = ["Blockers", "Execution", "Gate", "GateCounts"]


class Blockers:
    """Episodes that a checkpoint has to wait for, each with the number of its reasons.

    The count is that of episodes, and costs no scan.
    """

    def __init__(self) -> None:
        self._reasons: dict[EpisodeId, int] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, episode: EpisodeId) -> None:
        """One reason more to wait for ``episode``."""
        self._reasons[episode] = self._reasons.get(episode, 0) + 1

    def remove(self, episode: EpisodeId) -> None:
        """One reason less."""
        left = self._reasons[episode] - 1
        if left:
            self._reasons[episode] = left
        else:
            del self._reasons[episode]

    def listed(self, others: Iterable[str] = ()) -> tuple[str, ...]:
        """The first 100 capture keys in sorted order, with those of ``others``."""
        keys = {episode.capture_key for episode in self._reasons}.union(others)
        return tuple(heapq.nsmallest(MAX_LISTED_BLOCKERS, keys))


@dataclass(frozen=True, slots=True)
class GateCounts:
    """``executions`` belong to episodes; ``parked`` of them are at a boundary."""

    executions: int
    parked: int
    untagged: int
    waiting: int


@dataclass(slots=True, eq=False)
class Execution:
    """A call that waits or runs; ``key`` names work that must not run twice at once."""

    ticket: int
    episode: EpisodeId | None
    key: str | None
    waits: bool = False
    cancelled: bool = False
    steps: Steps = field(default_factory=Steps)


class Gate:
    """The calls of one participant, by the ticket that the shell gave each."""

    def __init__(self, max_waiting: int, blockers: Blockers) -> None:
        self._max_waiting = max_waiting
        self._blockers = blockers
        self._calls: dict[int, Execution] = {}
        self._keys: dict[str, int] = {}
        self._rollouts: dict[str, dict[int, Execution]] = {}
        self._exempt: set[int] = set()
        self._waiting = 0
        self._parked = 0
        self._untagged = 0
        self.closed = False
        self.has_served = False
        """Whether attributed work was ever admitted: such a process is not fresh."""

    def __len__(self) -> int:
        return len(self._calls)

    def get(self, ticket: int) -> Execution | None:
        """The call with this ticket, if it waits or runs."""
        return self._calls.get(ticket)

    @property
    def counts(self) -> GateCounts:
        """How many there are of each sort."""
        running = len(self._calls) - self._waiting - self._untagged
        return GateCounts(running, self._parked, self._untagged, self._waiting)

    def of_rollout(self, episode: EpisodeId) -> list[Execution]:
        """The calls of a rollout, whatever their attempt."""
        return list(self._rollouts.get(episode.rollout_id, {}).values())

    def latest_attempt(self, rollout_id: str) -> int | None:
        """The highest attempt of a rollout that waits or runs."""
        calls = self._rollouts.get(rollout_id, {}).values()
        return max((call.episode.attempt for call in calls if call.episode), default=None)

    def waiting(self) -> Iterator[Execution]:
        """The calls that wait, in the order of their arrival."""
        return (call for call in self._calls.values() if call.waits)

    def enter(self, ticket: int, episode: EpisodeId | None, key: str | None) -> bool:
        """Take a call in; true if it runs, false if it waits.

        Raises:
            CheckpointParkedError: a call with this key waits or runs.
            AdmissionClosedError: too many wait.
        """
        if key is not None and key in self._keys:
            first = self._calls[self._keys[key]]
            raise CheckpointParkedError(
                f"{key} {'waits for resume' if first.waits else 'is running'} already; "
                "this second request was not carried out"
            )
        waits = self.closed and episode is not None
        if waits and self._waiting >= self._max_waiting:
            raise AdmissionClosedError(f"{self._waiting} calls wait for resume; send it later")
        call = Execution(ticket, episode, key, waits)
        self._calls[ticket] = call
        if key is not None:
            self._keys[key] = ticket
        if episode is not None:
            self._rollouts.setdefault(episode.rollout_id, {})[ticket] = call
        if waits:
            self._waiting += 1
        else:
            self._run(call)
        return not waits

    def retry(self, ticket: int) -> bool:
        """Let a call that was woken run, unless the gate has closed again meanwhile."""
        call = self._calls[ticket]
        if self.closed:
            return False
        call.waits = False
        self._waiting -= 1
        self._run(call)
        return True

    def leave(self, ticket: int) -> Execution | None:
        """The call has ended, was dropped or turned away; None if it is not known."""
        call = self._calls.pop(ticket, None)
        if call is None:
            return None
        if call.key is not None:
            del self._keys[call.key]
        if call.episode is None:
            self._untagged -= 1
            return call
        calls = self._rollouts[call.episode.rollout_id]
        del calls[ticket]
        if not calls:
            del self._rollouts[call.episode.rollout_id]
        if call.waits:
            self._waiting -= 1
        else:
            self._unparked(call)
            self._exempt.discard(ticket)
            self._count(call, was=call.steps.blocks, blocks=False)
        return call

    def step_begins(self, ticket: int, mode: StepMode) -> None:
        """A step of the execution begins."""
        call = self._calls[ticket]
        was = call.steps.blocks
        call.steps.begin(mode)
        self._count(call, was=was, blocks=call.steps.blocks)

    def step_ends(self, ticket: int) -> None:
        """The step of the execution has ended."""
        call = self._calls[ticket]
        was = call.steps.blocks
        call.steps.end(closed=self._is_closed_to(call))
        if call.steps.exempt:
            self._exempt.add(ticket)
        self._count(call, was=was, blocks=call.steps.blocks)

    def boundary(self, ticket: int) -> bool:
        """The execution recorded a boundary; true if it has to park there."""
        call = self._calls[ticket]
        was = call.steps.blocks
        parks = call.steps.boundary(closed=self._is_closed_to(call))
        self._exempt.discard(ticket)
        self._parked += parks
        self._count(call, was=was, blocks=call.steps.blocks)
        return parks

    def unpark(self, ticket: int) -> bool:
        """Let a parked execution go on, unless the gate has closed again before it ran."""
        call = self._calls[ticket]
        if self.closed:
            return False
        self._unparked(call)
        call.steps.boundary(closed=False)
        self._count(call, was=False, blocks=call.steps.blocks)
        return True

    def open(self) -> tuple[int, ...]:
        """Open the gate; the tickets that have to be woken, in the order of their arrival."""
        self.closed = False
        for ticket in self._exempt:
            call = self._calls[ticket]
            call.steps.exempt = False
            self._count(call, was=False, blocks=call.steps.blocks)
        self._exempt.clear()
        if not self._waiting and not self._parked:
            return ()
        return tuple(t for t, call in self._calls.items() if call.waits or _is_parked(call))

    def _run(self, call: Execution) -> None:
        if call.episode is None:
            self._untagged += 1
        else:
            self.has_served = True
            self._blockers.add(call.episode)

    def _is_closed_to(self, call: Execution) -> bool:
        # What belongs to no episode is in no checkpoint: it is neither parked nor held.
        return self.closed and call.episode is not None

    def _unparked(self, call: Execution) -> None:
        self._parked -= _is_parked(call)

    def _count(self, call: Execution, *, was: bool, blocks: bool) -> None:
        if call.episode is not None and was != blocks:
            (self._blockers.add if blocks else self._blockers.remove)(call.episode)


def _is_parked(call: Execution) -> bool:
    return call.steps.state == "parked"
