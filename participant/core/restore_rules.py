"""The commands that deal with attempts outside a checkpoint: restore and retire."""

from __future__ import annotations

from participant.core.census import CensusError
from participant.core.effects import CloseAdmission, Forget, Install, Load
from participant.core.errors import InternalError, InvalidPhaseError, ParticipantError
from participant.core.events import Call, Installed, Loaded
from participant.core.messages import Restore, RestoreReply, Retire
from participant.core.phases import Move, Phase
from participant.core.restoring import RestoreStage, Restoring
from participant.core.state import State

__all__ = ["RestoreRules"]


class RestoreRules:
    """Restore, from closing admission to restored or back to idle; and retire."""

    def __init__(self, state: State) -> None:
        self._state = state

    def retire(self, now: float, call: Call, request: Retire) -> None:
        """Refuse, stop and free attempts.  A spent id is no reason to refuse a retire."""
        state = self._state
        state.check_open_id(request)
        state.check_deadline(call)
        state.permit(Move.RETIRE, "; resume first")
        rolls_back = request.checkpoint_id == state.failed_restore_id
        if state.phase is Phase.RESTORED:
            state.lease.extend(state.lease_until(now, call))
            rolls_back = True
        elif state.restoring is not None:
            # Its controller has given the restore up: nothing of it may be installed after this.
            self.give_up()
            rolls_back = True
        state.wait(now, call, Move.RETIRE)
        state.retiring.join(call.call, request.episodes, leaves_fence=not rolls_back)

    def finish_retires(self, now: float) -> None:
        """Free what has stopped, and put up the fences of what is freed.

        An install under way may bring what a retire frees, and a release may be freeing it
        already, so both are waited for.
        """
        state = self._state
        is_installing = state.restoring is not None and state.restoring.is_installing
        if not is_installing and not state.holds:
            state.retiring.free_stopped()
        for batch in state.retiring.take_finished():
            for episode in batch.members:
                state.restored.retired(episode)
                if batch.leaves_fence:
                    state.fences.add(now, episode)

    def restore(self, now: float, call: Call, request: Restore) -> None:
        """Begin a restore, join it, or answer as before."""
        state = self._state
        state.check_id(request)
        if state.restoring is not None:
            state.restoring.check_arguments(request)
        state.check_deadline(call)
        state.permit(Move.RESTORE)
        until = state.lease_until(now, call)
        if state.restoring is not None and state.restoring.reply is not None:
            state.lease.extend(until)
            state.desk.answer(call.call, state.restoring.reply)
            return
        restoring = state.restoring or self._begin(call, request)
        restoring.outlived = False
        restoring.deadline = max(restoring.deadline, now + call.budget_s)
        restoring.lease_until = max(restoring.lease_until, until)
        state.wait(now, call, Move.RESTORE)

    def _begin(self, call: Call, request: Restore) -> Restoring:
        state = self._state
        if state.holds:
            raise InvalidPhaseError("state of an earlier checkpoint is still being freed; repeat")
        state.restoring = Restoring(
            state.desk.number(),
            request.checkpoint_id,
            request.checkpoint_dir,
            request.episodes,
        )
        state.checkpoint_id = request.checkpoint_id
        state.gate.closed = True
        state.desk.emit(CloseAdmission(request.checkpoint_id, call.budget_s))
        return state.restoring

    def closed(self, restoring: Restoring) -> None:
        """Admission is closed, so freshness can be told."""
        try:
            self._check_fresh()
        except ParticipantError as error:
            self.failed(error)
            return
        restoring.stage = RestoreStage.LOADING
        load = Load(restoring.number, restoring.checkpoint_dir, restoring.episodes)
        self._state.desk.emit(load)

    def _check_fresh(self) -> None:
        state = self._state
        advice = "restore into a process that was just started"
        try:
            held = state.blockers.listed(state.census.held())[:3]
        except CensusError as error:
            raise InternalError(f"what is held here could not be told: {error}") from error
        pending = tuple(sorted(e.capture_key for e in state.restored.pending)[:3])
        if held or pending:
            raise InvalidPhaseError(f"this process holds {', '.join(held or pending)}; {advice}")
        if state.gate.has_served:
            raise InvalidPhaseError(f"this process has served episodes; {advice}")
        if state.is_spoiled:
            raise InvalidPhaseError(f"an earlier restore ran out of its lease here; {advice}")

    def loaded(self, event: Loaded) -> None:
        """The records are read and verified."""
        restoring = self._at(event.number)
        if restoring is None:
            return
        restoring.stage = RestoreStage.INSTALLING
        restoring.source_checkpoint_id = event.source_checkpoint_id
        restoring.found = event.episodes
        self._state.desk.emit(Install(restoring.number, restoring.continued))

    def installed(self, event: Installed) -> None:
        """Everything is installed; if nobody wants it any more, it has to go again."""
        state = self._state
        restoring = self._at(event.number)
        if restoring is None:
            return
        restoring.stage = RestoreStage.INSTALLED
        if restoring.outlived:
            self._drop(restoring, releases=True)
            return
        state.move(Move.RESTORE)
        state.restored.installed(restoring)
        for episode in restoring.continued:
            state.fences.lift(episode)
        state.lease.extend(restoring.lease_until)
        restoring.reply = RestoreReply(
            phase=state.phase,
            source_checkpoint_id=restoring.source_checkpoint_id,
            restored=restoring.restored_keys,
        )
        state.desk.answer_all(Move.RESTORE, restoring.reply)
        state.desk.emit(Forget(restoring.number))

    def failed(self, error: ParticipantError) -> None:
        """The restore failed.  An install that raised may have left something behind."""
        restoring = self._state.restoring
        assert restoring is not None
        self._state.desk.refuse_all(Move.RESTORE, error)
        self._drop(restoring, releases=restoring.is_installing)

    def give_up(self) -> None:
        """Nobody waits any more: drop the restore, or let its install end and be freed."""
        restoring = self._state.restoring
        if restoring is None or restoring.reply is not None:
            return
        self._state.failed_restore_id = restoring.checkpoint_id
        if restoring.is_installing:
            restoring.outlived = True
        else:
            self._drop(restoring, releases=False)

    def tick(self, now: float) -> None:
        """Give up a restore whose last deadline has passed."""
        restoring = self._state.restoring
        if restoring is not None and now >= restoring.deadline:
            self.give_up()

    @property
    def next_deadline(self) -> float | None:
        """When the restore under way is given up."""
        restoring = self._state.restoring
        if restoring is None or restoring.outlived or restoring.reply is not None:
            return None
        return restoring.deadline

    def _at(self, number: int) -> Restoring | None:
        restoring = self._state.restoring
        return restoring if restoring is not None and restoring.number == number else None

    def _drop(self, restoring: Restoring, *, releases: bool) -> None:
        """A restore that did not succeed is over; a part of it may have to be freed."""
        state = self._state
        state.restoring = None
        state.failed_restore_id = restoring.checkpoint_id
        state.desk.emit(Forget(restoring.number))
        if state.ending is None and state.checkpoint_id == restoring.checkpoint_id:
            state.checkpoint_id = None
        if releases:
            state.release(restoring.continued)
