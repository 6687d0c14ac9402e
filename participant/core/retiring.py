"""Retirement: stop, then free, then forget but for a fence.

A *member* is an attempt that is being retired; it stands for every earlier attempt of its
rollout too.  It is refused from the moment the retire arrives until every *batch* that
names it has ended as a whole, so one member that cannot stop keeps its batch refused.
What is running is cancelled once, whatever is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ckptfmt.identity import EpisodeId
from participant.core.desk import Desk
from participant.core.effects import Cancel, Free, Stop, TurnAway
from participant.core.errors import ParticipantError, StaleAttemptError
from participant.core.gate import Blockers, Gate
from participant.core.messages import RetireReply

__all__ = ["Batch", "Member", "MemberStage", "Retiring"]


class MemberStage(StrEnum):
    """How far a member is."""

    NEW = "new"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FREEING = "freeing"
    UNFREED = "unfreed"
    FREED = "freed"


@dataclass(slots=True, eq=False)
class Batch:
    """What one retire names.  ``calls`` maps a command to the keys that its reply lists.

    ``unfreed`` counts the members that are not freed yet.
    """

    members: frozenset[EpisodeId]
    leaves_fence: bool
    unfreed: int
    calls: dict[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Member:
    """One attempt being retired; ``running`` are its executions that have not ended."""

    episode: EpisodeId
    stage: MemberStage = MemberStage.NEW
    running: set[int] = field(default_factory=set)
    batches: list[Batch] = field(default_factory=list)


class Retiring:
    """The retirements of a participant."""

    def __init__(self, desk: Desk, gate: Gate, blockers: Blockers) -> None:
        self._desk = desk
        self._gate = gate
        self._blockers = blockers
        self._members: dict[str, dict[EpisodeId, Member]] = {}
        self._batches: list[Batch] = []
        self._stopped: list[Member] = []
        self._finished: list[Batch] = []

    def __len__(self) -> int:
        return len(self.unfinished)

    @property
    def unfinished(self) -> list[EpisodeId]:
        """The members that are not freed."""
        members = (m for rollout in self._members.values() for m in rollout.values())
        return [m.episode for m in members if m.stage is not MemberStage.FREED]

    def covers(self, episode: EpisodeId) -> bool:
        """Whether an attempt is being retired."""
        return any(member.covers(episode) for member in self._members.get(episode.rollout_id, ()))

    def join(self, call: int, episodes: tuple[EpisodeId, ...], *, leaves_fence: bool) -> None:
        """Retire ``episodes``, or wait for a retire of the same that is under way."""
        named = frozenset(episodes)
        batch = next((b for b in self._batches if b.members == named), None)
        if batch is None:
            batch = self._new_batch(named)
        batch.leaves_fence |= leaves_fence
        batch.calls[call] = tuple(episode.capture_key for episode in episodes)
        for episode in dict.fromkeys(episodes):
            self._stop(self._members[episode.rollout_id][episode])

    def _new_batch(self, named: frozenset[EpisodeId]) -> Batch:
        batch = Batch(named, leaves_fence=False, unfreed=0)
        self._batches.append(batch)
        for episode in named:
            rollout = self._members.setdefault(episode.rollout_id, {})
            if episode not in rollout:
                rollout[episode] = Member(episode)
                self._blockers.add(episode)
            member = rollout[episode]
            member.batches.append(batch)
            batch.unfreed += member.stage is not MemberStage.FREED
        if not batch.unfreed:
            self._finished.append(batch)
        return batch

    def _stop(self, member: Member) -> None:
        for call in self._gate.of_rollout(member.episode):
            if call.episode is None or not member.episode.covers(call.episode):
                continue
            if call.waits:
                self._gate.leave(call.ticket)
                error = StaleAttemptError(f"{call.episode.capture_key} was retired while it waited")
                self._desk.emit(TurnAway(call.ticket, error))
                continue
            member.running.add(call.ticket)
            if not call.cancelled:
                call.cancelled = True
                self._desk.emit(Cancel(call.ticket))
        if member.stage is MemberStage.NEW:
            member.stage = MemberStage.STOPPING
            self._desk.emit(Stop(member.episode))
        elif member.stage is MemberStage.UNFREED:
            member.stage = MemberStage.STOPPED
            self._stopped.append(member)

    def left(self, episode: EpisodeId, ticket: int) -> None:
        """An execution has ended."""
        for member in self._members.get(episode.rollout_id, {}).values():
            if ticket in member.running:
                member.running.discard(ticket)
                if not member.running and member.stage is MemberStage.STOPPED:
                    self._stopped.append(member)

    def stopped(self, episode: EpisodeId) -> None:
        """The hooks have stopped a member."""
        member = self._at(episode, MemberStage.STOPPING)
        if member is not None:
            member.stage = MemberStage.STOPPED
            if not member.running:
                self._stopped.append(member)

    def freed(self, episode: EpisodeId) -> None:
        """The hooks have freed a member."""
        member = self._at(episode, MemberStage.FREEING)
        if member is None:
            return
        member.stage = MemberStage.FREED
        self._blockers.remove(episode)
        for batch in member.batches:
            batch.unfreed -= 1
            if not batch.unfreed:
                self._finished.append(batch)

    def failed(self, episode: EpisodeId, error: ParticipantError) -> None:
        """Stopping or freeing failed; the member stays until a repeat succeeds."""
        member = self._members.get(episode.rollout_id, {}).get(episode)
        if member is None:
            return
        if member.stage is MemberStage.STOPPING:
            member.stage = MemberStage.NEW
        elif member.stage is MemberStage.FREEING:
            member.stage = MemberStage.UNFREED
        for batch in member.batches:
            for call in self._desk.still(batch.calls):
                self._desk.refuse(call, error)
            batch.calls.clear()

    def free_stopped(self) -> None:
        """Free the members whose work has ended."""
        stopped, self._stopped = self._stopped, []
        for member in stopped:
            member.stage = MemberStage.FREEING
            self._desk.emit(Free(member.episode))

    def take_finished(self) -> list[Batch]:
        """The batches that have ended, their calls answered; their members are forgotten."""
        finished, self._finished = self._finished, []
        for batch in finished:
            self._batches.remove(batch)
            for call in self._desk.still(batch.calls):
                self._desk.answer(call, RetireReply(retired=batch.calls[call]))
            for episode in batch.members:
                self._leave_batch(self._members[episode.rollout_id][episode], batch)
        return finished

    def _leave_batch(self, member: Member, batch: Batch) -> None:
        member.batches.remove(batch)
        if not member.batches:
            rollout = self._members[member.episode.rollout_id]
            del rollout[member.episode]
            if not rollout:
                del self._members[member.episode.rollout_id]

    def _at(self, episode: EpisodeId, stage: MemberStage) -> Member | None:
        member = self._members.get(episode.rollout_id, {}).get(episode)
        return member if member is not None and member.stage is stage else None
