"""What one execution is doing, and whether a checkpoint has to wait for it.

=============  ============================================================
state          a checkpoint
=============  ============================================================
running        waits for the next boundary, where the execution parks
wait_step      waits for the step and the boundary after it
replay_step    does not wait: the boundary before the step is exported, and
               the step is run again after a crash
parked         has it
=============  ============================================================

A replay step that ends while a checkpoint is open leaves the execution *exempt*: its
last boundary is in the checkpoint, so it blocks nothing before its next boundary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["EpisodeTimer", "StepMode", "StepState", "Steps"]


class StepState(StrEnum):
    """What an execution is doing."""

    RUNNING = "running"
    WAIT_STEP = "wait_step"
    REPLAY_STEP = "replay_step"
    PARKED = "parked"


class StepMode(StrEnum):
    """What a checkpoint does about a step in flight."""

    WAIT = "wait"
    REPLAY = "replay"


@dataclass(slots=True)
class Steps:
    """The state of one execution."""

    state: StepState = StepState.RUNNING
    exempt: bool = False

    @property
    def blocks(self) -> bool:
        """Whether a checkpoint has to wait for it."""
        return self.state in (StepState.RUNNING, StepState.WAIT_STEP) and not self.exempt

    def begin(self, mode: StepMode) -> None:
        """A step begins."""
        self.state = StepState.REPLAY_STEP if mode is StepMode.REPLAY else StepState.WAIT_STEP

    def end(self, *, closed: bool) -> None:
        """The step has ended."""
        if self.state is StepState.REPLAY_STEP and closed:
            self.exempt = True
        self.state = StepState.RUNNING

    def boundary(self, *, closed: bool) -> bool:
        """A boundary was recorded; true if the execution has to park there."""
        self.exempt = False
        self.state = StepState.PARKED if closed else StepState.RUNNING
        return closed


@dataclass(slots=True)
class EpisodeTimer:
    """How much of an episode's own time is left; parked time is not part of it.

    ``left_s`` are the seconds left when it was last suspended or started.
    """

    left_s: float
    running_since: float | None = None

    def start(self, now: float) -> None:
        """Time counts from ``now``; nothing changes where it does already."""
        if self.running_since is None:
            self.running_since = now

    def suspend(self, now: float) -> None:
        """Time does not count from ``now``."""
        if self.running_since is not None:
            self.left_s -= now - self.running_since
            self.running_since = None

    @property
    def expires_at(self) -> float | None:
        """When it runs out; None while it is suspended."""
        return None if self.running_since is None else self.running_since + self.left_s
