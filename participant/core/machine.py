"""The machine of one participant: small machines, and the rules that couple them.

Each of these minds one thing and knows none of the others: the phase table, the lease,
admission, the fences, the save, the restore, the retirements.  What they owe each other:

1. *Admission is closed* in every phase but idle; while a restore runs; and while state is
   being freed that a call could otherwise find half gone (a *hold*).  It opens when the
   last of these ends, never before.
2. *Ready* means: the hooks know that admission is closed, and nothing blocks.  An attempt
   being retired and a hold block, so no export can hold half of either.
3. *An id is spent* once it was resumed, by command or by its lease.  It is remembered
   before anything is called off, so that no late command slips in between.
4. *A save is called off before admission opens.*  One that has claimed publication is
   waited for until the resume's own deadline, and after that shown as unknown; an export
   that hangs is not waited for at all.
5. *An install cannot be called off.*  A restore that outlived its deadline keeps admission
   closed until it has ended; retires wait for it too, since it may bring what they free.
6. *The lease is looked at in every step,* so that a timer that comes late lets nothing in.

``step(now, event)`` returns effects in the order in which they are to be carried out.
Time is an argument, in monotonic seconds, and :meth:`Machine.wakeup` says when the
machine wants to be asked next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core import events as ev
from participant.core.census import Census, CensusError
from participant.core.checkpoint_rules import POLL_S, CheckpointRules
from participant.core.effects import (
    Effect,
    Go,
    Note,
    OpenAdmission,
    TurnAway,
    Wait,
    Wake,
)
from participant.core.errors import (
    DeadlineExceededError,
    InternalError,
    ParticipantError,
    StaleAttemptError,
    StaleCheckpointError,
)
from participant.core.messages import (
    Commit,
    Prepare,
    PrepareReply,
    Renew,
    Request,
    Restore,
    Resume,
    ResumeReply,
    Retire,
    StatusReply,
)
from participant.core.phases import Move, Phase
from participant.core.restore_rules import RestoreRules
from participant.core.restoring import RestoreStage
from participant.core.state import Ending, Limits, State

__all__ = ["Machine"]

_Handler = Callable[[float, Any], None]


class Machine:
    """Decides what a participant does.  Not thread-safe: one thread owns it."""

    def __init__(self, participant: ParticipantId, limits: Limits, census: Census) -> None:
        self._participant = participant
        self._state = State(limits, census)
        self._checkpoint = CheckpointRules(self._state)
        self._restore = RestoreRules(self._state)
        self._commands: dict[type[Request], Callable[[float, ev.Call, Any], None]] = {
            Prepare: self._checkpoint.prepare,
            Renew: self._checkpoint.renew,
            Commit: self._checkpoint.commit,
            Restore: self._restore.restore,
            Retire: self._restore.retire,
            Resume: self._resume,
        }
        self._handlers = self._handlers_of_work() | self._handlers_of_jobs()

    @property
    def phase(self) -> Phase:
        """Where the participant is."""
        return self._state.phase

    @property
    def is_closed(self) -> bool:
        """Whether attributed calls wait."""
        return self._state.gate.closed

    @property
    def lease_expires_at(self) -> float | None:
        """When the lease runs out, in monotonic seconds.  A writer asks before it publishes."""
        return self._state.lease.expires_at

    @property
    def restored_pending(self) -> frozenset[EpisodeId]:
        """Restored attempts whose replacement has not started."""
        return frozenset(self._state.restored.pending)

    @property
    def table_sizes(self) -> dict[str, int]:
        """How much each table holds; at rest everything but unexpired fences is zero."""
        state = self._state
        return {
            "calls": len(state.gate),
            "commands": len(state.desk),
            "blockers": len(state.blockers),
            "retiring": len(state.retiring),
            "holds": len(state.holds),
            "doubts": int(state.committing.publication is not None),
            "pending": len(state.restored.pending),
            "fences": len(state.fences),
        }

    @property
    def evicted_fences(self) -> int:
        """How many fences were dropped before their time, because there were too many."""
        return self._state.fences.evicted

    def wakeup(self) -> float | None:
        """When to call :meth:`step` with a ``Tick`` at the latest; None if never."""
        state = self._state
        times = [
            state.desk.next_deadline,
            state.lease.expires_at,
            state.fences.next_expiry,
            self._restore.next_deadline,
            state.ending.deadline if state.ending else None,
            self._checkpoint.poll_at if state.phase is Phase.PREPARING else None,
        ]
        return min((t for t in times if t is not None and t < math.inf), default=None)

    def status(self, now: float, wall_now: float) -> StatusReply:
        """The state as it is told; ``wall_now`` in Unix seconds.

        Raises:
            CensusError: the hooks could not count.
        """
        state = self._state
        lease = state.lease.expires_at
        return StatusReply(
            kind=self._participant.kind,
            instance=self._participant.instance,
            phase=state.phase,
            checkpoint_id=state.checkpoint_id,
            lease_expires_at=None if lease is None else lease + (wall_now - now),
            report=state.report(),
            retiring=len(state.retiring),
            publication=state.committing.publication,
            extras=dict(state.census.status(len(state.restored.pending))),
        )

    def step(self, now: float, event: ev.Event) -> tuple[Effect, ...]:
        """Take an event in; what has to be done about it, in order."""
        self._expire(now)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(now, event)
        self._restore.finish_retires(now)
        self._finish_ending(now)
        self._checkpoint.become_ready()
        self._open_if_free()
        return self._state.desk.take()

    def _handlers_of_work(self) -> dict[type[Any], _Handler]:
        """Commands, calls of clients, and time."""
        gate = self._state.gate
        return {
            ev.Call: self._call,
            ev.HangUp: lambda _, event: self._state.desk.drop(event.call),
            ev.Tick: self._tick,
            ev.Enter: self._enter,
            ev.Retry: self._retry,
            ev.Leave: self._leave,
            ev.StepBegins: lambda _, event: gate.step_begins(event.ticket, event.mode),
            ev.StepEnds: lambda _, event: gate.step_ends(event.ticket),
            ev.Boundary: self._boundary,
        }

    def _handlers_of_jobs(self) -> dict[type[Any], _Handler]:
        """The ends of what the shell was asked to do."""
        committing, retiring = self._state.committing, self._state.retiring
        return {
            ev.Closed: self._closed,
            ev.CloseFailed: self._close_failed,
            ev.Exported: self._checkpoint.exported,
            ev.Written: lambda _, event: self._checkpoint.written(event),
            ev.Abandoned: lambda _, event: committing.abandoned(event.number, clear=event.clear),
            ev.Settled: lambda _, event: committing.settled(event.number),
            ev.Released: lambda _, event: self._checkpoint.released(event.number),
            ev.Loaded: lambda _, event: self._restore.loaded(event),
            ev.Installed: lambda _, event: self._restore.installed(event),
            ev.Failed: self._failed,
            ev.Stopped: lambda _, event: retiring.stopped(event.episode),
            ev.Freed: lambda _, event: retiring.freed(event.episode),
            ev.RetireFailed: lambda _, event: retiring.failed(event.episode, event.error),
        }

    def _enter(self, now: float, event: ev.Enter) -> None:
        state = self._state
        try:
            if event.episode is not None:
                self._refuse_stale(now, event.episode)
            runs = state.gate.enter(event.ticket, event.episode, event.key)
        except ParticipantError as error:
            state.desk.emit(Note("refused", error.code), TurnAway(event.ticket, error))
            return
        self._tell(event.ticket, event.episode, runs=runs)

    def _retry(self, now: float, event: ev.Retry) -> None:
        gate = self._state.gate
        call = gate.get(event.ticket)
        if call is not None:
            runs = gate.retry(call.ticket) if call.waits else gate.unpark(call.ticket)
            self._tell(call.ticket, call.episode, runs=runs)

    def _tell(self, ticket: int, episode: EpisodeId | None, *, runs: bool) -> None:
        if runs and episode is not None:
            self._state.restored.started(episode)
        self._state.desk.emit(Go(ticket) if runs else Wait(ticket))

    def _leave(self, now: float, event: ev.Leave) -> None:
        call = self._state.gate.leave(event.ticket)
        if call is not None and call.episode is not None:
            self._state.retiring.left(call.episode, call.ticket)

    def _boundary(self, now: float, event: ev.Boundary) -> None:
        parks = self._state.gate.boundary(event.ticket)
        self._state.desk.emit(Wait(event.ticket) if parks else Go(event.ticket))

    def _refuse_stale(self, now: float, episode: EpisodeId) -> None:
        state, key = self._state, episode.capture_key
        if state.retiring.covers(episode):
            raise StaleAttemptError(f"{key} is being retired")
        ago = state.fences.retired_ago(now, episode)
        if ago is not None:
            raise StaleAttemptError(f"{key} was retired or given up here {ago:.1f} s ago")
        later = state.restored.continued_by(episode)
        if later is not None:
            raise StaleAttemptError(
                f"{key} ran before the restore of checkpoint "
                f"{state.restored.source_checkpoint_id}; attempt {later} continues it"
            )
        later = state.gate.latest_attempt(episode.rollout_id)
        if later is not None and later > episode.attempt:
            raise StaleAttemptError(f"{key} is over: attempt {later} is here")

    def _open_if_free(self) -> None:
        state = self._state
        is_busy = state.phase is not Phase.IDLE or state.restoring is not None or state.holds
        if state.gate.closed and not is_busy:
            tickets = state.gate.open()
            state.desk.emit(OpenAdmission())
            if tickets:
                state.desk.emit(Wake(tickets))

    def _call(self, now: float, event: ev.Call) -> None:
        try:
            self._commands[type(event.request)](now, event, event.request)
        except ParticipantError as error:
            self._state.desk.refuse(event.call, error)
        except CensusError as error:
            self._state.desk.refuse(event.call, InternalError(str(error)))

    def _closed(self, now: float, event: ev.Closed) -> None:
        restoring = self._state.restoring
        if restoring is None:
            self._state.hooks_closed = True
        elif restoring.stage is RestoreStage.CLOSING:
            self._restore.closed(restoring)

    def _close_failed(self, now: float, event: ev.CloseFailed) -> None:
        restoring = self._state.restoring
        if restoring is None:
            self._checkpoint.fail_prepare(event.error)
        elif restoring.stage is RestoreStage.CLOSING:
            self._restore.failed(event.error)

    def _failed(self, now: float, event: ev.Failed) -> None:
        restoring = self._state.restoring
        if restoring is not None and restoring.number == event.number:
            self._restore.failed(event.error)
        else:
            self._checkpoint.failed(now, event)

    def _resume(self, now: float, call: ev.Call, request: Resume) -> None:
        state = self._state
        is_open = request.checkpoint_id == state.checkpoint_id
        if not is_open and request.checkpoint_id not in state.resumed:
            state.check_open_id(request)
            state.remember(request.checkpoint_id)
        if not is_open:
            state.desk.answer(call.call, ResumeReply(phase=Phase.IDLE, idempotent=True))
            return
        deadline = now + max(call.budget_s, 0.0)
        state.desk.hold(call.call, Move.RESUME, math.inf, 0.0)
        if state.ending is not None:
            state.ending.calls.append(call.call)
            state.ending.deadline = min(state.ending.deadline, deadline)
        else:
            self._end(Move.RESUME, deadline, [call.call])

    def _expire(self, now: float) -> None:
        state = self._state
        if state.ending is None and state.lease.has_expired(now):
            state.desk.emit(Note("lease_expired", state.phase))
            self._end(Move.EXPIRE, now, [])
            self._finish_ending(now)

    def _end(self, move: Move, deadline: float, calls: list[int]) -> None:
        """Begin to end the open checkpoint; :meth:`_finish_ending` does when it may."""
        state = self._state
        assert state.checkpoint_id is not None
        state.remember(state.checkpoint_id)
        state.ending = Ending(move, deadline, calls)
        error = StaleCheckpointError(f"{state.checkpoint_id} was resumed meanwhile")
        state.desk.refuse_all(Move.COMMIT, error)
        state.desk.refuse_all(Move.RESTORE, error)
        state.committing.call_off()
        self._restore.give_up()

    def _finish_ending(self, now: float) -> None:
        state, ending = self._state, self._state.ending
        if ending is None:
            return
        save = state.committing.save
        is_moving = state.holds or not (save is None or save.is_settled)
        if state.restoring is not None and state.restoring.is_installing:
            is_moving = True
        if is_moving and now < ending.deadline:
            return
        if ending.move is Move.EXPIRE and state.phase is Phase.RESTORED:
            self._lose_restored(now)
        state.committing.give_up()
        state.move(ending.move)
        if state.restoring is not None and not state.restoring.is_installing:
            state.restoring = None
        state.ending = None
        state.checkpoint_id = None
        state.prepared = None
        state.lease.end()
        self._open_if_free()
        self._answer_ended(ending)

    def _answer_ended(self, ending: Ending) -> None:
        desk = self._state.desk
        for call in desk.still(ending.calls):
            desk.answer(call, ResumeReply(phase=self._state.phase, idempotent=False))
        if not desk.waiting(Move.PREPARE):
            return
        try:
            reply = PrepareReply(phase=self._state.phase, report=self._state.report())
        except CensusError as error:
            desk.refuse_all(Move.PREPARE, InternalError(str(error)))
        else:
            desk.answer_all(Move.PREPARE, reply)

    def _lose_restored(self, now: float) -> None:
        """The lease ran out in restored: what was installed must never start running."""
        state = self._state
        state.is_spoiled = True
        for call in list(state.gate.waiting()):
            state.gate.leave(call.ticket)
            error = StaleAttemptError("the restore that it waited for ran out of its lease")
            state.desk.emit(TurnAway(call.ticket, error))
        restored = state.restored.all()
        for episode in restored:
            state.fences.add(now, episode)
        state.restored.discard(restored)
        if restored:
            state.release(restored)

    def _tick(self, now: float, event: ev.Tick) -> None:
        self._state.fences.purge(now)
        if now >= self._checkpoint.poll_at:
            self._checkpoint.poll_at = now + POLL_S
        for call, move, wall_offset in self._state.desk.due(now):
            self._overdue(call, move, now + wall_offset)
        self._restore.tick(now)

    def _overdue(self, call: int, move: Move, wall_now: float) -> None:
        state = self._state
        if move is Move.PREPARE:
            self._not_ready(call)
            return
        late = f"the deadline passed during {move}; it is {wall_now:.3f} here"
        if move is Move.RETIRE:
            keys = sorted(episode.capture_key for episode in state.retiring.unfinished)
            late += f", and {len(keys)} attempts have not stopped: {', '.join(keys[:3])}"
        state.desk.refuse(call, DeadlineExceededError(f"{late}; a repeat waits on"))

    def _not_ready(self, call: int) -> None:
        state = self._state
        state.desk.emit(Note("prepare_not_ready"))
        try:
            report = state.report()
        except CensusError as error:
            self._checkpoint.fail_prepare(InternalError(str(error)))
        else:
            state.desk.answer(call, PrepareReply(phase=state.phase, report=report))
