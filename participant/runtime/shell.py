"""The shell round one machine: events in, effects carried out in their order."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from dataclasses import dataclass

from ckptfmt.identity import ParticipantId
from participant.clock import Clock, SystemClock
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.census import CensusError
from participant.core.errors import InternalError, ParticipantError
from participant.core.machine import Machine
from participant.core.messages import Commit, Reply, Request, Restore, StatusReply
from participant.hooks import ParticipantHooks
from participant.runtime.admission import Admission
from participant.runtime.census import HooksCensus
from participant.runtime.jobs import Jobs
from participant.runtime.saving import CheckpointStorage
from participant.settings import Settings
from participant.telemetry import NullTelemetry, Telemetry

__all__ = ["Components", "Participant"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Components:
    """What a participant works with; the program that composes it passes them in."""

    storage: CheckpointStorage
    clock: Clock = SystemClock()
    telemetry: Telemetry = NullTelemetry()


class Participant:
    """One server's part in checkpoints.  All of it lives on one event loop.

    ``admission`` is the door for attributed work.
    """

    def __init__(
        self,
        participant: ParticipantId,
        hooks: ParticipantHooks,
        settings: Settings,
        components: Components,
    ) -> None:
        self.participant = participant
        self.settings = settings
        self._hooks = hooks
        hooks.joined(participant)
        self._clock = components.clock
        self._telemetry = components.telemetry
        self._machine = Machine(participant, settings.limits, HooksCensus(hooks))
        self.admission = Admission(self._post, self._clock)
        hooks.attach(self.admission)
        self._jobs = Jobs(
            participant, hooks, components.storage, self._clock, self._post, self._may_publish
        )
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._inbox: deque[ev.Event] = deque()
        self._is_stepping = False
        self._timer: asyncio.Task[None] | None = None
        self._timer_at: float | None = None

    @property
    def table_sizes(self) -> dict[str, int]:
        """How much each table holds; at rest everything but unexpired fences is zero."""
        own = {"waiting_commands": len(self._calls), "executions": len(self.admission)}
        return self._machine.table_sizes | self._jobs.table_sizes | own

    @property
    def is_closed(self) -> bool:
        """Whether attributed work waits."""
        return self._machine.is_closed

    def notify(self) -> None:
        """What the hooks count has gone down; a prepare may be waiting for it."""
        self._post(ev.Notify())

    def status(self) -> StatusReply:
        """The state, at once in every phase.

        Raises:
            InternalError: the hooks could not count.
        """
        try:
            return self._machine.status(self._clock.monotonic(), self._clock.wall())
        except CensusError as error:
            raise InternalError(str(error)) from error

    async def call(self, request: Request, sent_at: float | None = None) -> Reply:
        """Carry out a command and wait for its reply.

        ``sent_at`` is the sender's own time, in Unix seconds: the deadline is then a
        budget from there, so that clocks that differ do no harm.

        Raises:
            ParticipantError: it was refused, or failed.
        """
        if isinstance(request, Commit | Restore):
            self.settings.check_place(request.checkpoint_dir)
        wall_now = self._clock.wall()
        budget_s = request.deadline_ts - (wall_now if sent_at is None else sent_at)
        budget_s = min(budget_s, self.settings.max_budget_seconds)
        number = next(self._numbers)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self._post(ev.Call(number, request, budget_s, wall_now))
            return await answer
        finally:
            del self._calls[number]
            if answer.cancelled():
                self._post(ev.HangUp(number))

    async def close(self) -> None:
        """End every task of the participant, for a server that shuts down."""
        if self._timer is not None:
            self._timer.cancel()
        await self._jobs.close()

    def _may_publish(self) -> bool:
        # Asked in a worker thread, under the lock of the publication: the timer may be late.
        expires_at = self._machine.lease_expires_at
        return expires_at is not None and self._clock.monotonic() < expires_at

    def _post(self, event: ev.Event) -> None:
        self._inbox.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._inbox:
                now = self._clock.monotonic()
                for effect in self._machine.step(now, self._inbox.popleft()):
                    self._perform(effect)
        finally:
            self._is_stepping = False
        self._set_timer()

    def _perform(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Answer(call, reply):
                if (answer := self._calls.get(call)) and not answer.done():
                    answer.set_result(reply)
            case ef.Refuse(call, error):
                if (answer := self._calls.get(call)) and not answer.done():
                    answer.set_exception(error)
            case ef.CloseAdmission():
                self._close_admission(effect)
            case ef.OpenAdmission():
                self._open_admission()
            case ef.Note(name, code):
                self._note(name, code)
            case ef.Wake(tickets):
                for ticket in tickets:
                    if execution := self.admission.get(ticket):
                        execution.wake()
            case ef.Go() | ef.Wait() | ef.Cancel() | ef.TurnAway():
                self._perform_on_execution(effect)
            case _:
                self._jobs.begin(effect)

    def _perform_on_execution(self, effect: ef.Go | ef.Wait | ef.Cancel | ef.TurnAway) -> None:
        execution = self.admission.get(effect.ticket)
        if execution is None:
            return
        match effect:
            case ef.Go():
                execution.goes()
            case ef.Wait():
                execution.waits()
            case ef.Cancel():
                execution.retire()
            case ef.TurnAway(_, error):
                execution.turn_away(error)

    def _close_admission(self, effect: ef.CloseAdmission) -> None:
        self.admission.changed(closed=True)
        try:
            self._hooks.closed(effect.checkpoint_id, effect.budget_s)
        except ParticipantError as error:
            self._post(ev.CloseFailed(error))
        except Exception as error:
            _logger.exception("the hook closed failed")
            detail = f"closing admission failed with {type(error).__name__}"
            self._post(ev.CloseFailed(InternalError(detail)))
        else:
            self._post(ev.Closed())

    def _open_admission(self) -> None:
        self.admission.changed(closed=False)
        try:
            self._hooks.opened()
        except Exception:
            # Admission is open whatever the hooks make of it.
            _logger.exception("the hook opened failed")

    def _note(self, name: str, code: str) -> None:
        if name == "lease_expired":
            _logger.warning("%s: the lease ran out in phase %s; resumed", self.participant, code)
        attributes = {"kind": self.participant.kind, "instance": self.participant.instance}
        self._telemetry.count(name, attributes | ({"code": code} if code else {}))

    def _set_timer(self) -> None:
        wakeup = self._machine.wakeup()
        if wakeup == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = wakeup
        self._timer = (
            None if wakeup is None else asyncio.get_running_loop().create_task(self._tick(wakeup))
        )

    async def _tick(self, wakeup: float) -> None:
        await self._clock.sleep_until(wakeup)
        # From here on this task is no longer the timer, so that the step may set a new one.
        self._timer = None
        self._timer_at = None
        self._post(ev.Tick())
