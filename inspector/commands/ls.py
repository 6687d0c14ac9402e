"""``ls``: the checkpoints of a run, the participants of a checkpoint, or their records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ckptfmt.errors import AbortedError, AmbiguousLatestError, CkptError, MissingError
from ckptfmt.identity import ParticipantId
from ckptfmt.run import CheckpointEntry, CheckpointState, latest, list_checkpoints
from ckptfmt.store.base import Store
from inspector.address import Selection, parse, select
from inspector.exit_codes import Exit
from inspector.limits import Limit, told_cut
from inspector.options import command
from inspector.output.base import Column, Item, Table, Views
from inspector.places import is_checkpoint, open_checkpoint, open_directory
from inspector.quantities import count, size
from inspector.reading import Reading, open_reading
from inspector.records import listed, sound
from inspector.session import Session

__all__ = ["VIEWS", "app", "ls"]

_STATE_STYLES: Final = {
    "complete": "green",
    "incomplete": "yellow",
    "aborted": "yellow",
    "damaged": "bold red",
}


def _state_style(state: str) -> str:
    return _STATE_STYLES.get(state, "")


def _named(item: Item) -> str:
    return f"{item['folder']} @latest" if item["latest"] else str(item["folder"])


VIEWS: Final[Views] = {
    "checkpoint": Table(
        (
            Column("CHECKPOINT", _named),
            Column("STATE", lambda item: item["state"], style=_state_style),
            Column("SEQUENCE", lambda item: count(item["sequence"]), right=True),
            Column("RECORDS", lambda item: count(item["records"]), right=True),
            Column("BYTES", lambda item: size(item["bytes"]), right=True),
            Column("CREATED", lambda item: item["created_at"] or "-"),
        )
    ),
    "participant": Table(
        (
            Column("PARTICIPANT", lambda item: item["address"]),
            Column("STATE", lambda item: item["state"], style=_state_style),
            Column("RECORDS", lambda item: count(item["records"]), right=True),
            Column("BYTES", lambda item: size(item["bytes"]), right=True),
            Column("EPISODES", lambda item: count(item["episodes"]), right=True),
        )
    ),
    "record": Table(
        (
            Column("RECORD", lambda item: item["address"]),
            Column("ORDINAL", lambda item: count(item["ordinal"]), right=True),
            Column("BYTES", lambda item: size(item["bytes"]), right=True),
        )
    ),
    "summary": told_cut,
}

_UNKNOWN: Final = {"records": None, "bytes": None, "episodes": None}


def ls(
    session: Session,
    target: Annotated[
        str, typer.Argument(metavar="RUN|CKPT", help="A run, a checkpoint, or RUN@latest.")
    ] = ".",
    address: Annotated[
        str | None, typer.Argument(metavar="ADDR", help="List the records below this address.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="Show so many; says if that cut.")
    ] = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Also into a checkpoint that was never published.")
    ] = False,
) -> None:
    """List the checkpoints of a run, the participants of a checkpoint, or its records.

    States are complete, incomplete (never published), aborted and damaged.
    Bytes are those of the data objects; of a record those of its line.
    """
    bound = Limit(limit)
    if target.endswith("@latest") and not Path(target).exists():
        place = open_checkpoint(target)
    else:
        store = open_directory(target)
        if not is_checkpoint(store) and address is None:
            _list_run(session, store, target, bound)
            return
        place = open_checkpoint(target)
    for notice in place.notices:
        session.talk.notice(notice)
    reading = open_reading(place, session.damage, incomplete=incomplete or address is None)
    if address is None:
        _list_participants(session, reading, bound)
    else:
        _list_records(session, reading, select(parse(address), reading.participants), bound)


app = command(VIEWS)(ls)


def _list_run(session: Session, store: Store, name: str, bound: Limit) -> None:
    entries = list_checkpoints(store)
    known = [entry for entry in entries if entry.state is not CheckpointState.FOREIGN]
    if not known:
        raise MissingError(f"{name[:500]!a} holds no checkpoint and is none")
    best = _latest(session, store)
    for entry in bound.of(known):
        session.item("checkpoint", **_checkpoint(entry, is_latest=entry.folder == best))
        if entry.problem is not None and session.settings.verbose:
            session.talk.notice(f"{entry.folder.prefix}: {entry.problem}")
    session.summary |= {
        "checkpoints": len(known),
        "complete": sum(entry.state is CheckpointState.COMPLETE for entry in known),
        "foreign": len(entries) - len(known),
    }
    session.summary |= bound.summary(len(known))


def _latest(session: Session, store: Store) -> object:
    try:
        found = latest(store)
    except MissingError:
        return None
    except AmbiguousLatestError as error:
        session.talk.notice(str(error))
        return None
    for notice in found.notices:
        session.talk.notice(notice)
    return found.entry.folder


def _checkpoint(entry: CheckpointEntry, *, is_latest: bool) -> dict[str, Any]:
    records, size_bytes = _totals(entry)
    problem = entry.problem
    return {
        "folder": entry.folder.prefix,
        "checkpoint_id": entry.checkpoint_id,
        "state": str(entry.state),
        "latest": is_latest,
        "sequence": entry.sequence,
        "records": records,
        "bytes": size_bytes,
        "created_at": None if entry.sealed is None else entry.sealed.body.provenance.created_at,
        "problem": None if problem is None else {"code": problem.code, "message": problem.message},
    }


def _totals(entry: CheckpointEntry) -> tuple[int | None, int | None]:
    """Records and bytes, where every manifest says them."""
    if entry.opened is None:
        return None, None
    checkpoint = entry.opened
    records = size_bytes = 0
    for participant in checkpoint.participants:
        try:
            manifest = checkpoint.participant(participant).manifest
        except CkptError:
            return None, None
        records += manifest.record_count
        size_bytes += sum(item.size_bytes for item in manifest.objects)
    return records, size_bytes


def _list_participants(session: Session, reading: Reading, bound: Limit) -> None:
    for participant in bound.of(reading.participants):
        session.item(
            "participant",
            address=str(participant),
            kind=participant.kind,
            instance=participant.instance,
            **_participant(session, reading, participant),
        )
    session.summary |= bound.summary(len(reading.participants))


def _participant(
    session: Session, reading: Reading, participant: ParticipantId
) -> dict[str, str | int | None]:
    try:
        reader = reading.reader(participant)
        reader.check_sizes()
        episodes = len(reader.episode_ids)
    except AbortedError:
        return {"state": "aborted", **_UNKNOWN}
    except CkptError as error:
        if reading.published is None and isinstance(error, MissingError):
            return {"state": "incomplete", **_UNKNOWN}
        session.damage(error)
        return {"state": "damaged", **_UNKNOWN}
    manifest = reader.manifest
    return {
        "state": "complete" if reading.published else "incomplete",
        "records": manifest.record_count,
        "bytes": sum(item.size_bytes for item in manifest.objects),
        "episodes": episodes,
    }


def _list_records(session: Session, reading: Reading, selection: Selection, bound: Limit) -> None:
    for reader in reading.readers(selection.participants, session.damage):
        found = sound(listed(reader), session.damage)
        for item in bound.of(item for item in found if selection.matches(item.key)):
            session.item(
                "record",
                address=f"{reader.participant}/{item.key}",
                key=item.key,
                ordinal=item.ordinal,
                bytes=item.size_bytes,
            )
        if bound.cut:
            break
    if selection.key is not None and not bound.shown and not bound.cut:
        session.note(Exit.NEGATIVE, f"no record matches {selection.key}")
    session.summary |= bound.summary(None if bound.cut else bound.shown)
