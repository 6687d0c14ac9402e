"""Every readable record of a damaged checkpoint, in a new checkpoint that says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptfmt.checkpoint_reader import ParticipantReader, participants_in, read_aggregate
from ckptfmt.commit import NotCommitted, Outcome
from ckptfmt.errors import (
    CkptError,
    CorruptError,
    ExistsError,
    IncompleteError,
    Location,
    MissingError,
    RefusedError,
    StateError,
)
from ckptfmt.identity import EpisodeId, ParticipantId, check_name
from ckptfmt.layout import DataName, Folder
from ckptfmt.manifest import CheckpointManifest
from ckptfmt.metadata import metadata_value
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.publish import About, publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord, read_record
from ckptfmt.store.base import Store
from ckptfmt.stream import Loss, StreamReader
from ckptfmt.verify import Level, verify

__all__ = ["Lost", "Recovery", "recover_checkpoint"]

_UNNAMED: Final = "recovered"
# The list goes into a manifest; what is beyond is counted.
_MAX_LISTED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that could not be recovered: what is known of it, and why."""

    message: str
    location: Location

    def to_json(self) -> dict[str, Any]:
        """As it stands in the new checkpoint's ``recovered`` member."""
        known = {
            name: value
            for name in Location.__dataclass_fields__
            if (value := getattr(self.location, name)) is not None
        }
        return {"message": self.message, **known}


@dataclass(slots=True)
class Recovery:
    """What came of a salvage.

    ``outcome`` is None where no record could be read at all: nothing was written then.
    """

    records: int = 0
    lost: list[Lost] = field(default_factory=list)
    lost_count: int = 0
    outcome: Outcome[CheckpointManifest] | None = None

    def lose(self, error: CkptError) -> None:
        """Note a loss."""
        self.lost_count += 1
        if len(self.lost) < _MAX_LISTED:
            self.lost.append(Lost(error.message, error.location))


def recover_checkpoint(source: Store, folder: Folder, target: Store) -> Recovery:
    """Copy every readable record into ``target``, a store that has nothing in it.

    The source is never modified.  The new checkpoint keeps the id, scope and metadata as far
    as they can be read, and lists in ``recovered`` what was lost.  It is verified before it
    is published, byte by byte.

    Raises:
        ExistsError: the target is not empty.
        MissingError: there is nothing of a checkpoint in the source.
        StorageError: the target cannot be written.
    """
    _check_empty(target)
    participants = participants_in(source, folder)
    if not participants:
        raise MissingError(f"there is no participant's data in {source.label}").at(
            file=folder.prefix or None
        )
    recovery = Recovery()
    about, checkpoint_id = _about(source, folder, participants, recovery)
    written = []
    for participant in participants:
        salvaged = _Salvage(source, folder, participant, recovery)
        if salvaged.copy(target, checkpoint_id):
            written.append(participant)
    for participant in _expected(source, folder) - set(participants):
        recovery.lose(
            MissingError("nothing of this participant is there").at(participant=str(participant))
        )
    if written:
        _publish(target, checkpoint_id, written, about, recovery)
    return recovery


def _check_empty(target: Store) -> None:
    try:
        if target.entries():
            raise ExistsError(
                f"{target.label} is not empty", advice="name a directory that does not exist"
            )
    except MissingError:
        return


def _about(
    source: Store, folder: Folder, participants: list[ParticipantId], recovery: Recovery
) -> tuple[About, str]:
    try:
        manifest = read_aggregate(source, folder).body
    except CkptError as error:
        if not isinstance(error, IncompleteError):
            recovery.lose(error)
        return About(), _checkpoint_id(source, folder, participants)
    scope = manifest.scope
    about = About(
        scope=None if scope is None else [EpisodeId.from_capture_key(key) for key in scope],
        run_id=manifest.run_id,
        config_digest=manifest.config_digest,
        user=manifest.provenance.user,
        metadata=metadata_value(manifest.user_metadata),
        sequence=manifest.sequence,
    )
    return about, manifest.checkpoint_id


def _checkpoint_id(source: Store, folder: Folder, participants: list[ParticipantId]) -> str:
    for participant in participants:
        try:
            return ParticipantReader.open(source, folder, participant).manifest.checkpoint_id
        except CkptError:
            continue
    try:
        return check_name(folder.prefix.rpartition("/")[2], "checkpoint id")
    except CkptError:
        return _UNNAMED


def _expected(source: Store, folder: Folder) -> set[ParticipantId]:
    try:
        return {item.participant for item in read_aggregate(source, folder).body.participants}
    except CkptError:
        return set()


def _publish(
    target: Store,
    checkpoint_id: str,
    participants: list[ParticipantId],
    about: About,
    recovery: Recovery,
) -> None:
    for finding in verify(target, level=Level.DEEP):
        if finding.rule.rule_id != "incomplete":
            recovery.outcome = NotCommitted(
                CorruptError(
                    f"what was recovered is not whole: {finding.message}", finding.location
                )
            )
            return
    told = {
        "checkpoint_id": checkpoint_id,
        "records": recovery.records,
        "lost_count": recovery.lost_count,
        "lost": [item.to_json() for item in recovery.lost],
    }
    marked = replace(about, recovered=told)
    recovery.outcome = publish_checkpoint(target, Folder(), checkpoint_id, participants, marked)


class _Salvage:
    """The readable records of one participant."""

    def __init__(
        self, source: Store, folder: Folder, participant: ParticipantId, recovery: Recovery
    ) -> None:
        self._source = source
        self._folder = folder
        self._participant = participant
        self._recovery = recovery

    def copy(self, target: Store, checkpoint_id: str) -> bool:
        """Write them into the target; false if there was nothing to write."""
        objects = self._objects()
        if objects is None:
            return False
        written: set[str] = set()
        with ParticipantWriter(target, Folder(), checkpoint_id, self._participant) as writer:
            for record in self._records(objects):
                try:
                    writer.add(record)
                    written.add(record.key)
                except RefusedError as error:
                    self._lose(error)
            writer.finish().require()
        self._recovery.records += len(written)
        self._name_lost(written)
        return True

    def _name_lost(self, written: set[str]) -> None:
        """Say which records are lost, where an index still lists them all."""
        with contextlib.suppress(CkptError):
            reader = ParticipantReader.open(self._source, self._folder, self._participant)
            for index in reader.indexes():
                with contextlib.suppress(CkptError):
                    for key, _ in index:
                        if key not in written:
                            self._lose(MissingError("this record is lost").at(key=key))

    def _objects(self) -> list[str] | None:
        """The data objects to read, in order; None if there is no telling that there were any."""
        try:
            reader = ParticipantReader.open(self._source, self._folder, self._participant)
        except CkptError as error:
            self._lose(error)
            return self._largest_attempt()
        return [item.name for item in reader.manifest.objects]

    def _largest_attempt(self) -> list[str] | None:
        """Without a manifest: the objects of the attempt that stored most."""
        attempts: dict[str, list[DataName]] = {}
        for entry in self._source.entries(self._folder.participant(self._participant)):
            if (name := DataName.parse(entry.name)) is not None:
                attempts.setdefault(name.token, []).append(name)
        if not attempts:
            return None
        best = max(attempts, key=lambda token: (self._size(attempts[token]), token))
        for token in sorted(attempts.keys() - {best}):
            self._lose(
                StateError(f"another attempt, {token}, stored less and is left out").at(
                    file=self._folder.participant(self._participant)
                )
            )
        return [str(name) for name in sorted(attempts[best], key=lambda name: name.number)]

    def _size(self, names: list[DataName]) -> int:
        total = 0
        for name in names:
            with contextlib.suppress(CkptError):
                total += self._source.size(self._folder.data(self._participant, name))
        return total

    def _records(self, objects: list[str]) -> Iterator[TypedRecord | Record]:
        for name in objects:
            file = self._folder.data(self._participant, name)
            try:
                source = self._source.open_source(file)
            except CkptError as error:
                self._lose(error)
                continue
            with StreamReader(source) as stream:
                for found in stream.salvage():
                    if isinstance(found, Loss):
                        self._lose(found.error)
                        continue
                    try:
                        yield read_record(self._participant.kind, found.line)
                    except CkptError as error:
                        self._lose(error.at(file=file, block=found.block, ordinal=found.ordinal))

    def _lose(self, error: CkptError) -> None:
        self._recovery.lose(error.at(participant=str(self._participant)))
