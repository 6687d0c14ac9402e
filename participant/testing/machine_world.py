"""A machine with a clock that stands still and hooks that count what they are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.census import CensusError
from participant.core.gate import GateCounts
from participant.core.machine import Machine
from participant.core.messages import REQUESTS, EpisodeRef, Reply, Request
from participant.core.state import Limits

__all__ = ["WALL_OFFSET_S", "CountingCensus", "MachineWorld", "episodes_of"]

WALL_OFFSET_S = 1_000_000.0
"""Unix time minus monotonic time in a world that nobody has told otherwise."""


def episodes_of(keys: str) -> tuple[EpisodeId, ...]:
    """The episodes of comma-separated capture keys."""
    return tuple(EpisodeId.from_capture_key(key) for key in keys.split(",") if key)


@dataclass(slots=True)
class CountingCensus:
    """A census that says what it is set to, and counts how often blockers are listed."""

    keys: list[str] = field(default_factory=list)
    held_keys: list[str] = field(default_factory=list)
    fails: bool = False
    wants_scope: bool = False
    listings: int = 0
    asked: int = 0

    def needs_scope(self) -> bool:
        """Whether that was set."""
        return self.wants_scope

    def blocking(self) -> int:
        """How many keys there are."""
        self.asked += 1
        if self.fails:
            raise CensusError("the hooks cannot count")
        return len(self.keys)

    def blockers(self) -> Iterable[str]:
        """The keys."""
        self.listings += 1
        return tuple(self.keys)

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """Those of the gate that are not zero."""
        counts = {
            "executions": gate.executions,
            "parked": gate.parked,
            "untagged": gate.untagged,
            "waiting": gate.waiting,
        }
        return {name: count for name, count in counts.items() if count}

    def held(self) -> Iterable[str]:
        """What a restore must not find."""
        return tuple(self.held_keys)

    def status(self, pending: int) -> Mapping[str, Any]:
        """How many restored episodes wait."""
        return {"restored_pending": pending}


class MachineWorld:
    """Steps a machine by hand; what it asks for is returned, and ``Closed`` answered.

    ``now`` moves only through :meth:`wait`, which wakes the machine when it asked for it.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = 0.0
        self.wall_offset_s = WALL_OFFSET_S
        self.census = CountingCensus()
        self.machine = Machine(ParticipantId("agent", "a1"), limits or Limits(), self.census)
        self.answers_closed = True
        self.replies: dict[int, Reply] = {}
        self.refusals: dict[int, str] = {}
        self._numbers = 0

    def number(self) -> int:
        """A number that was not used before, for a command or a call."""
        self._numbers += 1
        return self._numbers

    def step(self, event: ev.Event) -> list[ef.Effect]:
        """One event, and the hooks' word that they are closed if they were asked to close."""
        effects = list(self.machine.step(self.now, event))
        if self.answers_closed and any(isinstance(e, ef.CloseAdmission) for e in effects):
            effects += self.machine.step(self.now, ev.Closed())
        for effect in effects:
            if isinstance(effect, ef.Answer):
                self.replies[effect.call] = effect.reply
            elif isinstance(effect, ef.Refuse):
                self.refusals[effect.call] = effect.error.code
        return effects

    def request(
        self,
        command: str,
        checkpoint_id: str = "ck",
        within_s: float = 30.0,
        episodes: Iterable[EpisodeId] | None = (),
        checkpoint_dir: str = "dir",
    ) -> Request:
        """A command with the members that its route has."""
        members: dict[str, Any] = {
            "checkpoint_id": checkpoint_id,
            "deadline_ts": self.now + self.wall_offset_s + within_s,
        }
        if command in ("commit", "restore"):
            members["checkpoint_dir"] = checkpoint_dir
        if command in ("commit", "restore", "retire"):
            refs = None if episodes is None else tuple(EpisodeRef.of(e) for e in episodes)
            members["episode_ids"] = refs
        return REQUESTS[command](**members)

    def call(self, request: Request, number: int | None = None) -> list[ef.Effect]:
        """Send a command."""
        wall_now = self.now + self.wall_offset_s
        budget_s = request.deadline_ts - wall_now
        call = self.number() if number is None else number
        return self.step(ev.Call(call, request, budget_s, wall_now))

    def wait(self, seconds: float) -> list[ef.Effect]:
        """Let time pass, with a tick whenever the machine wants one and one at the end."""
        end = self.now + seconds
        effects: list[ef.Effect] = []
        last = -1.0
        while True:
            wakeup = self.machine.wakeup()
            if wakeup is None or wakeup >= end:
                break
            assert wakeup > last, f"the machine asks for {wakeup} over and over"
            last = wakeup
            self.now = max(self.now, wakeup)
            effects += self.step(ev.Tick())
        self.now = end
        return effects + self.step(ev.Tick())
