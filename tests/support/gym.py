"""Checkpoints in NeMo Gym's layout, written here by the standard library alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["agent_line", "gym_small", "resources_line", "tree", "write_gym"]


def agent_line(rollout: str, *, attempt: int = 0, text: str = "hello") -> dict[str, Any]:
    """The same session as :func:`tests.support.checkpoints.agent_record`."""
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "session_key": "s",
        "session": {"messages": [{"role": "user", "content": text}]},
        "boundary": {"turn": 3},
        "episode": None,
    }


def resources_line(rollout: str, *, attempt: int = 0, state: object = None) -> dict[str, Any]:
    """A session whose state needs ``NaN`` and ``Infinity``."""
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "session_id": f"session/{rollout}",
        "state": {"rows": [[1, float("nan")], [-0.0, float("-inf")]], "more": state},
        "owner": None,
    }


def gym_small(rollouts: Iterable[str] = ("r1", "r2", "r3")) -> dict[str, list[dict[str, Any]]]:
    """An agent and a resources participant with a record a rollout each."""
    rollouts = list(rollouts)
    return {
        "agent/a1": [agent_line(rollout) for rollout in rollouts],
        "resources/r1": [resources_line(rollout) for rollout in rollouts],
    }


def write_gym(
    checkpoint: Path,
    records: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    *,
    checkpoint_id: str = "ck-1",
    by_digest: bool = True,
    aggregate: bool = True,
    indent: int | None = None,
    last_lf: bool = True,
) -> Path:
    """Write a checkpoint; ``by_digest`` names the records' file, ``indent`` spells manifests."""
    records = gym_small() if records is None else records
    for participant, values in records.items():
        kind, instance = participant.split("/")
        folder = checkpoint / "gym" / kind / instance
        folder.mkdir(parents=True)
        data = "".join(json.dumps(value) + "\n" for value in values).encode()
        data = data if last_lf else data.removesuffix(b"\n")
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"records-{sha256}.jsonl" if by_digest else "records.jsonl"
        (folder / name).write_bytes(data)
        manifest = {
            "checkpoint_id": checkpoint_id,
            "instance": instance,
            "kind": kind,
            "record_count": len(values),
            "records_file": name,
            "records_sha256": sha256,
            "schema_version": 1,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=indent))
    if aggregate:
        told = {
            "schema_version": 2,
            "checkpoint_id": checkpoint_id,
            "instances": [participant.split("/")[1] for participant in records],
            "staging_keys": ["k1", "k2"],
        }
        (checkpoint / "gym_checkpoint.json").write_text(json.dumps(told, indent=indent))
    return checkpoint


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
