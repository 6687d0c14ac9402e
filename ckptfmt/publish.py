"""Publishing a whole checkpoint: the controller reads everything back, then writes last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ckptfmt.checkpoint_reader import participants_in
from ckptfmt.commit import (
    Committed,
    NotCommitted,
    Outcome,
    bury,
    publish,
    same_aggregate,
)
from ckptfmt.errors import CkptError, DataError, MissingError, StateError
from ckptfmt.identity import EpisodeId, ParticipantId, check_name
from ckptfmt.layout import Folder, new_token
from ckptfmt.manifest import (
    NOT_RECOVERED,
    CheckpointManifest,
    Expected,
    ParticipantManifest,
    Previous,
    Tombstone,
    encode_manifest,
)
from ckptfmt.metadata import metadata
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.participant_writer import write_participant
from ckptfmt.provenance import provenance
from ckptfmt.record import Record
from ckptfmt.run import RunScan, write_hint
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import Store

__all__ = [
    "About",
    "abort_checkpoint",
    "abort_participant",
    "publish_checkpoint",
    "write_checkpoint",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a controller says of a checkpoint beside its participants.

    ``scope`` are the episodes it continues, None for all.  ``user`` goes into the
    provenance (a commit id, say), ``metadata`` is any finite JSON object.  The rest is for
    tools that make a checkpoint from another one: its place in the run, its metadata and
    its ``unknown`` members are kept, these as the bytes that they are, and what was lost
    is told in ``recovered``.
    """

    scope: Iterable[EpisodeId] | None = None
    run_id: str | None = None
    config_digest: str | None = None
    user: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] | msgspec.Raw = field(default_factory=dict)
    unknown: Mapping[str, bytes] = field(default_factory=dict)
    sequence: int | None = None
    previous: Previous | None = None
    recovered: Mapping[str, Any] | None = None


def publish_checkpoint(
    store: Store,
    folder: Folder,
    checkpoint_id: str,
    participants: Iterable[ParticipantId],
    about: About = About(),
    check: Callable[[], None] | None = None,
) -> Outcome[CheckpointManifest]:
    """Verify what the participants wrote, from this side, and publish the checkpoint.

    ``store`` is the run's, or the checkpoint's own where ``folder`` is its root;
    ``participants`` are those that were expected since discovery.  ``check`` is asked at the
    last moment at which the commit can still be refused; it raises a :class:`CkptError` to
    refuse.

    Raises:
        RefusedError: the id is malformed, no participant is expected, two of them clash,
            or the metadata is not plain JSON.
    """
    check_name(checkpoint_id, "checkpoint id")
    expected = _distinct(participants)
    scope = None if about.scope is None else sorted({item.capture_key for item in about.scope})
    user_metadata = metadata(about.metadata)
    recovered = NOT_RECOVERED if about.recovered is None else metadata(about.recovered)
    try:
        listed = [_read_back(store, folder, checkpoint_id, item) for item in expected]
        _refuse_strangers(store, folder, expected)
        run = RunScan(store)
        body = CheckpointManifest(
            checkpoint_id=checkpoint_id,
            token=new_token(),
            sequence=run.highest_sequence + 1 if about.sequence is None else about.sequence,
            previous=about.previous or _previous(run),
            run_id=about.run_id,
            config_digest=about.config_digest,
            participants=listed,
            scope=scope,
            recovered=recovered,
            user_metadata=user_metadata,
            provenance=provenance(about.user),
        )
        sealed = encode_manifest(body, about.unknown)
        if check is not None:
            check()
    except CkptError as error:
        return NotCommitted(error.at(checkpoint=checkpoint_id))
    outcome = publish(store, folder.aggregate, sealed, same_aggregate)
    # A checkpoint that is the store itself lies in no run that the store could hold.
    if isinstance(outcome, Committed) and folder.prefix:
        write_hint(store, outcome.stored.body)
    return outcome


def _distinct(participants: Iterable[ParticipantId]) -> list[ParticipantId]:
    expected = sorted(participants)
    if not expected:
        raise StateError("a checkpoint without participants holds nothing; none was expected")
    folded: dict[str, ParticipantId] = {}
    for item in expected:
        twin = folded.setdefault(item.folded, item)
        if twin is not item:
            raise StateError(
                f"participants {twin} and {item} would share a folder where disks ignore case"
            )
    return expected


def _read_back(
    store: Store, folder: Folder, checkpoint_id: str, participant: ParticipantId
) -> Expected:
    try:
        reader = ParticipantReader.open(store, folder, participant, checkpoint_id)
        reader.check_sizes()
    except MissingError as error:
        raise MissingError(
            f"{participant} has nothing here: its manifest or data is not in {store.label}",
            error.location,
            advice="let all participants and the controller write to the same storage",
        ) from error
    store.sync(folder.manifest(participant))
    return Expected(
        kind=participant.kind,
        instance=participant.instance,
        manifest_sha256=reader.sealed.sha256,
        manifest_bytes=len(reader.sealed.data),
    )


def _refuse_strangers(store: Store, folder: Folder, expected: list[ParticipantId]) -> None:
    strangers = set(participants_in(store, folder)) - set(expected)
    if strangers:
        raise StateError(
            f"participants that nobody expected wrote here: {sorted(map(str, strangers))}"
        )


def _previous(run: RunScan) -> Previous | None:
    try:
        entry = run.latest().entry
    except DataError:
        return None
    if entry.sealed is None or entry.sequence is None:
        return None
    return Previous(checkpoint_id=entry.sealed.body.checkpoint_id, sha256=entry.sealed.sha256)


def write_checkpoint(
    store: Store,
    checkpoint_id: str,
    participants: Mapping[ParticipantId, Iterable[TypedRecord | Record]],
    about: About = About(),
) -> Outcome[CheckpointManifest]:
    """Write a whole checkpoint from one process, in the folder of its id, and publish it.

    ``store`` is the run's.  Each participant's records are sorted by key first.

    Raises:
        RefusedError: a record, a name or the metadata cannot be written.
        StorageError: the data could not be stored; nothing was published.
    """
    folder = Folder(check_name(checkpoint_id, "checkpoint id"))
    for participant in _distinct(participants):
        outcome: Outcome[ParticipantManifest] = write_participant(
            store, folder, checkpoint_id, participant, participants[participant]
        )
        if not isinstance(outcome, Committed):
            return outcome
    return publish_checkpoint(store, folder, checkpoint_id, participants, about)


def abort_checkpoint(
    store: Store, folder: Folder, checkpoint_id: str
) -> Outcome[CheckpointManifest]:
    """Close a checkpoint for good: afterwards nobody can publish it.

    ``NotCommitted`` is the success; ``Committed`` says that it was published before.
    """
    tombstone = Tombstone(checkpoint_id=checkpoint_id, token=new_token())
    return bury(store, folder.aggregate, tombstone, CheckpointManifest)


def abort_participant(
    store: Store, folder: Folder, checkpoint_id: str, participant: ParticipantId
) -> Outcome[ParticipantManifest]:
    """Close a participant's part of a checkpoint for good.

    ``NotCommitted`` is the success; ``Committed`` says that its manifest had been published.
    """
    tombstone = Tombstone(
        checkpoint_id=checkpoint_id,
        kind=participant.kind,
        instance=participant.instance,
        token=new_token(),
    )
    return bury(store, folder.manifest(participant), tombstone, ParticipantManifest)
