"""An agent's session, and the loop that runs in it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import AgentRecord
from participant.core.steps import StepMode, StepState
from participant.roles.payloads import payload_of
from participant.roles.work import Work
from participant.runtime.clean_ups import held
from participant.runtime.execution import Execution

__all__ = ["Activation", "RestoredSession", "Session", "SessionState", "Snapshot"]

Snapshot = Callable[[], Any]
"""Gives the loop as it was when the boundary was taken, whatever has changed since."""


class SessionState(StrEnum):
    """What a session is doing."""

    IDLE = "idle"
    RUNNING = "running"
    AT_BOUNDARY = "at_boundary"


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """A session as it was exported, under the attempt that continues it."""

    episode: EpisodeId
    key: str
    state: Any


@dataclass(slots=True)
class Session:
    """One session; a boundary is a payload as long as it is the one that was restored.

    ``episode`` is the step boundary of a whole episode; None where the agent owns none.
    """

    key: str
    boundary: Snapshot | JsonPayload | None = None
    episode: Mapping[str, Any] | JsonPayload | None = None
    is_restored: bool = False
    activation: Activation | None = None

    @property
    def state(self) -> SessionState:
        """What it is doing."""
        return SessionState.IDLE if self.activation is None else self.activation.state

    def record(self, episode: EpisodeId, state: Any) -> AgentRecord:
        """What a checkpoint holds of it; ``state`` is what the server holds beside the loop.

        Raises:
            ValueRefusedError: ``ckptfmt`` cannot carry a part of it; the record is named.
        """
        name = f"{episode.capture_key}/{self.key}"
        boundary = self.boundary() if callable(self.boundary) else self.boundary
        return AgentRecord(
            episode_id=episode,
            session_key=self.key,
            session=payload_of(state, name),
            boundary=_payload(boundary, name),
            episode=_payload(self.episode, name),
        )


def _payload(value: Any, name: str) -> JsonPayload | None:
    return value if value is None or isinstance(value, JsonPayload) else payload_of(value, name)


class Activation(Work):
    """A run of a session's loop.

    ``restored`` is the snapshot that it continues from; None: it begins from its input.
    ``restored_episode`` is the same of the steps of a whole episode.
    """

    def __init__(self, execution: Execution, session: Session, clean_up_timeout_s: float) -> None:
        super().__init__(execution, clean_up_timeout_s)
        self._session = session
        self.restored: Any = None
        self.restored_episode: Any = None
        if session.is_restored:
            session.is_restored = False
            self.restored = _value(session.boundary)
            self.restored_episode = _value(session.episode)

    @property
    def state(self) -> SessionState:
        """Running, or at a boundary."""
        waits = self._execution.state in (StepState.PARKED, StepState.REPLAY_STEP)
        return SessionState.AT_BOUNDARY if waits else SessionState.RUNNING

    async def boundary(self, snapshot: Snapshot) -> None:
        """A boundary, after a round of tools, say; parks here while a checkpoint is open."""
        self._session.boundary = snapshot
        await self._execution.boundary(None)

    @contextlib.asynccontextmanager
    async def model_call(self, snapshot: Snapshot) -> AsyncIterator[None]:
        """A boundary, and the model call right after it, which the block makes.

        A checkpoint does not wait for the call.  What it comes to, a failure too, is held
        at the end of the block while a checkpoint is open.
        """
        await self.boundary(snapshot)
        async with held(self._execution), self._execution.step(StepMode.REPLAY):
            yield

    async def episode_boundary(self, state: Mapping[str, Any]) -> None:
        """The state of the whole episode after a step that is no part of the loop.

        The loop's own boundary is forgotten: it begins from its input if it runs again.
        ``state`` must not be changed afterwards.

        Raises:
            RuntimeError: the agent does not own episodes.
        """
        if self._session.episode is None:
            raise RuntimeError("an agent that does not own episodes has no boundary of one")
        self._session.episode = state
        self._session.boundary = None
        await self._execution.boundary(None)


def _value(boundary: object) -> Any:
    return boundary.value() if isinstance(boundary, JsonPayload) else None
