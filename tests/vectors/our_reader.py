"""A case as the packages read it: what an ``expected.json`` holds, or the error."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord, read_record
from ckptfmt.store.local import LocalStore
from ckptfmt.stream import BytesSource, StreamReader
from ckptfmt.stream.checksum import content_rows
from tests.vectors.building import STREAM
from tests.vectors.spelling import spell

__all__ = ["read"]


def read(folder: Path) -> dict[str, Any]:
    """What the case in ``folder`` holds.

    Raises:
        CkptError: it is refused.
    """
    checkpoint = folder / "checkpoint"
    return _checkpoint(checkpoint) if checkpoint.is_dir() else _stream(folder / STREAM)


def _stream(path: Path) -> dict[str, Any]:
    with StreamReader(BytesSource(path.read_bytes(), path.name)) as reader:
        lines = [stored.line for stored in reader.lines()]
        head = reader.head()
        records = [_reading(read_record(head.kind, line), line) for line in lines]
        assert [one["key"] for one in records] == list(map(reader.key_at, range(len(records))))
        assert [reader.get(one["key"]) for one in records] == lines
        return {
            "names": [head.kind, head.instance, head.checkpoint_id],
            "content_digest": _content_digest(lines, list(reader.digests())),
            "records": records,
        }


def _content_digest(lines: list[bytes], digests: list[bytes]) -> str:
    return hashlib.sha256(content_rows(list(map(len, lines)), digests)).hexdigest()


def _checkpoint(root: Path) -> dict[str, Any]:
    checkpoint = Checkpoint.open(LocalStore(root))
    participants = {}
    for participant in checkpoint.manifest.participants:
        reader = checkpoint.participant(participant.participant)
        participants[str(reader.participant)] = {
            "content_digest": reader.content_digest,
            "records": [_reading(record, record.stored_line) for record in reader.load()],
        }
    return {
        "sequence": checkpoint.sequence,
        "scope": checkpoint.manifest.scope,
        "participants": participants,
    }


def _reading(record: TypedRecord | Record, line: bytes | None) -> dict[str, Any]:
    assert line is not None
    generic = record if isinstance(record, Record) else record.to_record()
    # First of all: that the line is UTF-8 shows here.
    values = {name: spell(payload.value()) for name, payload in generic.members.items()}
    return {
        "key": record.key,
        "line": line.decode(),
        "annotations": json.loads(line).get("$exact", {}),
        "values": values,
        "texts": {
            name: payload.json_bytes().decode()
            for name, payload in generic.members.items()
            if payload.annotations is not None and bytes(payload.annotations) == b'[["","text"]]'
        },
    }
