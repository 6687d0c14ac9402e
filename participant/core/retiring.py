"""Retirement: stop, then free, then forget but for a fence.

A *member* is an attempt that is being retired; it stands for every earlier attempt of its
rollout too.  It is refused from the moment the retire arrives until every *batch* that
names it has ended as a whole, so one member that cannot stop keeps its batch refused.
What is running is cancelled once, whatever is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


@dataclass(slots=True)
class Member:
    """One attempt being retired; ``running`` are its executions that have not ended."""

    episode: EpisodeId
    stage: MemberStage = MemberStage.NEW
    running: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Batch:
    """What one retire names.  ``calls`` maps a command to the keys that its reply lists."""

    members: frozenset[EpisodeId]
    leaves_fence: bool
    calls: dict[int, tuple[str, ...]] = field(default_factory=dict)


class Retiring:
    """The retirements of a participant."""

    def __init__(self, desk: Desk, gate: Gate, blockers: Blockers) -> None:
        self._desk = desk
        self._gate = gate
        self._blockers = blockers
        self._members: dict[str, dict[EpisodeId, Member]] = {}
        self._batches: list[Batch] = []

    def __len__(self) -> int:
        return len(self.unfinished)

    @property
    def unfinished(self) -> list[EpisodeId]:
        """The members that are not freed."""
        return [m.episode for m in self._all() if m.stage is not MemberStage.FREED]

    def covers(self, episode: EpisodeId) -> bool:
        """Whether an attempt is being retired."""
        return any(member.covers(episode) for member in self._members.get(episode.rollout_id, ()))

    def join(self, call: int, episodes: tuple[EpisodeId, ...], *, leaves_fence: bool) -> None:
        """Retire ``episodes``, or wait for a retire of the same that is under way."""
        members = frozenset(episodes)
        batch = next((b for b in self._batches if b.members == members), None)
        if batch is None:
            batch = Batch(members, leaves_fence)
            self._batches.append(batch)
        batch.leaves_fence |= leaves_fence
        batch.calls[call] = tuple(episode.capture_key for episode in episodes)
        for episode in dict.fromkeys(episodes):
            rollout = self._members.setdefault(episode.rollout_id, {})
            if episode not in rollout:
                rollout[episode] = Member(episode)
                self._blockers.add(episode)
            self._stop(rollout[episode])

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

    def left(self, episode: EpisodeId, ticket: int) -> None:
        """An execution has ended."""
        for member in self._members.get(episode.rollout_id, {}).values():
            member.running.discard(ticket)

    def stopped(self, episode: EpisodeId) -> None:
        """The hooks have stopped a member."""
        member = self._at(episode, MemberStage.STOPPING)
        if member is not None:
            member.stage = MemberStage.STOPPED

    def freed(self, episode: EpisodeId) -> None:
        """The hooks have freed a member."""
        member = self._at(episode, MemberStage.FREEING)
        if member is not None:
            member.stage = MemberStage.FREED
            self._blockers.remove(episode)

    def failed(self, episode: EpisodeId, error: ParticipantError) -> None:
        """Stopping or freeing failed; the member stays until a repeat succeeds."""
        member = self._members.get(episode.rollout_id, {}).get(episode)
        if member is None:
            return
        if member.stage is MemberStage.STOPPING:
            member.stage = MemberStage.NEW
        elif member.stage is MemberStage.FREEING:
            member.stage = MemberStage.UNFREED
        for batch in self._batches:
            if episode in batch.members:
                for call in self._desk.still(batch.calls):
                    self._desk.refuse(call, error)
                batch.calls.clear()

    def free_stopped(self) -> None:
        """Free the members whose work has ended."""
        for batch in self._batches:
            for episode in batch.members:
                member = self._at(episode, MemberStage.STOPPED)
                if member is not None and not member.running:
                    member.stage = MemberStage.FREEING
                    self._desk.emit(Free(episode))

    def take_finished(self) -> list[Batch]:
        """The batches that have ended, their calls answered; their members are forgotten."""
        finished = [batch for batch in self._batches if self._is_finished(batch)]
        for batch in finished:
            self._batches.remove(batch)
            for call in self._desk.still(batch.calls):
                self._desk.answer(call, RetireReply(retired=batch.calls[call]))
        named = {episode for batch in self._batches for episode in batch.members}
        for batch in finished:
            for episode in batch.members - named:
                self._drop(episode)
        return finished

    def _is_finished(self, batch: Batch) -> bool:
        return all(self._at(episode, MemberStage.FREED) for episode in batch.members)

    def _drop(self, episode: EpisodeId) -> None:
        rollout = self._members.get(episode.rollout_id, {})
        rollout.pop(episode, None)
        if not rollout:
            self._members.pop(episode.rollout_id, None)

    def _at(self, episode: EpisodeId, stage: MemberStage) -> Member | None:
        member = self._members.get(episode.rollout_id, {}).get(episode)
        return member if member is not None and member.stage is stage else None

    def _all(self) -> Iterator[Member]:
        rollouts: Iterable[dict[EpisodeId, Member]] = self._members.values()
        return (member for rollout in rollouts for member in rollout.values())
