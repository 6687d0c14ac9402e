"""The commands of a checkpoint before its end: prepare, renew and commit."""

from __future__ import annotations

from typing import Final

from participant.core.census import CensusError
from participant.core.committing import Save, SaveStage
from participant.core.effects import CloseAdmission
from participant.core.errors import (
    InternalError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    InvalidRequestError,
    ParticipantError,
)
from participant.core.events import Call, Exported, Failed, Written
from participant.core.messages import Commit, CommitReply, Prepare, PrepareReply, Renew, RenewReply
from participant.core.phases import Move, Phase
from participant.core.state import State

__all__ = ["POLL_S", "CheckpointRules"]

POLL_S: Final = 1.0
"""Readiness is asked at least this often, in case a notification was forgotten."""


class CheckpointRules:
    """From prepare to committed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.poll_at = 0.0

    def prepare(self, now: float, call: Call, request: Prepare) -> None:
        """Close admission; the answer comes with :meth:`become_ready`, the deadline or the end."""
        state = self._state
        state.check_id(request)
        if call.budget_s <= 0:
            state.desk.answer(call.call, PrepareReply(phase=state.phase, report=state.report()))
            return
        state.permit(Move.PREPARE)
        if state.restoring is not None:
            raise InvalidPhaseError("a restore is under way; wait for its end, or resume it")
        state.lease.extend(state.lease_until(now, call))
        if state.prepared is not None:
            state.desk.answer(call.call, state.prepared)
            return
        if state.phase is Phase.IDLE:
            state.checkpoint_id = request.checkpoint_id
            state.failed_restore_id = None
            state.hooks_closed = False
            state.gate.closed = True
            self.poll_at = now + POLL_S
            state.desk.emit(CloseAdmission(request.checkpoint_id, call.budget_s))
        state.move(Move.PREPARE)
        state.wait(now, call, Move.PREPARE)

    def become_ready(self) -> None:
        """Answer the waiting prepares once the hooks are closed and nothing blocks."""
        state = self._state
        if state.phase is not Phase.PREPARING or not state.hooks_closed or state.ending:
            return
        try:
            if state.blocking():
                return
            report = state.report()
        except CensusError as error:
            self.fail_prepare(InternalError(f"waiting for readiness failed: {error}"))
            return
        state.move(Move.READY)
        state.prepared = PrepareReply(phase=state.phase, report=report)
        state.desk.answer_all(Move.PREPARE, state.prepared)

    def fail_prepare(self, error: ParticipantError) -> None:
        """Closing or waiting failed: back to idle, and the id may be tried again."""
        state = self._state
        state.move(Move.FAIL)
        state.checkpoint_id = None
        state.lease.end()
        state.desk.refuse_all(Move.PREPARE, error)

    def renew(self, now: float, call: Call, request: Renew) -> None:
        """Put the lease off.  One that is late changes nothing, since a lease never shrinks."""
        state = self._state
        state.check_id(request)
        state.permit(Move.RENEW)
        expires_at = state.lease.extend(state.lease_until(now, call))
        told = expires_at + (call.wall_now - now)
        state.desk.answer(call.call, RenewReply(lease_expires_at=told))

    def commit(self, now: float, call: Call, request: Commit) -> None:
        """Begin the save, join it, or take it up again where it failed."""
        state = self._state
        self._check_scope(request)
        state.check_id(request)
        state.committing.check_arguments(request)
        state.check_deadline(call)
        state.permit(Move.COMMIT)
        save = state.committing.save
        if save is None or save.stage is SaveStage.NEW:
            self._check_ready()
        state.lease.extend(state.lease_until(now, call))
        if save is not None and save.reply is not None:
            state.desk.answer(call.call, save.reply)
            return
        state.wait(now, call, Move.COMMIT)
        self._proceed(state.committing.begin(request))

    def _check_scope(self, request: Commit) -> None:
        # As part of the body it comes first: a save that it began would bind the id to it.
        if request.episode_ids is None and self._state.census.needs_scope():
            raise InvalidRequestError(
                "episode_ids of commit is null, and this server commits a scope only: name the "
                "episodes"
            )

    def _check_ready(self) -> None:
        state = self._state
        if state.blocking():
            report = state.report()
            raise InvalidPhaseError(
                f"no longer ready: {report.blocker_count} executions are not at a boundary, "
                f"among them {', '.join(report.blockers[:3])}; resume, and prepare under another id"
            )

    def _proceed(self, save: Save) -> None:
        """Take the save one step on; committed once nothing is left to do."""
        state = self._state
        pending = frozenset(state.restored.pending)
        state.committing.proceed(pending)
        if save.stage is SaveStage.RELEASING and save.number not in state.holds:
            state.hold(save.number, save.scope.left_out(pending))
        if save.stage is SaveStage.DONE:
            self._committed(save)

    def _committed(self, save: Save) -> None:
        state = self._state
        state.move(Move.COMMIT)
        save.reply = CommitReply(
            phase=state.phase,
            manifest=save.manifest,
            episode_ids=tuple(sorted(episode.capture_key for episode in save.episodes)),
            extras=save.extras,
        )
        state.desk.answer_all(Move.COMMIT, save.reply)

    def exported(self, now: float, event: Exported) -> None:
        """The records are there; those of strangers must not be stored."""
        state = self._state
        save = state.committing.at(event.number, SaveStage.EXPORTING)
        if save is None or state.ending:
            return
        strangers = [e for e in event.episodes if e not in save.scope or state.is_retired(now, e)]
        if strangers:
            listed = ", ".join(sorted(e.capture_key for e in strangers)[:3])
            error = InvalidCheckpointStateError(
                f"the export returned records of {len(strangers)} episodes that are retired or "
                f"outside the scope: {listed}"
            )
            state.committing.failed(event.number, error, unknown=False)
            return
        save.stage = SaveStage.EXPORTED
        save.episodes = event.episodes
        save.extras = event.extras
        self._proceed(save)

    def written(self, event: Written) -> None:
        """The manifest is published."""
        state = self._state
        save = state.committing.at(event.number, SaveStage.WRITING)
        state.committing.settled(event.number)
        if save is None:
            return
        save.stage = SaveStage.WRITTEN
        save.manifest = event.manifest
        if state.ending is None:
            self._proceed(save)

    def released(self, number: int) -> None:
        """Restored state is gone, either left out by a commit or given up."""
        state = self._state
        save = state.committing.at(number, SaveStage.RELEASING)
        state.restored.discard(state.unhold(number))
        if save is not None:
            save.stage = SaveStage.DONE
            if state.ending is None:
                self._committed(save)

    def failed(self, now: float, event: Failed) -> None:
        """A step of the save failed, or a release."""
        state = self._state
        held = state.unhold(event.number)
        ours = state.committing.failed(event.number, event.error, unknown=event.unknown)
        if not ours or state.ending is not None:
            # Nobody will try again, and what is left of them must not be taken for theirs.
            state.restored.discard(held)
            for episode in held:
                state.fences.add(now, episode)
