"""The seam between a participant and its server: what the server counts, gives and takes.

The asynchronous hooks run on the server's event loop.  None of them is called twice at
once for one episode, and a hook that raises fails the command with ``internal_error``
(or with the :class:`~participant.errors.ParticipantError` that it raises).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.core.gate import GateCounts
from participant.core.scope import Scope
from participant.runtime.admission import Admission
from participant.runtime.calls import ServedCall

__all__ = [
    "DefaultHooks",
    "Export",
    "GateCounts",
    "GatedRoute",
    "ParticipantHooks",
    "PinLike",
    "RecordLike",
    "Scope",
    "ServedCall",
]


class RecordLike(Protocol):
    """A record of ``ckptfmt``, typed or not, as far as the runtime looks at it."""

    @property
    def episode_id(self) -> EpisodeId:
        """The attempt that it belongs to."""

    @property
    def key(self) -> str:
        """Unique within the participant."""


class PinLike(Protocol):
    """A pin of ``ckptfmt``: the prefix of a capture ledger that belongs to the checkpoint."""

    @property
    def name(self) -> str:
        """The ledger's file."""

    @property
    def size_bytes(self) -> int:
        """How much of it."""

    @property
    def sha256(self) -> str:
        """The digest of that, in hex."""


@dataclass(frozen=True, slots=True)
class Export:
    """What an export gives: the records, and what the role adds to manifest and reply.

    ``ledger_pins`` are of the ledgers that the records come from, in any order, each once.
    Values belong to the checkpoint until resume: the server must not change them.
    """

    records: Sequence[RecordLike]
    extras: Mapping[str, Any] = field(default_factory=dict)
    ledger_pins: Sequence[PinLike] = ()


@dataclass(frozen=True, slots=True)
class GatedRoute:
    """A route whose calls are work of episodes, so that they wait while a checkpoint is open.

    ``suffix``: the route is told by the end of its path, without the rollout prefix; the first
    that fits counts, and an empty one fits every path.
    ``requires_rollout``: a call of no episode is refused; otherwise it passes, and never waits.
    ``is_single``: one call an attempt may wait or run at once.
    ``is_cleanup``: a call that waits is carried out even if its client has gone meanwhile.
    ``holds_reply``: a reply that starts while a checkpoint is open is held until resume.
    ``replays``: a checkpoint does not wait for a call whose reply has not started; it is held
    as with ``holds_reply``, and after a crash its caller sends it again.
    """

    suffix: str
    requires_rollout: bool = True
    is_single: bool = False
    is_cleanup: bool = False
    holds_reply: bool = False
    replays: bool = False


class ParticipantHooks(Protocol):
    """What a server's author writes; :class:`DefaultHooks` has the parts that few need."""

    @property
    def gated_routes(self) -> Sequence[GatedRoute]:
        """The routes of the server that go through admission by themselves."""

    @property
    def needs_scope(self) -> bool:
        """Whether a commit has to name its episodes: "everything" means nothing here."""

    def joined(self, participant: ParticipantId) -> None:
        """The hooks are those of this participant; called once, before anything else."""

    def attach(self, admission: Admission) -> None:
        """Work that the hooks let in themselves goes through here; called once, at the start."""

    async def call_begins(self, call: ServedCall) -> None:
        """A gated call was admitted and is about to reach the server's code; may refuse it
        with a :class:`~participant.errors.ParticipantError`."""

    async def call_replies(self, call: ServedCall, status: int) -> Mapping[str, str]:
        """The first byte of the reply is about to leave; headers to add to it.

        The call still counts as running.  Of a reply that is held, this comes after resume.
        """

    async def call_ends(self, call: ServedCall) -> None:
        """The call has ended, whether or not it replied; it still counts as running."""

    def blocking(self) -> int:
        """How many things keep a checkpoint from being taken, beside admitted calls.

        Asked at every change while a checkpoint is prepared: a counter, never a scan.  Call
        ``Participant.notify`` when it goes down.
        """

    def blockers(self) -> Iterable[str]:
        """Their capture keys, or labels where there is no episode; asked once for a reply."""

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """The counts of the report; ``gate`` has those of admission."""

    def held(self) -> Iterable[str]:
        """The first few capture keys of what is held; a restore needs there to be none."""

    def status(self, pending: int) -> Mapping[str, Any]:
        """Members that the role adds to the status; ``pending`` is the number of restored
        episodes whose replacement has not started."""

    def closed(self, checkpoint_id: str, budget_s: float) -> None:
        """Admission has been closed; must not wait.  An exception opens it again."""

    def opened(self) -> None:
        """Admission is open again; must not wait."""

    async def export(self, scope: Scope) -> Export:
        """The records of the episodes in ``scope``, restored ones that have not started included.

        Called once a checkpoint.  A restored episode is exported under the attempt that it
        was installed as.  Where a scope is needed, ``scope`` names its episodes.
        """

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """Install all records, each under ``record.episode_id.continuation``, or none.

        ``episodes`` are all attempts that will be continued; of one without a record, what
        an earlier process left has to be cleared.
        """

    async def stop(self, episode: EpisodeId) -> None:
        """Stop what runs for ``episode`` and earlier attempts outside admitted calls, and wait
        until it has ended.  Admitted calls are cancelled by the runtime."""

    async def free(self, episode: EpisodeId) -> None:
        """Hold nothing of ``episode`` and earlier attempts any more.  May be called twice."""

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """Hold nothing of exactly these attempts, which were restored and never started.

        Leaves nothing behind that would refuse them: they may be started over.  May be
        called twice.
        """


class DefaultHooks:
    """Hooks of a server whose work all comes through admission, and that holds nothing.

    Subclasses override what they know better.
    """

    gated_routes: Sequence[GatedRoute] = ()
    needs_scope: bool = False

    def joined(self, participant: ParticipantId) -> None:
        """As :meth:`ParticipantHooks.joined`: nothing to do."""

    def attach(self, admission: Admission) -> None:
        """As :meth:`ParticipantHooks.attach`: all work comes through gated routes."""

    async def call_begins(self, call: ServedCall) -> None:
        """As :meth:`ParticipantHooks.call_begins`: nothing to do."""

    async def call_replies(self, call: ServedCall, status: int) -> Mapping[str, str]:
        """As :meth:`ParticipantHooks.call_replies`: no headers."""
        return {}

    async def call_ends(self, call: ServedCall) -> None:
        """As :meth:`ParticipantHooks.call_ends`: nothing to do."""

    def blocking(self) -> int:
        """As :meth:`ParticipantHooks.blocking`: nothing."""
        return 0

    def blockers(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.blockers`: nothing."""
        return ()

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """As :meth:`ParticipantHooks.counts`: those of admission."""
        return {
            "executions": gate.executions,
            "parked": gate.parked,
            "untagged": gate.untagged,
            "waiting": gate.waiting,
        }

    def held(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.held`: nothing."""
        return ()

    def status(self, pending: int) -> Mapping[str, Any]:
        """As :meth:`ParticipantHooks.status`: the number of restored episodes."""
        return {"restored_pending": pending}

    def closed(self, checkpoint_id: str, budget_s: float) -> None:
        """As :meth:`ParticipantHooks.closed`: nothing to do."""

    def opened(self) -> None:
        """As :meth:`ParticipantHooks.opened`: nothing to do."""

    async def export(self, scope: Scope) -> Export:
        """As :meth:`ParticipantHooks.export`: no record."""
        return Export(())

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`: nothing to do."""

    async def stop(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.stop`: nothing to do."""

    async def free(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.free`: nothing to do."""

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.release`: frees each of them."""
        for episode in sorted(episodes):
            await self.free(episode)
