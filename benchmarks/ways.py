"""What this project is compared with: ways to commit and restore sessions in one file.

*Reference* is how NVIDIA-NeMo/Gym#3882 does it; *bare* is the least that anybody would
do (encode, write, fsync), and neither checks nor compresses.  What they are compared
with stands in :mod:`benchmarks.layers`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from benchmarks.sets import Session

__all__ = ["commit_bare", "commit_reference", "plain_record", "restore_reference"]


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


def plain_record(session: Session) -> dict[str, Any]:
    """The record as both have it; the line of a stream says the same."""
    episode = session.episode_id
    return {
        "episode_id": {"rollout_id": episode.rollout_id, "attempt": episode.attempt},
        "session_id": session.session_id,
        "state": session.state,
        "owner": None,
    }


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
