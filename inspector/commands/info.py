"""``info``: what a checkpoint is and who wrote it, from its manifests alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
import orjson
import typer

from ckptfmt.errors import CkptError
from ckptfmt.manifest import NOT_RECOVERED, CheckpointManifest, Provenance, Sealed
from ckptfmt.participant_reader import ParticipantReader
from inspector.options import command
from inspector.output.base import Column, Item, Table, Views
from inspector.places import open_checkpoint
from inspector.quantities import count, size
from inspector.reading import Reading, open_reading
from inspector.session import Session

__all__ = ["VIEWS", "app", "info"]


def _checkpoint_lines(item: Item) -> Iterator[str]:
    shown = {
        "checkpoint": item["checkpoint_id"],
        "state": item["state"],
        "sequence": item["sequence"],
        "previous": (item["previous"] or {}).get("checkpoint_id"),
        "run": item["run_id"],
        "config digest": item["config_digest"],
        "scope": None if item["scope"] is None else f"{count(item['scope'])} episodes",
        "format": item["format_version"],
    }
    for name, value in shown.items():
        if value is not None:
            yield f"{name:<14}{value}"
    yield from _provenance_lines(item["provenance"])
    if item["recovered"] is not None:
        yield f"{'recovered':<14}{_json_text(item['recovered'])}"
    yield f"{'metadata':<14}{_json_text(item['user_metadata'])}"
    yield ""


def _provenance_lines(provenance: Item | None) -> Iterator[str]:
    if provenance is None:
        return
    yield f"{'written by':<14}{provenance['library']} on {provenance['python']}"
    yield f"{'host':<14}{provenance['host']}"
    yield f"{'created':<14}{provenance['created_at']}"
    for name, value in provenance["user"].items():
        yield f"{'user':<14}{name} = {value}"


def _json_text(stored: Any) -> str:
    return orjson.dumps(stored).decode()


VIEWS: Final[Views] = {
    "checkpoint": _checkpoint_lines,
    "participant": Table(
        (
            Column("PARTICIPANT", lambda item: item["address"]),
            Column("RECORDS", lambda item: count(item["records"]), right=True),
            Column("EPISODES", lambda item: count(item["episodes"]), right=True),
            Column("STORED", lambda item: size(item["bytes"]), right=True),
            Column("RAW", lambda item: size(item["raw_bytes"]), right=True),
            Column("OBJECTS", lambda item: count(item["objects"]), right=True),
            Column("SCHEMA", lambda item: f"{item['schema']} {item['schema_version']}"),
            Column("CONTENT", lambda item: item["content_digest"][:16]),
        )
    ),
}


def info(
    session: Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A checkpoint's directory, or RUN@latest.")
    ],
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Also of a checkpoint that was never published.")
    ] = False,
) -> None:
    """Summarise a checkpoint from its manifests: what it holds and who wrote it.

    No record is read; sizes of data objects are compared, their content is not.
    """
    place = open_checkpoint(checkpoint)
    for notice in place.notices:
        session.talk.notice(notice)
    reading = open_reading(place, session.damage, incomplete=incomplete)
    participants = list(_participants(session, reading))
    whole = len(participants) == len(reading.participants) and session.reason is None
    session.item("checkpoint", **_checkpoint(reading, whole=whole))
    for participant in participants:
        session.item("participant", **participant)
    session.summary |= {
        "participants": len(reading.participants),
        "records": sum(item["records"] for item in participants),
        "bytes": sum(item["bytes"] for item in participants),
        "raw_bytes": sum(item["raw_bytes"] for item in participants),
    }


app = command(VIEWS)(info)


def _participants(session: Session, reading: Reading) -> Iterator[dict[str, Any]]:
    for reader in reading.readers(reading.participants, session.damage):
        try:
            reader.check_sizes()
        except CkptError as error:
            session.damage(error)
        try:
            yield _participant(reader)
        except CkptError as error:
            # Only where there is no index: what it would tell has to be read.
            session.damage(error)


def _checkpoint(reading: Reading, *, whole: bool) -> dict[str, Any]:
    if reading.published is None:
        state = "incomplete" if whole else "damaged"
        return {**dict.fromkeys(_CHECKPOINT_MEMBERS), "state": state}
    sealed: Sealed[CheckpointManifest] = reading.published.sealed
    body = sealed.body
    previous = body.previous
    return {
        "checkpoint_id": body.checkpoint_id,
        "state": "complete" if whole else "damaged",
        "sequence": reading.published.sequence,
        "previous": previous
        and {"checkpoint_id": previous.checkpoint_id, "sha256": previous.sha256},
        "run_id": body.run_id,
        "config_digest": body.config_digest,
        "scope": None if body.scope is None else len(body.scope),
        "format_version": reading.published.format_version,
        "sha256": sealed.sha256 if sealed.data else None,
        "recovered": None if body.recovered == NOT_RECOVERED else _stored(body.recovered),
        "user_metadata": _stored(body.user_metadata),
        "unknown_members": sorted(sealed.unknown),
        "provenance": _provenance(body.provenance),
    }


def _stored(text: msgspec.Raw) -> orjson.Fragment:
    return orjson.Fragment(bytes(text))


_CHECKPOINT_MEMBERS: Final = (
    "checkpoint_id", "state", "sequence", "previous", "run_id", "config_digest", "scope",
    "format_version", "sha256", "recovered", "user_metadata", "unknown_members", "provenance",
)  # fmt: skip


def _provenance(provenance: Provenance) -> dict[str, Any]:
    return {
        "library": provenance.library,
        "python": provenance.python,
        "host": provenance.host,
        "created_at": provenance.created_at,
        "user": provenance.user,
    }


def _participant(reader: ParticipantReader) -> dict[str, Any]:
    manifest = reader.manifest
    return {
        "address": str(reader.participant),
        "kind": manifest.kind,
        "instance": manifest.instance,
        "schema": manifest.schema,
        "schema_version": manifest.schema_version,
        "records": manifest.record_count,
        "episodes": len(reader.episode_ids),
        "objects": len(manifest.objects),
        "blocks": sum(item.blocks for item in manifest.objects),
        "bytes": sum(item.size_bytes for item in manifest.objects),
        "raw_bytes": reader.raw_bytes,
        "content_digest": reader.content_digest,
        "role": _stored(manifest.role),
        "ledger_pins": len(manifest.ledger_pins),
        "unknown_members": sorted(reader.sealed.unknown),
        "provenance": _provenance(manifest.provenance),
    }
