"""What reaches the machine: commands of the controller, calls of clients, ends of work.

``number`` names a job that the machine started; an event of a job that it has given up
since is ignored.  ``ticket`` names a client's call and the execution that it becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from ckptfmt.identity import EpisodeId
from participant.core.errors import ParticipantError
from participant.core.messages import Request
from participant.core.steps import StepMode

__all__ = [
    "Abandoned",
    "Boundary",
    "Call",
    "CloseFailed",
    "Closed",
    "Enter",
    "Event",
    "Exported",
    "Failed",
    "Freed",
    "HangUp",
    "Installed",
    "Leave",
    "Loaded",
    "Notify",
    "Released",
    "RetireFailed",
    "Retry",
    "Settled",
    "StepBegins",
    "StepEnds",
    "Stopped",
    "Tick",
    "Written",
]


@dataclass(frozen=True, slots=True)
class Call:
    """A command; ``budget_s`` is what is left of its deadline, ``wall_now`` the server's time."""

    call: int
    request: Request
    budget_s: float
    wall_now: float


@dataclass(frozen=True, slots=True)
class HangUp:
    """Nobody waits for the answer to this command any more."""

    call: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; see :meth:`participant.core.machine.Machine.wakeup`."""


@dataclass(frozen=True, slots=True)
class Notify:
    """What the hooks count may have changed."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The hooks know that admission is closed."""


@dataclass(frozen=True, slots=True)
class CloseFailed:
    """The hooks could not close."""

    error: ParticipantError


@dataclass(frozen=True, slots=True)
class Enter:
    """A call arrives; ``key`` names work that must not wait or run twice at once."""

    ticket: int
    episode: EpisodeId | None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """A call or a parked execution that was woken has come to run."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A call has ended, or was dropped while it waited."""

    ticket: int


@dataclass(frozen=True, slots=True)
class StepBegins:
    """A step of the execution begins."""

    ticket: int
    mode: StepMode


@dataclass(frozen=True, slots=True)
class StepEnds:
    """The step has ended."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The execution has recorded a boundary."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The export ended; ``episodes`` are those of its records."""

    number: int
    episodes: frozenset[EpisodeId]
    extras: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """The records are published."""

    number: int
    manifest: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The writer was told to stop; ``clear`` unless it had claimed publication before."""

    number: int
    clear: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """A publication that was unknown is known: published, or closed for good."""

    number: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint was read and verified; ``episodes`` are those of its records in scope."""

    number: int
    source_checkpoint_id: str
    episodes: frozenset[EpisodeId]


@dataclass(frozen=True, slots=True)
class Installed:
    """All records are installed."""

    number: int


@dataclass(frozen=True, slots=True)
class Released:
    """Restored state that nobody continues is gone."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A job failed; ``unknown`` where it may have published all the same."""

    number: int
    error: ParticipantError
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The hooks have stopped an episode's work, and every earlier attempt's."""

    episode: EpisodeId


@dataclass(frozen=True, slots=True)
class Freed:
    """The hooks hold nothing of the episode and its earlier attempts."""

    episode: EpisodeId


@dataclass(frozen=True, slots=True)
class RetireFailed:
    """Stopping or freeing an episode failed; a repeated retire tries again."""

    episode: EpisodeId
    error: ParticipantError


Event: TypeAlias = (
    Abandoned
    | Boundary
    | Call
    | CloseFailed
    | Closed
    | Enter
    | Exported
    | Failed
    | Freed
    | HangUp
    | Installed
    | Leave
    | Loaded
    | Notify
    | Released
    | RetireFailed
    | Retry
    | Settled
    | StepBegins
    | StepEnds
    | Stopped
    | Tick
    | Written
)
