"""The role of an agent server: sessions, and the activations that run their loops.

A session is *idle* until it is activated; its loop is *running* until it comes to a
boundary, and *at a boundary* while it waits for the model call that follows one, or is
parked.  A boundary is a function that gives a snapshot of the loop as of that moment;
it is called only if it is exported.

::

    async with agent.activate(current_episode.get(), key) as loop:
        messages = loop.restored or [request]             # None: begin from the input
        while True:
            taken = len(messages)
            async with loop.model_call(lambda: messages[:taken]):
                reply = await ask_model(messages)         # a reply is held until resume
            messages.append(reply)
            ...
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ckptfmt.identity import EpisodeId
from ckptfmt.schema import AgentRecord
from participant.core.errors import (
    CheckpointParkedError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    InvalidRequestError,
    StaleAttemptError,
)
from participant.hooks import DefaultHooks, Export, GateCounts, GatedRoute, Scope
from participant.roles.activation import Activation, RestoredSession, Session, SessionState
from participant.roles.sessions import SessionTable
from participant.roles.work import CLEAN_UP_TIMEOUT_S, Entrance
from participant.runtime.admission import Admission, Gone
from participant.runtime.clean_ups import to_the_end, uninterrupted
from participant.runtime.execution import Execution

__all__ = ["Activation", "AgentHooks", "LoopOnlyHooks", "RestoredSession"]


class AgentHooks(DefaultHooks, ABC):
    """Hooks of an agent server: derive, and write the three hooks of sessions.

    ``owns_episodes``: an activation is a whole episode, as in an environment server; its
    session begins and ends with it.
    ``cannot_continue``: why a session of this agent cannot go on after a restart, if that
    is so.  Such an agent refuses a checkpoint while it has sessions, at once and by this
    reason, instead of keeping everybody waiting for a boundary that never comes.
    """

    owns_episodes: ClassVar[bool] = False
    cannot_continue: ClassVar[str | None] = None
    gated_routes: Sequence[GatedRoute] = (GatedRoute("/close_session", is_cleanup=True),)

    def __init__(self, *, clean_up_timeout_s: float = CLEAN_UP_TIMEOUT_S) -> None:
        self._clean_up_timeout_s = clean_up_timeout_s
        self._entrance = Entrance()
        self._table = SessionTable()
        self._sessions: dict[str, Session] = {}
        self._is_accepting = True

    @abstractmethod
    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """What the server holds of each of these sessions, beside its loop."""

    @abstractmethod
    async def restore_agent_sessions(self, sessions: Sequence[RestoredSession]) -> None:
        """Hold all of these sessions again, or none and raise."""

    @abstractmethod
    async def retire_agent_session(self, key: str) -> None:
        """Hold nothing of the session any more.

        Nothing of its loop runs by then.  May be called twice, and for a session that is
        not held.
        """

    def attach(self, admission: Admission) -> None:
        """As :meth:`ParticipantHooks.attach`."""
        self._entrance.attach(admission)

    @contextlib.asynccontextmanager
    async def seed(
        self, episode: EpisodeId | None, key: str, *, gone: Gone | None = None
    ) -> AsyncIterator[None]:
        """Run a block that builds the session ``key``; it is idle once the block has ended.

        Waits while a checkpoint or restore is open.  A session that the same attempt has
        already is replaced: its episode starts over.  If the block fails or its attempt is
        retired meanwhile, what it built is freed.  ``gone`` drops the call if its client
        goes away while it waits.

        Raises:
            RolloutIdRequiredError: checkpointing is on, and the call names no rollout.
            StaleAttemptError: the attempt is retired, or the session is another attempt's.
            CheckpointParkedError: the session is being seeded, or its loop waits or runs.
        """
        async with self._enter(episode, key, gone):
            if key in self._sessions:
                await uninterrupted(self._end(key))
            try:
                yield
            except BaseException:
                await uninterrupted(self.retire_agent_session(key))
                raise
            self._register(episode, Session(key))

    @contextlib.asynccontextmanager
    async def activate(
        self, episode: EpisodeId | None, key: str, *, gone: Gone | None = None
    ) -> AsyncIterator[Activation]:
        """Run a block as the loop of the session; waits while a checkpoint or restore is open.

        The end of the block is held while a checkpoint is open.  The session stays, idle
        and at its last boundary, until it is closed: its caller may have been lost before
        the reply came.  ``gone`` is as in :meth:`seed`.

        Raises:
            RolloutIdRequiredError: checkpointing is on, and the call names no rollout.
            InvalidRequestError: there is no such session, and the agent owns no episodes.
            StaleAttemptError: the attempt is retired, or the session is another attempt's.
            CheckpointParkedError: the session is being seeded, or its loop waits or runs.
        """
        async with self._enter(episode, key, gone) as execution:
            session = self._session(episode, key)
            activation = Activation(execution, session, self._clean_up_timeout_s)
            session.activation = activation
            try:
                async with to_the_end(execution, activation.clean_ups):
                    yield activation
            finally:
                try:
                    await execution.end_inner()
                finally:
                    session.activation = None
                    if self.owns_episodes:
                        await uninterrupted(self._end(key))

    async def close(self, episode: EpisodeId | None, key: str) -> None:
        """The session is over: for the handler of ``/close_session``, which is gated.

        Nothing happens where there is none.

        Raises:
            StaleAttemptError: the session is another attempt's.
            CheckpointParkedError: its loop is running.
        """
        self._check_owner(episode, key)
        session = self._sessions.get(key)
        if session is not None and session.activation is not None:
            raise CheckpointParkedError(f"the loop of session {key} is running")
        await self._end(key)

    @contextlib.asynccontextmanager
    async def _enter(
        self, episode: EpisodeId | None, key: str, gone: Gone | None
    ) -> AsyncIterator[Execution]:
        self._entrance.require(episode, f"the call for session {key}")
        async with self._entrance.admission.enter(
            episode, f"session {key}", check=lambda: self._check_owner(episode, key), gone=gone
        ) as execution:
            yield execution

    def _check_owner(self, episode: EpisodeId | None, key: str) -> None:
        owner = self._table.episode_of(key)
        if owner not in (None, episode):
            raise StaleAttemptError(f"session {key} belongs to {owner.capture_key}")

    def _session(self, episode: EpisodeId | None, key: str) -> Session:
        session = self._sessions.get(key)
        if session is not None:
            return session
        if self._entrance.is_gated and not self.owns_episodes:
            raise InvalidRequestError(f"there is no session {key}; seed it first")
        # An episode of the agent's own is told from others by having a boundary at all.
        return self._register(episode, Session(key, episode={} if self.owns_episodes else None))

    def _register(self, episode: EpisodeId | None, session: Session) -> Session:
        if episode is not None and self._entrance.is_gated:
            self._table.bind(session.key, episode)
            self._sessions[session.key] = session
        return session

    async def _end(self, key: str) -> None:
        await self.retire_agent_session(key)
        self._table.end(key)
        self._sessions.pop(key, None)

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """As :meth:`ParticipantHooks.counts`: all sessions, and how many are at a boundary."""
        states = [session.state for session in self._sessions.values()]
        return {"sessions": len(states), "at_boundary": states.count(SessionState.AT_BOUNDARY)}

    def held(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.held`."""
        return (episode.capture_key for _, episode in itertools.islice(self._table, 3))

    def status(self, pending: int) -> Mapping[str, Any]:
        """As :meth:`ParticipantHooks.status`: whether work is let in."""
        return {"accepting": self._is_accepting}

    def closed(self, checkpoint_id: str, budget_s: float) -> None:
        """As :meth:`ParticipantHooks.closed`."""
        self._check_continues()
        self._is_accepting = False

    def opened(self) -> None:
        """As :meth:`ParticipantHooks.opened`."""
        self._is_accepting = True

    def _check_continues(self) -> None:
        if self.cannot_continue is not None and self._sessions:
            raise InvalidPhaseError(
                f"this agent has {len(self._sessions)} sessions and cannot continue them: "
                f"{self.cannot_continue}; let them end, or retire them"
            )

    async def export(self, scope: Scope) -> Export:
        """As :meth:`ParticipantHooks.export`.

        Raises:
            InvalidPhaseError: the agent cannot continue its sessions.
            InvalidCheckpointStateError: the hook gave nothing of a session.
            ValueRefusedError: a session holds what ``ckptfmt`` cannot carry; it is named.
        """
        self._check_continues()
        wanted = {key: episode for key, episode in self._table if episode in scope}
        states = await self.export_agent_sessions(tuple(wanted)) if wanted else {}
        records = []
        for key, episode in wanted.items():
            if key not in states:
                raise InvalidCheckpointStateError(
                    f"export_agent_sessions gave nothing of session {key} of {episode.capture_key}"
                )
            records.append(self._sessions[key].record(episode, states[key]))
            await asyncio.sleep(0)  # Other requests, status among them, are served meanwhile.
        return Export(records)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`."""
        sessions: dict[str, Session] = {}
        restored = []
        for record in records:
            session, state = _read(record, is_owner=self.owns_episodes)
            if session.key in sessions:
                raise InvalidCheckpointStateError(f"two records hold session {session.key}")
            sessions[session.key] = session
            restored.append(RestoredSession(record.episode_id.continuation, session.key, state))
            await asyncio.sleep(0)
        for episode in episodes:
            await self.free(episode)
        if restored:
            await self.restore_agent_sessions(restored)
        for told in restored:
            self._register(told.episode, sessions[told.key])

    async def free(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.free`."""
        for key in self._table.up_to(episode):
            await self._end(key)

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.release`."""
        for episode in episodes:
            for key in self._table.of(episode):
                await self._end(key)


class LoopOnlyHooks(AgentHooks):
    """Hooks of an agent whose sessions are nothing beside their loops."""

    async def export_agent_sessions(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """As :meth:`AgentHooks.export_agent_sessions`: nothing of each."""
        return dict.fromkeys(keys)

    async def restore_agent_sessions(self, sessions: Sequence[RestoredSession]) -> None:
        """As :meth:`AgentHooks.restore_agent_sessions`: nothing to do."""

    async def retire_agent_session(self, key: str) -> None:
        """As :meth:`AgentHooks.retire_agent_session`: nothing to do."""


def _read(record: Any, *, is_owner: bool) -> tuple[Session, Any]:
    """A session at its boundary, and what the server held of it; all of it decoded once.

    What cannot be decoded fails the restore, not the loop that would go on.
    """
    if not isinstance(record, AgentRecord):
        raise InvalidCheckpointStateError(f"{record.key} is no record of an agent")
    if is_owner != (record.episode is not None):
        raise InvalidCheckpointStateError(
            f"{record.key} is {'no' if is_owner else 'an'} episode of an agent's own"
        )
    for payload in (record.boundary, record.episode):
        if payload is not None:
            payload.value()
    session = Session(record.session_key, record.boundary, record.episode, is_restored=True)
    return session, record.session.value()
