"""What the machine asks of the shell: values, to be carried out in the order given.

The order is part of the protocol: admission is closed before anything is exported, a
write is called off before admission opens, and a reply comes after what it promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ckptfmt.identity import EpisodeId
from participant.core.errors import ParticipantError
from participant.core.messages import Reply
from participant.core.scope import Scope

__all__ = [
    "Abandon",
    "Answer",
    "Cancel",
    "CloseAdmission",
    "Effect",
    "Export",
    "Forget",
    "Free",
    "Go",
    "Install",
    "Load",
    "Note",
    "OpenAdmission",
    "Refuse",
    "Release",
    "Settle",
    "Stop",
    "TurnAway",
    "Wait",
    "Wake",
    "Write",
]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a command."""

    call: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a command with an error."""

    call: int
    error: ParticipantError


@dataclass(frozen=True, slots=True)
class CloseAdmission:
    """Tell the hooks that admission is closed; answered by ``Closed`` or ``CloseFailed``."""

    checkpoint_id: str
    budget_s: float


@dataclass(frozen=True, slots=True)
class OpenAdmission:
    """Tell the hooks that admission is open."""


@dataclass(frozen=True, slots=True)
class Go:
    """The call runs, or the parked execution goes on: it is registered as running."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The call waits, or the execution parks, until it is woken or turned away."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Let these come back with ``Retry``."""

    tickets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TurnAway:
    """The call does not run; the machine has forgotten it."""

    ticket: int
    error: ParticipantError


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the execution, inner tasks included; it ends by ``Leave``.  Sent once each."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Let the hooks stop the episode's work and wait for its end: ``Stopped``."""

    episode: EpisodeId


@dataclass(frozen=True, slots=True)
class Free:
    """Let the hooks free a retired episode and its earlier attempts: ``Freed``."""

    episode: EpisodeId


@dataclass(frozen=True, slots=True)
class Export:
    """Ask the hooks for the records in scope, once: ``Exported``."""

    number: int
    scope: Scope


@dataclass(frozen=True, slots=True)
class Write:
    """Store the exported records and publish them: ``Written``."""

    number: int
    checkpoint_id: str
    checkpoint_dir: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """Call a write off unless it has claimed publication: ``Abandoned``."""

    number: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Find out, or decide by a tombstone, whether a given-up write published: ``Settled``."""

    number: int


@dataclass(frozen=True, slots=True)
class Release:
    """Let the hooks free restored state that nobody continues: ``Released``."""

    number: int
    episodes: frozenset[EpisodeId]


@dataclass(frozen=True, slots=True)
class Load:
    """Read and verify a checkpoint's records of these attempts: ``Loaded``."""

    number: int
    checkpoint_dir: str
    episodes: frozenset[EpisodeId]


@dataclass(frozen=True, slots=True)
class Install:
    """Let the hooks install what was loaded: ``Installed``."""

    number: int
    episodes: frozenset[EpisodeId]


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing of this job is needed any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Note:
    """An event for the telemetry; ``code`` tells events of one name apart."""

    name: str
    code: str = ""


Effect: TypeAlias = (
    Abandon
    | Answer
    | Cancel
    | CloseAdmission
    | Export
    | Forget
    | Free
    | Go
    | Install
    | Load
    | Note
    | OpenAdmission
    | Refuse
    | Release
    | Settle
    | Stop
    | TurnAway
    | Wait
    | Wake
    | Write
)
