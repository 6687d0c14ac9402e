"""The machine of one participant: small machines, and the rules that couple them.

Each of these minds one thing and knows none of the others: the phase table, the lease,
admission (:class:`Gate`), the fences, the save, the restore, the retirements.  What they
owe each other is written here, and only here:

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

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core import events as ev
from participant.core.census import Census, CensusError
from participant.core.committing import Committing, Save, SaveStage
from participant.core.desk import Desk
from participant.core.effects import (
    CloseAdmission,
    Effect,
    Forget,
    Go,
    Install,
    Load,
    Note,
    OpenAdmission,
    Release,
    TurnAway,
    Wait,
    Wake,
)
from participant.core.errors import (
    CheckpointConflictError,
    DeadlineExceededError,
    InternalError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    ParticipantError,
    StaleAttemptError,
    StaleCheckpointError,
)
from participant.core.fences import Fences
from participant.core.gate import Blockers, Gate
from participant.core.lease import Lease
from participant.core.messages import (
    Commit,
    CommitReply,
    Prepare,
    PrepareReply,
    Renew,
    RenewReply,
    Report,
    Request,
    Restore,
    RestoreReply,
    Resume,
    ResumeReply,
    Retire,
    StatusReply,
)
from participant.core.phases import TABLE, Move, Phase
from participant.core.restoring import Restored, RestoreStage, Restoring
from participant.core.retiring import Retiring

__all__ = ["POLL_S", "REMEMBERED_IDS", "Limits", "Machine"]

REMEMBERED_IDS: Final = 64
"""How many resumed checkpoint ids are remembered; the next resume forgets the first."""

POLL_S: Final = 1.0
"""Readiness is asked at least this often, in case a notification was forgotten."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that the machine obeys; seconds, and a number of calls."""

    lease_grace_s: float = 600.0
    retire_fence_s: float = 60.0
    max_waiting: int = 10_000


@dataclass(slots=True)
class _Ending:
    """A checkpoint that is being ended, and the resumes that wait for that."""

    move: Move
    deadline: float
    calls: list[int] = field(default_factory=list)


class Machine:
    """Decides what a participant does.  Not thread-safe: one thread owns it."""

    def __init__(self, participant: ParticipantId, limits: Limits, census: Census) -> None:
        self._participant = participant
        self._limits = limits
        self._census = census
        self._desk = Desk()
        self._blockers = Blockers()
        self._gate = Gate(limits.max_waiting, self._blockers)
        self._fences = Fences(limits.retire_fence_s)
        self._lease = Lease()
        self._committing = Committing(self._desk)
        self._retiring = Retiring(self._desk, self._gate, self._blockers)
        self._restoring: Restoring | None = None
        self._restored = Restored()
        self._ending: _Ending | None = None
        self._holds: dict[int, frozenset[EpisodeId]] = {}
        self._resumed: OrderedDict[str, None] = OrderedDict()
        self._phase = Phase.IDLE
        self._checkpoint_id: str | None = None
        self._hooks_closed = False
        self._prepared: PrepareReply | None = None
        self._is_spoiled = False
        self._failed_restore_id: str | None = None
        self._poll_at = 0.0
        self._handlers = self._table_of_handlers()

    @property
    def phase(self) -> Phase:
        """Where the participant is."""
        return self._phase

    @property
    def is_closed(self) -> bool:
        """Whether attributed calls wait."""
        return self._gate.closed

    @property
    def lease_expires_at(self) -> float | None:
        """When the lease runs out, in monotonic seconds.  A writer asks before it publishes."""
        return self._lease.expires_at

    @property
    def restored_pending(self) -> frozenset[EpisodeId]:
        """Restored attempts whose replacement has not started."""
        return frozenset(self._restored.pending)

    @property
    def table_sizes(self) -> dict[str, int]:
        """How much each table holds; at rest everything but unexpired fences is zero."""
        return {
            "calls": len(self._gate),
            "blockers": len(self._blockers),
            "retiring": len(self._retiring.unfinished),
            "holds": len(self._holds),
            "pending": len(self._restored.pending),
            "fences": len(self._fences),
        }

    def wakeup(self) -> float | None:
        """When to call :meth:`step` with a ``Tick`` at the latest; None if never."""
        times = [self._desk.next_deadline, self._lease.expires_at, self._fences.next_expiry]
        if self._ending is not None:
            times.append(self._ending.deadline)
        if self._phase is Phase.PREPARING:
            times.append(self._poll_at)
        return min((time for time in times if time is not None), default=None)

    def status(self, now: float, wall_now: float) -> StatusReply:
        """The state as it is told; ``wall_now`` in Unix seconds.

        Raises:
            CensusError: the hooks could not count.
        """
        lease = self._lease.expires_at
        return StatusReply(
            kind=self._participant.kind,
            instance=self._participant.instance,
            phase=self._phase,
            checkpoint_id=self._checkpoint_id,
            lease_expires_at=None if lease is None else lease + (wall_now - now),
            report=self._report(),
            retiring=len(self._retiring.unfinished),
            publication=self._committing.publication,
            extras=dict(self._census.status(len(self._restored.pending))),
        )

    def step(self, now: float, event: ev.Event) -> tuple[Effect, ...]:
        """Take an event in; what has to be done about it, in order."""
        self._expire(now)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(now, event)
        self._after(now)
        return self._desk.take()

    def _table_of_handlers(self) -> dict[type[Any], Callable[[float, Any], None]]:
        return {
            ev.Call: self._call,
            ev.HangUp: lambda _, event: self._desk.drop(event.call),
            ev.Tick: self._tick,
            ev.Closed: self._closed,
            ev.CloseFailed: lambda _, event: self._close_failed(event.error),
            ev.Enter: self._enter,
            ev.Retry: self._retry,
            ev.Leave: self._leave,
            ev.StepBegins: lambda _, event: self._gate.step_begins(event.ticket, event.mode),
            ev.StepEnds: lambda _, event: self._gate.step_ends(event.ticket),
            ev.Boundary: self._boundary,
            ev.Exported: self._exported,
            ev.Written: self._written,
            ev.Abandoned: lambda _, e: self._committing.abandoned(e.number, clear=e.clear),
            ev.Settled: lambda _, event: self._committing.settled(event.number),
            ev.Loaded: self._loaded,
            ev.Installed: self._installed,
            ev.Released: lambda _, event: self._released(event.number),
            ev.Failed: self._failed,
            ev.Stopped: lambda _, event: self._retiring.stopped(event.episode),
            ev.Freed: lambda _, event: self._retiring.freed(event.episode),
            ev.RetireFailed: lambda _, e: self._retiring.failed(e.episode, e.error),
        }

    def _after(self, now: float) -> None:
        """The joint rules, looked at after every event."""
        if self._restoring is None or not self._restoring.is_installing:
            self._retiring.free_stopped()
        self._finish_retires(now)
        self._finish_ending(now)
        self._become_ready(now)
        self._open_if_free()

    # Admission.

    def _enter(self, now: float, event: ev.Enter) -> None:
        try:
            if event.episode is not None:
                self._refuse_stale(now, event.episode)
            runs = self._gate.enter(event.ticket, event.episode, event.key)
        except ParticipantError as error:
            self._desk.emit(Note("refused", error.code), TurnAway(event.ticket, error))
            return
        if runs and event.episode is not None:
            self._restored.started(event.episode)
        self._desk.emit(Go(event.ticket) if runs else Wait(event.ticket))

    def _retry(self, now: float, event: ev.Retry) -> None:
        call = self._gate.get(event.ticket)
        if call is None:
            return
        if not call.waits:
            runs = self._gate.unpark(call.ticket)
        else:
            runs = self._gate.retry(call.ticket)
            if runs and call.episode is not None:
                self._restored.started(call.episode)
        self._desk.emit(Go(call.ticket) if runs else Wait(call.ticket))

    def _leave(self, now: float, event: ev.Leave) -> None:
        call = self._gate.leave(event.ticket)
        if call is not None and call.episode is not None:
            self._retiring.left(call.episode, call.ticket)

    def _boundary(self, now: float, event: ev.Boundary) -> None:
        parks = self._gate.boundary(event.ticket)
        self._desk.emit(Wait(event.ticket) if parks else Go(event.ticket))

    def _refuse_stale(self, now: float, episode: EpisodeId) -> None:
        key = episode.capture_key
        if self._retiring.covers(episode):
            raise StaleAttemptError(f"{key} is being retired")
        ago = self._fences.retired_ago(now, episode)
        if ago is not None:
            raise StaleAttemptError(f"{key} was retired {ago:.1f} s ago")
        later = self._restored.continued_by(episode)
        if later is not None:
            raise StaleAttemptError(
                f"{key} ran before the restore of checkpoint "
                f"{self._restored.source_checkpoint_id}; attempt {later} continues it"
            )
        for other in self._gate.of_rollout(episode):
            if other.episode is not None and other.episode.attempt > episode.attempt:
                raise StaleAttemptError(f"{key} is over: {other.episode.capture_key} is here")

    def _open_if_free(self) -> None:
        busy = self._phase is not Phase.IDLE or self._restoring is not None or self._holds
        if self._gate.closed and not busy:
            self._desk.emit(OpenAdmission())
            if tickets := self._gate.open():
                self._desk.emit(Wake(tickets))

    def _hold(self, number: int, episodes: frozenset[EpisodeId]) -> None:
        self._holds[number] = episodes
        for episode in episodes:
            self._blockers.add(episode)

    def _unhold(self, number: int) -> None:
        for episode in self._holds.pop(number, frozenset()):
            self._blockers.remove(episode)

    # Commands.

    def _call(self, now: float, event: ev.Call) -> None:
        request = event.request
        try:
            if isinstance(request, Prepare):
                self._prepare(now, event, request)
            elif isinstance(request, Renew):
                self._renew(now, event, request)
            elif isinstance(request, Retire):
                self._retire(now, event, request)
            elif isinstance(request, Commit):
                self._commit(now, event, request)
            elif isinstance(request, Restore):
                self._restore(now, event, request)
            else:
                self._resume(now, event, cast("Resume", request))
        except ParticipantError as error:
            self._desk.refuse(event.call, error)
        except CensusError as error:
            self._desk.refuse(event.call, InternalError(str(error)))

    def _check_id(self, request: Request) -> None:
        if request.checkpoint_id in self._resumed:
            raise StaleCheckpointError(f"{request.checkpoint_id} was resumed here; use another id")
        self._check_open_id(request)

    def _check_open_id(self, request: Request) -> None:
        if self._checkpoint_id not in (None, request.checkpoint_id):
            raise CheckpointConflictError(
                f"{self._checkpoint_id} is open in phase {self._phase}; resume it first"
            )

    def _check_deadline(self, event: ev.Call) -> None:
        if event.budget_s <= 0:
            raise DeadlineExceededError(
                f"deadline_ts {event.request.deadline_ts:.3f} had passed by {-event.budget_s:.3f} s "
                f"on arrival; it is {event.wall_now:.3f} here"
            )

    def _permit(self, move: Move, advice: str = "") -> None:
        if (self._phase, move) not in TABLE:
            raise InvalidPhaseError(f"{move} is not permitted in phase {self._phase}{advice}")

    def _move(self, move: Move) -> None:
        self._phase = TABLE[self._phase, move]

    def _wait(self, now: float, event: ev.Call, move: Move) -> None:
        self._desk.hold(event.call, move, now + event.budget_s, event.wall_now - now)

    def _extend_lease(self, now: float, event: ev.Call) -> None:
        self._lease.extend(now + event.budget_s + self._limits.lease_grace_s)

    def _prepare(self, now: float, event: ev.Call, request: Prepare) -> None:
        self._check_id(request)
        if event.budget_s <= 0:
            self._desk.answer(event.call, PrepareReply(phase=self._phase, report=self._report()))
            return
        self._permit(Move.PREPARE)
        if self._restoring is not None:
            raise InvalidPhaseError("a restore is under way; wait for its end, or resume it")
        self._extend_lease(now, event)
        if self._prepared is not None:
            self._desk.answer(event.call, self._prepared)
            return
        if self._phase is Phase.IDLE:
            self._checkpoint_id = request.checkpoint_id
            self._failed_restore_id = None
            self._hooks_closed = False
            self._gate.closed = True
            self._poll_at = now + POLL_S
            self._desk.emit(CloseAdmission(request.checkpoint_id, event.budget_s))
        self._move(Move.PREPARE)
        self._wait(now, event, Move.PREPARE)

    def _become_ready(self, now: float) -> None:
        if self._phase is not Phase.PREPARING or not self._hooks_closed or self._ending:
            return
        try:
            if self._blocking():
                return
            report = self._report()
        except CensusError as error:
            self._fail_prepare(InternalError(f"waiting for readiness failed: {error}"))
            return
        self._move(Move.READY)
        self._prepared = PrepareReply(phase=self._phase, report=report)
        self._desk.answer_all(Move.PREPARE, self._prepared)

    def _blocking(self) -> int:
        return len(self._blockers) + self._census.blocking()

    def _report(self) -> Report:
        count = self._blocking()
        blockers = self._blockers.listed(self._census.blockers()) if count else ()
        return Report(
            ready=count == 0,
            blockers=blockers,
            blocker_count=count,
            counts=dict(self._census.counts(self._gate.counts)),
        )

    def _fail_prepare(self, error: ParticipantError) -> None:
        self._move(Move.FAIL)
        self._checkpoint_id = None
        self._lease.end()
        self._desk.refuse_all(Move.PREPARE, error)

    def _renew(self, now: float, event: ev.Call, request: Renew) -> None:
        self._check_id(request)
        self._permit(Move.RENEW)
        self._extend_lease(now, event)
        assert self._lease.expires_at is not None
        told = self._lease.expires_at + (event.wall_now - now)
        self._desk.answer(event.call, RenewReply(lease_expires_at=told))

    def _retire(self, now: float, event: ev.Call, request: Retire) -> None:
        self._check_open_id(request)
        self._check_deadline(event)
        self._permit(Move.RETIRE, "; resume first")
        if self._phase is Phase.RESTORED:
            self._extend_lease(now, event)
        rolls_back = self._phase is Phase.RESTORED or request.checkpoint_id in (
            self._failed_restore_id,
            self._restoring.checkpoint_id if self._restoring else None,
        )
        self._wait(now, event, Move.RETIRE)
        self._retiring.join(event.call, request.episodes, leaves_fence=not rolls_back)

    def _finish_retires(self, now: float) -> None:
        for batch in self._retiring.take_finished():
            for episode in batch.members:
                self._restored.retired(episode)
                if batch.leaves_fence:
                    self._fences.add(now, episode)

    def _commit(self, now: float, event: ev.Call, request: Commit) -> None:
        self._check_id(request)
        self._committing.check_arguments(request)
        self._check_deadline(event)
        self._permit(Move.COMMIT)
        save = self._committing.save
        if save is None or save.stage is SaveStage.NEW:
            self._check_ready()
        self._extend_lease(now, event)
        if save is not None and save.reply is not None:
            self._desk.answer(event.call, save.reply)
            return
        self._wait(now, event, Move.COMMIT)
        self._committing.begin(request)
        self._proceed()

    def _check_ready(self) -> None:
        if self._blocking():
            report = self._report()
            raise InvalidPhaseError(
                f"no longer ready: {report.blocker_count} executions are not at a boundary, "
                f"among them {', '.join(report.blockers[:3])}; resume, and prepare under another id"
            )

    def _proceed(self) -> None:
        """Take the save one step on; committed once nothing is left to do."""
        self._committing.proceed(frozenset(self._restored.pending))
        save = self._committing.save
        assert save is not None
        if save.stage is SaveStage.RELEASING and save.number not in self._holds:
            self._hold(save.number, save.scope.left_out(self._restored.pending))
        if save.stage is SaveStage.DONE and save.reply is None:
            self._committed(save)

    def _committed(self, save: Save) -> None:
        self._move(Move.COMMIT)
        save.reply = CommitReply(
            phase=self._phase,
            manifest=save.manifest,
            episode_ids=tuple(sorted(episode.capture_key for episode in save.episodes)),
            extras=save.extras,
        )
        self._desk.answer_all(Move.COMMIT, save.reply)

    def _exported(self, now: float, event: ev.Exported) -> None:
        save = self._committing.at(event.number, SaveStage.EXPORTING)
        if save is None or self._ending:
            return
        strangers = [e for e in event.episodes if e not in save.scope or self._is_retired(now, e)]
        if strangers:
            listed = ", ".join(sorted(e.capture_key for e in strangers)[:3])
            error = InvalidCheckpointStateError(
                f"the export returned records of {len(strangers)} episodes that are retired or "
                f"outside the scope: {listed}"
            )
            self._committing.failed(event.number, error, unknown=False)
            return
        save.stage = SaveStage.EXPORTED
        save.episodes = event.episodes
        save.extras = event.extras
        self._proceed()

    def _is_retired(self, now: float, episode: EpisodeId) -> bool:
        fenced = self._fences.retired_ago(now, episode) is not None
        return fenced or self._retiring.covers(episode)

    def _written(self, now: float, event: ev.Written) -> None:
        save = self._committing.at(event.number, SaveStage.WRITING)
        self._committing.settled(event.number)
        if save is None:
            return
        save.stage = SaveStage.WRITTEN
        save.manifest = event.manifest
        if self._ending is None:
            self._proceed()

    def _released(self, number: int) -> None:
        save = self._committing.at(number, SaveStage.RELEASING)
        self._restored.discard(self._holds.get(number, frozenset()))
        self._unhold(number)
        if save is not None:
            save.stage = SaveStage.DONE
            if self._ending is None:
                self._committed(save)

    def _failed(self, now: float, event: ev.Failed) -> None:
        restoring = self._restoring
        if restoring is not None and restoring.number == event.number:
            self._restore_failed(event.error)
            return
        held = self._holds.get(event.number, frozenset())
        self._unhold(event.number)
        ours = self._committing.failed(event.number, event.error, unknown=event.unknown)
        if held and (not ours or self._ending is not None):
            # Nobody will try again, and what is left of them must not be taken for theirs.
            for episode in held:
                self._fences.add(now, episode)

    # Restore.

    def _restore(self, now: float, event: ev.Call, request: Restore) -> None:
        self._check_id(request)
        restoring = self._restoring
        if restoring is not None:
            restoring.check_arguments(request)
        self._check_deadline(event)
        self._permit(Move.RESTORE)
        until = now + event.budget_s + self._limits.lease_grace_s
        if restoring is not None and restoring.reply is not None:
            self._lease.extend(until)
            self._desk.answer(event.call, restoring.reply)
            return
        if restoring is None:
            if self._holds:
                raise InvalidPhaseError("state of an earlier checkpoint is still being freed")
            self._begin_restore(event, request)
            restoring = self._restoring
        assert restoring is not None
        restoring.outlived = False
        restoring.lease_until = max(restoring.lease_until, until)
        self._wait(now, event, Move.RESTORE)

    def _begin_restore(self, event: ev.Call, request: Restore) -> None:
        self._restoring = Restoring(
            self._desk.number(),
            request.checkpoint_id,
            request.checkpoint_dir,
            request.episodes,
            lease_until=0.0,
        )
        self._checkpoint_id = request.checkpoint_id
        self._gate.closed = True
        self._desk.emit(CloseAdmission(request.checkpoint_id, event.budget_s))

    def _closed(self, now: float, event: ev.Closed) -> None:
        restoring = self._restoring
        if restoring is None:
            self._hooks_closed = True
        elif restoring.stage is RestoreStage.CLOSING:
            try:
                self._check_fresh()
            except ParticipantError as error:
                self._restore_failed(error)
                return
            restoring.stage = RestoreStage.LOADING
            self._desk.emit(Load(restoring.number, restoring.checkpoint_dir, restoring.episodes))

    def _close_failed(self, error: ParticipantError) -> None:
        if self._restoring is not None and self._restoring.stage is RestoreStage.CLOSING:
            self._restore_failed(error)
        elif self._phase is Phase.PREPARING and not self._hooks_closed:
            self._fail_prepare(error)

    def _check_fresh(self) -> None:
        try:
            held = [*self._blockers.listed(self._census.held())][:3]
        except CensusError as error:
            raise InternalError(str(error)) from error
        advice = "restore into a process that was just started"
        if self._gate.has_served:
            raise InvalidPhaseError(f"this process has served episodes; {advice}")
        if held or self._restored.pending:
            names = held or sorted(e.capture_key for e in self._restored.pending)[:3]
            raise InvalidPhaseError(f"this process holds {', '.join(names)}; {advice}")
        if self._is_spoiled:
            raise InvalidPhaseError(f"an earlier restore ran out of its lease; {advice}")

    def _loaded(self, now: float, event: ev.Loaded) -> None:
        restoring = self._restoring
        if restoring is None or restoring.number != event.number:
            return
        restoring.stage = RestoreStage.INSTALLING
        restoring.source_checkpoint_id = event.source_checkpoint_id
        restoring.found = event.episodes
        self._desk.emit(Install(restoring.number, restoring.continued))

    def _installed(self, now: float, event: ev.Installed) -> None:
        restoring = self._restoring
        if restoring is None or restoring.number != event.number:
            return
        restoring.stage = RestoreStage.INSTALLED
        if restoring.outlived:
            self._drop_restore(releases=True)
            return
        self._move(Move.RESTORE)
        self._restored.installed(restoring)
        for episode in restoring.continued:
            self._fences.lift(episode)
        self._lease.extend(restoring.lease_until)
        restoring.reply = RestoreReply(
            phase=self._phase,
            source_checkpoint_id=restoring.source_checkpoint_id,
            restored=restoring.restored_keys,
        )
        self._desk.answer_all(Move.RESTORE, restoring.reply)
        self._desk.emit(Forget(restoring.number))

    def _restore_failed(self, error: ParticipantError) -> None:
        restoring = self._restoring
        assert restoring is not None
        self._desk.refuse_all(Move.RESTORE, error)
        self._drop_restore(releases=restoring.is_installing)

    def _drop_restore(self, *, releases: bool) -> None:
        """A restore that did not succeed is over; a part of it may have to be freed."""
        restoring, self._restoring = self._restoring, None
        assert restoring is not None
        self._failed_restore_id = restoring.checkpoint_id
        self._desk.emit(Forget(restoring.number))
        if self._checkpoint_id == restoring.checkpoint_id and self._ending is None:
            self._checkpoint_id = None
        if releases:
            self._release(restoring.continued)

    def _release(self, episodes: frozenset[EpisodeId]) -> None:
        number = self._desk.number()
        self._hold(number, episodes)
        self._desk.emit(Release(number, episodes))

    # The end of a checkpoint.

    def _resume(self, now: float, event: ev.Call, request: Resume) -> None:
        ending = self._ending
        if ending is not None and request.checkpoint_id == self._checkpoint_id:
            ending.calls.append(event.call)
            self._desk.hold(event.call, Move.RESUME, float("inf"), 0.0)
            return
        if request.checkpoint_id in self._resumed:
            self._desk.answer(event.call, ResumeReply(phase=Phase.IDLE, idempotent=True))
            return
        self._check_open_id(request)
        if self._checkpoint_id is None:
            self._remember(request.checkpoint_id)
            self._desk.answer(event.call, ResumeReply(phase=Phase.IDLE, idempotent=True))
            return
        self._desk.hold(event.call, Move.RESUME, float("inf"), 0.0)
        self._end(Move.RESUME, now + max(event.budget_s, 0.0), [event.call])

    def _remember(self, checkpoint_id: str) -> None:
        self._resumed[checkpoint_id] = None
        while len(self._resumed) > REMEMBERED_IDS:
            self._resumed.popitem(last=False)

    def _expire(self, now: float) -> None:
        if self._ending is None and self._lease.has_expired(now):
            self._desk.emit(Note("lease_expired", self._phase))
            self._end(Move.EXPIRE, now, [])

    def _end(self, move: Move, deadline: float, calls: list[int]) -> None:
        """Begin to end the open checkpoint; :meth:`_finish_ending` does when it may."""
        assert self._checkpoint_id is not None
        self._remember(self._checkpoint_id)
        self._ending = _Ending(move, deadline, calls)
        error = StaleCheckpointError(f"{self._checkpoint_id} was resumed meanwhile")
        self._desk.refuse_all(Move.COMMIT, error)
        self._desk.refuse_all(Move.RESTORE, error)
        self._committing.call_off()
        restoring = self._restoring
        if restoring is not None and restoring.is_installing:
            restoring.outlived = True
        elif restoring is not None and self._phase is Phase.IDLE:
            self._drop_restore(releases=False)

    def _finish_ending(self, now: float) -> None:
        ending = self._ending
        if ending is None:
            return
        save = self._committing.save
        is_settled = save is None or save.is_settled
        is_installing = self._restoring is not None and self._restoring.is_installing
        if now < ending.deadline and (not is_settled or is_installing or self._holds):
            return
        if ending.move is Move.EXPIRE and self._phase is Phase.RESTORED:
            self._lose_restored(now)
        self._committing.give_up()
        self._move(ending.move)
        if self._restoring is not None and not self._restoring.is_installing:
            self._restoring = None
        self._ending = None
        self._checkpoint_id = None
        self._prepared = None
        self._lease.end()
        self._open_if_free()
        self._answer_ended(ending)

    def _answer_ended(self, ending: _Ending) -> None:
        for call in self._desk.still(ending.calls):
            self._desk.answer(call, ResumeReply(phase=self._phase, idempotent=False))
        if self._desk.waiting(Move.PREPARE):
            try:
                reply = PrepareReply(phase=self._phase, report=self._report())
                self._desk.answer_all(Move.PREPARE, reply)
            except CensusError as error:
                self._desk.refuse_all(Move.PREPARE, InternalError(str(error)))

    def _lose_restored(self, now: float) -> None:
        """The lease ran out in restored: what was installed must never start running."""
        self._is_spoiled = True
        restored = self._restored.all()
        for call in list(self._gate.waiting()):
            self._gate.leave(call.ticket)
            error = StaleAttemptError("the restore that it waited for ran out of its lease")
            self._desk.emit(TurnAway(call.ticket, error))
        for episode in restored:
            self._fences.add(now, episode)
        self._restored.discard(restored)
        if restored:
            self._release(restored)

    # Time.

    def _tick(self, now: float, event: ev.Tick) -> None:
        self._fences.purge(now)
        if now >= self._poll_at:
            self._poll_at = now + POLL_S
        for call, move, wall_offset in self._desk.due(now):
            self._overdue(call, move, now + wall_offset)
        restoring = self._restoring
        if restoring is None or restoring.reply is not None or self._desk.waiting(Move.RESTORE):
            return
        if restoring.is_installing:
            restoring.outlived = True
        elif self._ending is None:
            self._drop_restore(releases=False)

    def _overdue(self, call: int, move: Move, wall_now: float) -> None:
        if move is Move.PREPARE:
            self._desk.emit(Note("prepare_not_ready"))
            try:
                reply = PrepareReply(phase=self._phase, report=self._report())
            except CensusError as error:
                self._fail_prepare(InternalError(str(error)))
                return
            self._desk.answer(call, reply)
            return
        late = f"the deadline passed during {move}; it is {wall_now:.3f} here"
        if move is Move.RETIRE:
            names = sorted(e.capture_key for e in self._retiring.unfinished)
            late += f", and {len(names)} attempts have not stopped: {', '.join(names[:3])}"
        self._desk.refuse(call, DeadlineExceededError(f"{late}; repeat to wait on"))
