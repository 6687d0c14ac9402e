"""The layers of this project that are measured: the record stream, and whole checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from benchmarks.sets import Session
from ckptfmt.checkpoint import open_checkpoint
from ckptfmt.commit import Committed
from ckptfmt.gc_pause import bulk_decode
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import publish_checkpoint
from ckptfmt.schema import ResourcesRecord
from ckptfmt.store import LocalStore
from ckptfmt.stream import FileSource, StreamFacts, StreamReader, StreamWriter

__all__ = [
    "LAYERS",
    "CheckpointLayer",
    "Layer",
    "StreamLayer",
    "longest_line",
    "restore_full",
    "restore_lazy",
]

_PARTICIPANT: Final = ParticipantId("resources", "bench")
_CHECKPOINT_ID: Final = "bench"


class Layer(Protocol):
    """Sessions that were committed below a folder, and how to read them again."""

    @classmethod
    def commit(cls, sessions: Sequence[Session], folder: Path) -> Self:
        """Typed records with exact payloads, checked, compressed, indexed, durable."""

    def records(self) -> Iterator[ResourcesRecord]:
        """The records one by one, typed, payloads not decoded; all verified at the end."""


@dataclass(frozen=True, slots=True)
class StreamLayer:
    """One file, and what a manifest would state of it."""

    path: Path
    facts: StreamFacts

    @classmethod
    def commit(cls, sessions: Sequence[Session], folder: Path) -> Self:
        """As :meth:`Layer.commit`."""
        with LocalStore(folder).open_data("stream") as data:
            writer = StreamWriter(
                data,
                kind=_PARTICIPANT.kind,
                instance=_PARTICIPANT.instance,
                checkpoint_id=_CHECKPOINT_ID,
            )
            with writer:
                for session in sessions:
                    record = _typed(session)
                    writer.add(record.key, record.line())
                facts = writer.close()
            data.finish()
        return cls(folder / "stream", facts)

    def records(self) -> Iterator[ResourcesRecord]:
        """As :meth:`Layer.records`."""
        with StreamReader(FileSource.open(self.path), self.facts) as reader:
            # The file's SHA-256, compared below, covers the digests.
            for stored in reader.lines(digests=False):
                yield ResourcesRecord.from_line(stored.line)
            if reader.sha256 != self.facts.sha256:
                raise ValueError("the stream is not the one that was written")


@dataclass(frozen=True, slots=True)
class CheckpointLayer:
    """A published checkpoint of one participant on the local disk."""

    path: Path

    @classmethod
    def commit(cls, sessions: Sequence[Session], folder: Path) -> Self:
        """As :meth:`Layer.commit`; the controller's side is part of it."""
        run, place = LocalStore(folder), Folder(_CHECKPOINT_ID)
        with ParticipantWriter(run, place, _CHECKPOINT_ID, _PARTICIPANT) as writer:
            for session in sessions:
                writer.add(_typed(session))
            written = writer.finish()
        if isinstance(written, Committed):
            published = publish_checkpoint(run, place, _CHECKPOINT_ID, [_PARTICIPANT])
            if isinstance(published, Committed):
                return cls(folder / _CHECKPOINT_ID)
        raise ValueError("the checkpoint was not committed")

    def records(self) -> Iterator[ResourcesRecord]:
        """As :meth:`Layer.records`."""
        for record in open_checkpoint(self.path).participant(_PARTICIPANT).records():
            assert isinstance(record, ResourcesRecord)
            yield record


LAYERS: Final[dict[str, type[StreamLayer | CheckpointLayer]]] = {
    "stream": StreamLayer,
    "checkpoint": CheckpointLayer,
}


def _typed(session: Session) -> ResourcesRecord:
    """The record of a session as a server makes it."""
    return ResourcesRecord(
        episode_id=session.episode_id,
        session_id=session.session_id,
        state=JsonPayload.from_value(session.state),
        owner=None,
    )


def restore_lazy(layer: Layer) -> list[ResourcesRecord]:
    """All records read and verified, no payload decoded; the records."""
    return list(layer.records())


def restore_full(layer: Layer) -> list[Any]:
    """All records read and verified, and every payload decoded; the states."""
    # One pause for all, as a restore has it: between two payloads there is no garbage either.
    with bulk_decode():
        return [
            None if record.state is None else record.state.value() for record in layer.records()
        ]


def longest_line(layer: Layer) -> int:
    """As :func:`restore_lazy`, but nothing is kept; the length of the longest line in bytes."""
    return max(len(record.stored_line or b"") for record in layer.records())
