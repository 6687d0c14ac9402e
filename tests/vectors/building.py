"""Makes cases: streams and checkpoints whose every byte is fixed, and what they must read as.

The library that compresses decides the bytes of zstd frames, and nothing else does: identities,
tokens and times are constants.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.manifest import (
    CheckpointManifest,
    DataObject,
    Expected,
    ParticipantManifest,
    Provenance,
    encode_manifest,
)
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.schema import SCHEMAS
from ckptfmt.stream.checksum import content_rows, record_digest
from tests.support.streams import build
from tests.vectors.spelling import spell

__all__ = [
    "Case",
    "Checkpoint",
    "Group",
    "Link",
    "Made",
    "make_checkpoint",
    "make_stream",
    "record",
    "text",
    "uuid_of",
    "write_cases",
]

STREAM: Final = "records.jsonl.zst"
PROVENANCE: Final = Provenance(
    library="ckptfmt 0.1.0",
    python="CPython 3.11.0",
    host="host.example",
    created_at="2026-01-01T00:00:00.000Z",
    user={"commit": "0123abc"},
)


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link; ``target`` is relative to the folder it stands in."""

    target: str


@dataclass(frozen=True, slots=True)
class Case:
    """A folder of files by relative name, and what is expected of who reads it."""

    name: str
    expected: Mapping[str, Any]
    files: Mapping[str, bytes | Link]


@dataclass(frozen=True, slots=True)
class Made:
    """A record of a case: its line, and how its members must come back.

    ``texts``: those that came in as JSON bytes and are stored as a string.
    """

    key: str
    line: bytes
    values: Mapping[str, object]
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def episode(self) -> str:
        """The capture key."""
        return self.key.partition("/")[0]

    def expected(self) -> dict[str, Any]:
        """The reading of the record."""
        return {
            "key": self.key,
            "line": self.line.decode(),
            "annotations": json.loads(self.line).get("$exact", {}),
            "values": {name: spell(value) for name, value in self.values.items()},
            "texts": dict(self.texts),
        }


@dataclass(frozen=True, slots=True)
class _Text:
    json: bytes


def text(json_text: bytes) -> _Text:
    """A member that comes in as JSON bytes."""
    return _Text(json_text)


def record(rollout: str = "r1", *, attempt: int = 0, kind: str = "generic", **members: Any) -> Made:
    """A record of these members: Python values, or :func:`text`."""
    payloads, values, texts = {}, {}, {}
    for name, value in members.items():
        if isinstance(value, _Text):
            payloads[name] = JsonPayload.from_json(value.json)
            values[name] = json.loads(value.json)
            if payloads[name].annotations is not None:
                texts[name] = value.json.decode()
        else:
            payloads[name] = JsonPayload.from_value(value)
            values[name] = value
    schema = SCHEMAS.get(kind)
    sub_key_member = "sub_key" if schema is None else schema.sub_key_member
    made = Record(
        episode_id=EpisodeId(rollout, attempt), members=payloads, sub_key_member=sub_key_member
    )
    return Made(made.key, join_line(made.line()), values, texts)


def uuid_of(name: str) -> bytes:
    """The identity of a stream of a case."""
    return hashlib.sha256(name.encode()).digest()[:16]


def make_stream(
    records: Iterable[Made],
    *,
    name: str = "base",
    kind: str = "generic",
    instance: str = "g1",
    checkpoint_id: str = "ck-1",
    **options: Any,
) -> tuple[bytes, Any]:
    """The bytes of a stream, and what its writer says of it."""
    return build(
        {made.key: made.line for made in records},
        kind=kind,
        instance=instance,
        checkpoint_id=checkpoint_id,
        uuid=uuid_of(name),
        **options,
    )


def stream_reading(records: Sequence[Made], about: str, **names: Any) -> dict[str, Any]:
    """The expected reading of a stream."""
    who = {"kind": "generic", "instance": "g1", "checkpoint_id": "ck-1"} | names
    return {
        "about": about,
        "names": [who["kind"], who["instance"], who["checkpoint_id"]],
        "content_digest": _content_digest(records),
        "records": [made.expected() for made in records],
    }


def _content_digest(records: Sequence[Made]) -> str:
    digests = [record_digest(made.line) for made in records]
    return hashlib.sha256(content_rows([len(made.line) for made in records], digests)).hexdigest()


@dataclass(slots=True)
class Group:
    """A participant to be made: its records, object by object, and changes of its manifest.

    ``spoil`` changes the bytes of its data objects before the manifest states their digests.
    """

    participant: ParticipantId
    objects: Sequence[Sequence[Made]]
    changes: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, bytes] = field(default_factory=dict)
    spoil: Callable[[bytes], bytes] = bytes

    @property
    def records(self) -> list[Made]:
        """All of them, in order."""
        return [made for item in self.objects for made in item]

    @property
    def token(self) -> str:
        """The token of its one attempt."""
        return hashlib.sha256(str(self.participant).encode()).hexdigest()[:24]


@dataclass(slots=True)
class Checkpoint:
    """Files of a checkpoint by name, and its expected reading."""

    files: dict[str, bytes | Link]
    reading: dict[str, Any]


def make_checkpoint(
    groups: Sequence[Group],
    *,
    checkpoint_id: str = "ck-1",
    unknown: Mapping[str, bytes] | None = None,
    **changes: Any,
) -> Checkpoint:
    """A whole checkpoint; ``changes`` are of ``checkpoint.json``."""
    files: dict[str, bytes | Link] = {}
    listed = []
    for group in groups:
        folder = f"checkpoint/{group.participant}"
        data = _participant(group, checkpoint_id, files, folder)
        files[f"{folder}/manifest.json"] = data
        listed.append(
            Expected(
                kind=group.participant.kind,
                instance=group.participant.instance,
                manifest_sha256=hashlib.sha256(data).hexdigest(),
                manifest_bytes=len(data),
            )
        )
    members: dict[str, Any] = {
        "checkpoint_id": checkpoint_id,
        "token": "c" * 24,
        "sequence": 7,
        "participants": listed,
        "provenance": PROVENANCE,
    }
    body = CheckpointManifest(**(members | changes))
    files["checkpoint/checkpoint.json"] = encode_manifest(body, unknown).data
    reading = {
        "sequence": body.sequence,
        "scope": body.scope,
        "participants": {
            str(group.participant): {
                "content_digest": _content_digest(group.records),
                "records": [made.expected() for made in group.records],
            }
            for group in groups
        },
    }
    return Checkpoint(files, reading)


def _participant(
    group: Group, checkpoint_id: str, files: dict[str, bytes | Link], folder: str
) -> bytes:
    kind, instance = group.participant.kind, group.participant.instance
    objects, ordinal = [], 0
    for number, made in enumerate(group.objects):
        data, summary = make_stream(
            made,
            name=f"{group.participant} {number}",
            kind=kind,
            instance=instance,
            checkpoint_id=checkpoint_id,
        )
        data = group.spoil(data)
        name = f"records-{group.token}-{number:03}.jsonl.zst"
        files[f"{folder}/{name}"] = data
        objects.append(
            DataObject(
                name=name,
                size_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                first_ordinal=ordinal,
                records=summary.records,
                blocks=summary.blocks,
                raw_bytes=summary.raw_bytes,
                index_offset=summary.index_offset,
                index_length=summary.index_length,
            )
        )
        ordinal += summary.records
    members: dict[str, Any] = {
        "checkpoint_id": checkpoint_id,
        "kind": kind,
        "instance": instance,
        "token": group.token,
        "schema": kind if kind in SCHEMAS else "generic",
        "schema_version": 1,
        "objects": objects,
        "record_count": ordinal,
        "content_digest": _content_digest(group.records),
        "episode_ids": sorted({made.episode for made in group.records}),
        "provenance": PROVENANCE,
    }
    return encode_manifest(ParticipantManifest(**(members | group.changes)), group.unknown).data


def write_cases(cases: Iterable[Case], folder: Path) -> None:
    """Write each case into a folder of its name."""
    for case in cases:
        files: dict[str, bytes | Link] = dict(case.files)
        spelled = json.dumps(case.expected, indent=1, ensure_ascii=True)
        files["expected.json"] = f"{spelled}\n".encode()
        for name, content in files.items():
            path = folder / case.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                path.symlink_to(content.target)
            else:
                path.write_bytes(content)
