"""Small checkpoints for tests."""

from __future__ import annotations

from collections.abc import Iterable

from ckptfmt.commit import Outcome
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.manifest import CheckpointManifest
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import About, write_checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import AgentRecord, ResourcesRecord, TypedRecord
from ckptfmt.store.base import Store

__all__ = [
    "AGENT",
    "RESOURCES",
    "agent_record",
    "resources_record",
    "small_records",
    "write_small",
    "write_tiny",
]

AGENT = ParticipantId("agent", "a1")
RESOURCES = ParticipantId("resources", "r1")


def agent_record(rollout: str, *, attempt: int = 0, text: str = "hello") -> AgentRecord:
    """A session of an agent."""
    return AgentRecord(
        episode_id=EpisodeId(rollout, attempt),
        session_key="s",
        session=JsonPayload.from_value({"messages": [{"role": "user", "content": text}]}),
        boundary=JsonPayload.from_value({"turn": 3}),
        episode=None,
    )


def resources_record(rollout: str, *, attempt: int = 0, state: object = None) -> ResourcesRecord:
    """A session of a resources server, with a state that needs annotations."""
    return ResourcesRecord(
        episode_id=EpisodeId(rollout, attempt),
        session_id=f"session/{rollout}",
        state=JsonPayload.from_value({"rows": [(1, float("nan"))], "more": state}),
        owner=None,
    )


def small_records(
    *, rollouts: Iterable[str] = ("r1", "r2", "r3"), state: object = None
) -> dict[ParticipantId, list[TypedRecord | Record]]:
    """An agent and a resources participant with a record a rollout each."""
    rollouts = list(rollouts)
    return {
        AGENT: [agent_record(rollout) for rollout in rollouts],
        RESOURCES: [resources_record(rollout, state=state) for rollout in rollouts],
    }


def write_small(
    store: Store, checkpoint_id: str = "ck-1", *, state: object = None, about: About = About()
) -> Outcome[CheckpointManifest]:
    """Write a checkpoint of :func:`small_records`."""
    return write_checkpoint(store, checkpoint_id, small_records(state=state), about)


def write_tiny(
    store: Store, checkpoint_id: str = "ck-1", *, about: About = About()
) -> Outcome[CheckpointManifest]:
    """Write a checkpoint of one participant with one record."""
    return write_checkpoint(store, checkpoint_id, {AGENT: [agent_record("r1")]}, about)
