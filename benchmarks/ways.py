"""The ways that are compared: each commits or restores the same sessions in one file.

*Reference* is how NVIDIA-NeMo/Gym#3882 does it; *bare* is the least that anybody would
do (encode, write, fsync), and neither checks nor compresses; *stream* is this project's
record stream.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from benchmarks.sets import Session
from ckptfmt.gc_pause import bulk_decode
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import ResourcesRecord
from ckptfmt.stream import FileSource, StreamFacts, StreamReader, StreamWriter

__all__ = [
    "commit_bare",
    "commit_reference",
    "commit_stream",
    "plain_record",
    "read_stream",
    "restore_reference",
    "restore_stream_full",
    "restore_stream_lazy",
]

_KIND: Final = "resources"


def commit_reference(sessions: Sequence[Session], path: Path) -> str:
    """Check with ``orjson``, spell with ``json``, hash, write, fsync; the hash in hex."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for session in sessions:
            record = plain_record(session)
            orjson.dumps(record)
            line = json.dumps(record).encode() + b"\n"
            digest.update(line)
            file.write(line)
        _make_durable(file)
    return digest.hexdigest()


def commit_bare(sessions: Sequence[Session], path: Path) -> None:
    """Encode, write, fsync: no check of types, no hash, and NaN becomes ``null``."""
    with path.open("wb") as file:
        for session in sessions:
            file.write(orjson.dumps(plain_record(session), option=orjson.OPT_APPEND_NEWLINE))
        _make_durable(file)


def commit_stream(sessions: Sequence[Session], path: Path) -> StreamFacts:
    """Typed records, exact payloads, a compressed and indexed stream, fsync."""
    with path.open("wb") as file:
        writer = StreamWriter(file, kind=_KIND, instance="bench", checkpoint_id="bench")
        with writer:
            for session in sessions:
                record = _typed(session)
                writer.add(record.key, record.line())
            facts = writer.close()
        _make_durable(file)
    return facts


def restore_reference(path: Path, sha256: str) -> list[Any]:
    """Hash the file, decode every line; the records."""
    digest = hashlib.sha256()
    records = []
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            records.append(json.loads(line))
    if digest.hexdigest() != sha256:
        raise ValueError("the file is not the one that was written")
    return records


def restore_stream_lazy(path: Path, facts: StreamFacts) -> list[ResourcesRecord]:
    """Everything verified, records typed, payloads not decoded; the records."""
    return list(_records(path, facts))


def restore_stream_full(path: Path, facts: StreamFacts) -> list[Any]:
    """As :func:`restore_stream_lazy`, and every payload decoded; the states."""
    # One pause for all, as a restore has it: between two payloads there is no garbage either.
    with bulk_decode():
        return [
            None if record.state is None else record.state.value()
            for record in _records(path, facts)
        ]


def read_stream(path: Path, facts: StreamFacts) -> int:
    """As :func:`restore_stream_lazy`, but nothing is kept; the length of the longest line."""
    return max(len(record.stored_line or b"") for record in _records(path, facts))


def _records(path: Path, facts: StreamFacts) -> Iterator[ResourcesRecord]:
    with StreamReader(FileSource.open(path), facts) as reader:
        # As a restore reads: the file's SHA-256, which is compared below, covers the digests.
        for stored in reader.lines(digests=False):
            yield ResourcesRecord.from_line(stored.line)
        if reader.sha256 != facts.sha256:
            raise ValueError("the stream is not the one that was written")


def plain_record(session: Session) -> dict[str, Any]:
    """The record as the reference and the bare way have it; the stream's line has the same."""
    episode = session.episode_id
    return {
        "episode_id": {"rollout_id": episode.rollout_id, "attempt": episode.attempt},
        "session_id": session.session_id,
        "state": session.state,
        "owner": None,
    }


def _typed(session: Session) -> ResourcesRecord:
    return ResourcesRecord(
        episode_id=session.episode_id,
        session_id=session.session_id,
        state=JsonPayload.from_value(session.state),
        owner=None,
    )


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
