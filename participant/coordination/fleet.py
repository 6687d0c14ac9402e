"""The servers of a job, as they were found at discovery, and what they are asked with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ckptfmt.identity import ParticipantId
from participant.clock import Clock, SystemClock
from participant.runtime.bounded_io import BoundedIo
from participant.transport import ControlTransport

__all__ = ["Control", "Fleet", "Member"]


@dataclass(frozen=True, slots=True)
class Control:
    """What a controller works with; ``io`` are its threads for storage."""

    transport: ControlTransport
    clock: Clock = SystemClock()
    io: BoundedIo = field(default_factory=BoundedIo)


@dataclass(frozen=True, slots=True)
class Member:
    """A participant and the address of its server, as the transport takes it."""

    server: str
    participant: ParticipantId


@dataclass(frozen=True, slots=True)
class Fleet:
    """The participants of a job, fixed when they were discovered.

    ``bystanders`` are the servers that were asked and take no part.  ``open_ids`` are the
    checkpoints that were open then: of a controller that died, to be resumed first.
    """

    members: tuple[Member, ...]
    bystanders: tuple[str, ...] = ()
    open_ids: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the participants."""
        return tuple(member.server for member in self.members)

    @property
    def participants(self) -> tuple[ParticipantId, ...]:
        """The participants, sorted."""
        return tuple(sorted(member.participant for member in self.members))

    def of(self, kinds: Collection[str]) -> tuple[str, ...]:
        """The addresses of the participants of these kinds."""
        return tuple(m.server for m in self.members if m.participant.kind in kinds)
