"""Restores, retires and leases in any order: nothing half restored ever runs.

The model is one sentence: while something is being installed or freed, and from a restore
to its resume, no call of an episode runs.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckptfmt.identity import EpisodeId
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.errors import CheckpointFailedError
from participant.core.phases import Phase
from participant.testing.machine_world import MachineWorld

IDS = st.sampled_from(["x1", "x2", "x3"])
R, S = EpisodeId("r"), EpisodeId("s")
SCOPES = st.sampled_from([(R,), (S,), (R, S)])
FAILURE = CheckpointFailedError("no")


class Restoring(RuleBasedStateMachine):
    """A fresh process, and a controller that changes its mind."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MachineWorld()
        self.jobs: list[ef.Effect] = []
        self.running: set[int] = set()
        self.waiting: set[int] = set()
        self.held: set[EpisodeId] = set()
        self.sent: set[int] = set()
        self.answered: set[int] = set()

    @property
    def is_changing(self) -> bool:
        """Whether state is being installed or freed just now, or waits to be resumed."""
        changing = any(isinstance(job, ef.Install | ef.Release) for job in self.jobs)
        return changing or self.world.machine.phase is Phase.RESTORED

    def take(self, effects: list[ef.Effect]) -> None:
        """Put jobs aside, and keep the books."""
        for effect in effects:
            match effect:
                case ef.Answer(call, _) | ef.Refuse(call, _):
                    assert call not in self.answered
                    self.answered.add(call)
                case ef.Go(ticket):
                    self.waiting.discard(ticket)
                    self.running.add(ticket)
                case ef.Wait(ticket):
                    self.waiting.add(ticket)
                case ef.TurnAway(ticket, _):
                    self.waiting.discard(ticket)
                case ef.Load() | ef.Install() | ef.Release() | ef.Stop() | ef.Free():
                    self.jobs.append(effect)
                case _:
                    pass

    def send(self, command: str, checkpoint_id: str, episodes: tuple[EpisodeId, ...] = ()) -> None:
        """Send a command with ten seconds' time."""
        self.world.census.held_keys = sorted(episode.capture_key for episode in self.held)
        call = self.world.number()
        self.sent.add(call)
        self.take(self.world.call(self.world.request(command, checkpoint_id, 10.0, episodes), call))

    @rule(checkpoint_id=IDS, scope=SCOPES)
    def restore(self, checkpoint_id: str, scope: tuple[EpisodeId, ...]) -> None:
        self.send("restore", checkpoint_id, scope)

    @rule(checkpoint_id=IDS)
    def resume(self, checkpoint_id: str) -> None:
        self.send("resume", checkpoint_id)

    @rule(checkpoint_id=IDS, scope=SCOPES)
    def retire(self, checkpoint_id: str, scope: tuple[EpisodeId, ...]) -> None:
        self.send("retire", checkpoint_id, tuple(episode.continuation for episode in scope))

    @rule(checkpoint_id=IDS, command=st.sampled_from(["prepare", "renew"]))
    def other(self, checkpoint_id: str, command: str) -> None:
        self.send(command, checkpoint_id)

    @rule(rollout=st.sampled_from("rst"), attempt=st.integers(0, 1))
    def enter(self, rollout: str, attempt: int) -> None:
        self.take(self.world.step(ev.Enter(self.world.number(), EpisodeId(rollout, attempt))))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(ticket)
        self.take(self.world.step(ev.Leave(ticket)))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self.take(self.world.step(ev.Retry(data.draw(st.sampled_from(sorted(self.waiting))))))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), fails=st.booleans())
    def end_a_job(self, data: st.DataObject, fails: bool) -> None:
        job = self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1)))
        self.take(self.world.step(self.end_of(job, fails=fails)))

    def end_of(self, job: ef.Effect, *, fails: bool) -> ev.Event:
        """How a job ends, and what the hooks then hold."""
        match job:
            case ef.Load(number, _, episodes):
                return ev.Failed(number, FAILURE) if fails else ev.Loaded(number, "src", episodes)
            case ef.Install(number, episodes):
                self.held |= episodes
                return ev.Failed(number, FAILURE) if fails else ev.Installed(number)
            case ef.Release(number, episodes):
                self.held -= episodes
                return ev.Released(number)
            case ef.Stop(episode):
                return ev.RetireFailed(episode, FAILURE) if fails else ev.Stopped(episode)
            case ef.Free(episode):
                self.held = {held for held in self.held if not episode.covers(held)}
                return ev.Freed(episode)
        raise AssertionError(job)

    @rule(seconds=st.sampled_from([1.0, 11.0, 70.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.take(self.world.wait(seconds))

    @invariant()
    def admission_is_closed_while_state_changes(self) -> None:
        if self.is_changing:
            assert self.world.machine.is_closed
            assert not self.running

    @invariant()
    def a_restore_never_meets_what_another_one_brought(self) -> None:
        assert sum(isinstance(job, ef.Install) for job in self.jobs) <= 1

    def end_all_jobs(self) -> None:
        """Everything that was begun ends well."""
        while self.jobs:
            self.take(self.world.step(self.end_of(self.jobs.pop(), fails=False)))

    def teardown(self) -> None:
        """Whatever happened: idle, open, and nothing of a failed restore is held."""
        for _ in range(6):
            self.end_all_jobs()
            self.take(self.world.wait(1000))
            for ticket in sorted(self.waiting):
                self.take(self.world.step(ev.Retry(ticket)))
            for ticket in sorted(self.running):
                self.running.discard(ticket)
                self.take(self.world.step(ev.Leave(ticket)))
            episodes = (R.continuation, S.continuation)
            self.send("retire", "last", episodes)
        self.end_all_jobs()
        assert self.world.machine.phase is Phase.IDLE
        assert not self.world.machine.is_closed
        assert self.held == set()
        self.take(self.world.wait(1000))
        assert {n: c for n, c in self.world.machine.table_sizes.items() if c} == {}
        assert self.answered == self.sent


TestRestoring = Restoring.TestCase
