"""One participant under any sequence of commands, calls and ends of jobs, beside a model.

The model knows the phase, the open id, who runs, who waits and who is parked.  It knows
nothing of effects, jobs or time: what the machine asks for is done here in any order, late
or not at all.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckptfmt.identity import EpisodeId
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.errors import CheckpointFailedError
from participant.core.messages import ResumeReply
from participant.core.phases import Phase
from participant.testing.machine_world import MachineWorld

IDS = st.sampled_from(["ck1", "ck2", "ck3"])
EPISODES = st.builds(EpisodeId, st.sampled_from(["r", "s"]), st.integers(0, 2))
FAILURE = CheckpointFailedError("the disk is full")


class OneParticipant(RuleBasedStateMachine):
    """Rules are what may happen; invariants are what must hold whatever has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MachineWorld()
        self.spent: set[str] = set()
        self.open_id: str | None = None
        self.running: dict[int, EpisodeId] = {}
        self.waiting: set[int] = set()
        self.parked: set[int] = set()
        self.cancelled: set[int] = set()
        self.jobs: list[ef.Effect] = []
        self.published: set[str] = set()
        self.abandoned: set[int] = set()
        self.sent: dict[int, str] = {}
        self.answered: set[int] = set()

    def take(self, effects: list[ef.Effect]) -> None:
        """Do at once what is at once, and put the rest aside."""
        for effect in effects:
            match effect:
                case ef.Answer(call, _) | ef.Refuse(call, _):
                    assert call not in self.answered, "a command is answered twice"
                    self.answered.add(call)
                case ef.Go(ticket):
                    assert not self.world.machine.is_closed or ticket in self.running
                    self.waiting.discard(ticket)
                    self.parked.discard(ticket)
                case ef.Wait(ticket):
                    (self.parked if ticket in self.running else self.waiting).add(ticket)
                case ef.TurnAway(ticket, _):
                    self.waiting.discard(ticket)
                    self.running.pop(ticket, None)
                case ef.Cancel(ticket):
                    assert ticket not in self.cancelled, "cancelled twice"
                    self.cancelled.add(ticket)
                case ef.Abandon(number):
                    self.abandoned.add(number)
                    self.take(self.world.step(ev.Abandoned(number, clear=True)))
                case ef.CloseAdmission() | ef.Note() | ef.Forget() | ef.Wake():
                    pass
                case ef.OpenAdmission():
                    assert self.world.machine.phase is Phase.IDLE
                case _:
                    self.jobs.append(effect)

    def send(self, command: str, checkpoint_id: str, **members: object) -> int:
        """Send a command."""
        call = self.world.number()
        self.sent[call] = command
        request = self.world.request(command, checkpoint_id, **members)  # type: ignore[arg-type]
        self.take(self.world.call(request, call))
        return call

    @rule(checkpoint_id=IDS, within=st.sampled_from([-1.0, 5.0, 30.0]))
    def prepare(self, checkpoint_id: str, within: float) -> None:
        was = self.world.machine.phase
        call = self.send("prepare", checkpoint_id, within_s=within)
        if checkpoint_id in self.spent:
            assert self.world.refusals[call] == "stale_checkpoint"
        elif self.open_id not in (None, checkpoint_id):
            assert self.world.refusals[call] == "checkpoint_conflict"
        elif was is Phase.IDLE and within > 0:
            self.open_id = checkpoint_id
            assert self.world.machine.phase in (Phase.PREPARING, Phase.PREPARED)
        else:
            assert self.world.machine.phase is was

    @rule(checkpoint_id=IDS, within=st.sampled_from([-1.0, 5.0, 30.0]))
    def commit(self, checkpoint_id: str, within: float) -> None:
        was = self.world.machine.phase
        call = self.send("commit", checkpoint_id, within_s=within, episodes=None)
        if checkpoint_id in self.spent:
            assert self.world.refusals[call] == "stale_checkpoint"
        elif self.open_id not in (None, checkpoint_id):
            assert self.world.refusals[call] == "checkpoint_conflict"
        elif within <= 0:
            assert self.world.refusals[call] == "deadline_exceeded"
        elif was not in (Phase.PREPARED, Phase.COMMITTED):
            assert self.world.refusals[call] == "invalid_phase"

    @rule(checkpoint_id=IDS)
    def resume(self, checkpoint_id: str) -> None:
        opened = self.open_id == checkpoint_id
        call = self.send("resume", checkpoint_id, within_s=30.0)
        if self.open_id is not None and not opened and checkpoint_id not in self.spent:
            assert self.world.refusals[call] == "checkpoint_conflict"
            return
        reply = self.world.replies[call]
        assert isinstance(reply, ResumeReply)
        assert reply.idempotent is not opened
        self.spent.add(checkpoint_id)
        if opened:
            self.open_id = None

    @rule(episode=EPISODES)
    def retire(self, episode: EpisodeId) -> None:
        was = self.world.machine.phase
        call = self.send("retire", self.open_id or "any", episodes=[episode])
        if was is not Phase.IDLE:
            assert self.world.refusals[call] == "invalid_phase"

    @rule(episode=EPISODES)
    def enter(self, episode: EpisodeId) -> None:
        ticket = self.world.number()
        self.running[ticket] = episode
        was_closed = self.world.machine.is_closed
        effects = self.world.step(ev.Enter(ticket, episode))
        if any(isinstance(effect, ef.Wait) for effect in effects):
            assert was_closed
            del self.running[ticket]
        self.take(effects)
        if ticket in self.waiting:
            self.running.pop(ticket, None)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[ticket]
        self.parked.discard(ticket)
        self.take(self.world.step(ev.Leave(ticket)))

    @precondition(lambda self: set(self.running) - self.parked)
    @rule(data=st.data())
    def boundary(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(set(self.running) - self.parked)))
        self.take(self.world.step(ev.Boundary(ticket)))

    @precondition(lambda self: self.waiting | self.parked)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting | self.parked)))
        self.retry_one(ticket)

    def retry_one(self, ticket: int) -> None:
        """A call that was woken, rightly or not, asks again."""
        episode = next((e for e in self.of(ticket)), None)
        waited = ticket in self.waiting
        effects = self.world.step(ev.Retry(ticket))
        if waited and any(isinstance(effect, ef.Go) for effect in effects):
            assert episode is not None
            self.waiting.discard(ticket)
            self.running[ticket] = episode
        self.take(effects)

    def of(self, ticket: int) -> list[EpisodeId]:
        """The episode of a call, as the machine knows it."""
        call = self.world.machine._state.gate.get(ticket)
        return [call.episode] if call is not None and call.episode is not None else []

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), fails=st.booleans())
    def end_a_job(self, data: st.DataObject, fails: bool) -> None:
        job = self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1)))
        self.take(self.world.step(self.end_of(job, fails=fails)))

    def end_of(self, job: ef.Effect, *, fails: bool) -> ev.Event:
        """How a job ends.  A write publishes unless it was abandoned."""
        match job:
            case ef.Stop(episode):
                return ev.RetireFailed(episode, FAILURE) if fails else ev.Stopped(episode)
            case ef.Free(episode):
                return ev.RetireFailed(episode, FAILURE) if fails else ev.Freed(episode)
            case ef.Export(number, _):
                return ev.Failed(number, FAILURE) if fails else ev.Exported(number, frozenset(), {})
            case ef.Write(number, checkpoint_id, _):
                if fails or number in self.abandoned:
                    return ev.Failed(number, FAILURE)
                assert checkpoint_id not in self.spent, "published after the resume"
                return ev.Written(number, msgspec.Raw(b"{}"))
        raise AssertionError(f"no such job without a restore: {job}")

    @rule(seconds=st.sampled_from([1.0, 10.0, 59.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.take(self.world.wait(seconds))
        if self.world.machine.phase is Phase.IDLE and self.open_id is not None:
            assert seconds >= 700, "a lease ran out early"
            self.spent.add(self.open_id)
            self.open_id = None

    @invariant()
    def admission_is_closed_while_a_checkpoint_is_open(self) -> None:
        machine = self.world.machine
        assert machine.is_closed == (machine.phase is not Phase.IDLE)
        assert (self.open_id is None) == (machine.phase is Phase.IDLE)

    @invariant()
    def the_report_counts_who_runs(self) -> None:
        report = self.world.machine.status(self.world.now, 0.0).report
        free = set(self.running) - self.parked
        assert {self.running[ticket].capture_key for ticket in free} <= set(report.blockers)
        assert report.blocker_count == len(report.blockers)
        assert report.counts.get("waiting", 0) == len(self.waiting)
        assert report.counts.get("parked", 0) == len(self.parked & set(self.running))
        if self.world.machine.phase is Phase.PREPARED and not self.world.machine._state.ending:
            assert report.ready

    def teardown(self) -> None:
        """Whatever happened: idle, open, and nothing held, once the work has ended."""
        self.take(self.world.wait(20_000))
        for _ in range(30):
            while self.jobs:
                self.take(self.world.step(self.end_of(self.jobs.pop(), fails=False)))
            for ticket in sorted(self.waiting | self.parked):
                self.retry_one(ticket)
            for ticket in sorted(self.running):
                self.leave_one(ticket)
            for episode in self.world.machine._state.retiring.unfinished:
                self.send("retire", "any", episodes=[episode])
        self.take(self.world.wait(20_000))
        assert self.world.machine.phase is Phase.IDLE
        assert not self.world.machine.is_closed
        assert {n: c for n, c in self.world.machine.table_sizes.items() if c} == {}
        assert self.answered == set(self.sent), "a command was never answered"

    def leave_one(self, ticket: int) -> None:
        """The call ends."""
        del self.running[ticket]
        self.parked.discard(ticket)
        self.take(self.world.step(ev.Leave(ticket)))


TestOneParticipant = OneParticipant.TestCase
