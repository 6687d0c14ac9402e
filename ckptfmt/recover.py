"""Every readable record of a damaged checkpoint, in a new checkpoint that says so."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from ckptfmt.checkpoint_reader import ParticipantReader, read_aggregate
from ckptfmt.commit import NotCommitted, Outcome
from ckptfmt.errors import (
    CkptError,
    CorruptError,
    DataError,
    IncompleteError,
    Location,
    MissingError,
    RefusedError,
    StateError,
    UnsupportedError,
)
from ckptfmt.identity import EpisodeId, ParticipantId, check_name
from ckptfmt.layout import DataName, Folder
from ckptfmt.layouts import open_participant, participants_in
from ckptfmt.manifest import CheckpointManifest, Expected, Sealed
from ckptfmt.nemo_gym.layout import gym_folder, is_records_name
from ckptfmt.nemo_gym.reader import GymCheckpoint, GymReader, read_gym_manifest
from ckptfmt.nemo_gym.stream import GymFacts, GymIndex, GymStream
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.publish import About, publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord, read_record
from ckptfmt.store.base import Store
from ckptfmt.stream import Head, Loss, RecordStream, StreamReader
from ckptfmt.target import check_target
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

    The source is never modified.  The new checkpoint keeps all that the old manifests say as
    far as they can be read, and lists in ``recovered`` what was lost or left out: damage,
    records that are not of this checkpoint, participants that it does not name, records of
    a schema that this release does not know.  It is verified before it is published, byte
    by byte.

    Raises:
        ExistsError: the target is not empty, or is a local directory that exists.
        RefusedError: the target lies within the source.
        MissingError: there is nothing of a checkpoint in the source.
        UnsupportedError: ``checkpoint.json`` is of a version that is not known here.
        StorageError: the target cannot be written.
    """
    check_target(source, folder, target)
    found = participants_in(source, folder)
    if not found:
        raise MissingError(f"there is no participant's data in {source.label}").at(
            file=folder.prefix or None
        )
    recovery = Recovery()
    gym = gym_folder(source, folder)
    if gym is None:
        origin, salvage = _origin(source, folder, found, recovery), _Salvage
    else:
        origin, salvage = _gym_origin(source, gym, found, recovery), _GymSalvage
    written = []
    for participant in found:
        if not origin.names(participant):
            recovery.lose(_unnamed(participant))
            continue
        if salvage(source, gym or folder, participant, origin, recovery).copy(target):
            written.append(participant)
    for participant in sorted(origin.expected.keys() - set(found)):
        recovery.lose(_absent(participant))
    if written:
        _publish(target, written, origin, recovery)
    return recovery


def _unnamed(participant: ParticipantId) -> CkptError:
    return StateError("checkpoint.json does not name this participant; it is left out").at(
        participant=str(participant)
    )


@dataclass(frozen=True, slots=True)
class _Origin:
    """What is known of the checkpoint as a whole; ``sealed`` is None without its manifest."""

    checkpoint_id: str
    sealed: Sealed[CheckpointManifest] | None = None

    @property
    def expected(self) -> dict[ParticipantId, Expected]:
        """What ``checkpoint.json`` says of the participants."""
        listed = () if self.sealed is None else self.sealed.body.participants
        return {item.participant: item for item in listed}

    def names(self, participant: ParticipantId) -> bool:
        """Whether the participant belongs to the checkpoint, as far as can be told."""
        return self.sealed is None or participant in self.expected

    def about(self, told: dict[str, Any]) -> About:
        """What the new ``checkpoint.json`` says."""
        if self.sealed is None:
            return About(recovered=told)
        body = self.sealed.body
        scope = body.scope
        return About(
            scope=None if scope is None else [EpisodeId.from_capture_key(key) for key in scope],
            run_id=body.run_id,
            config_digest=body.config_digest,
            user=body.provenance.user,
            metadata=body.user_metadata,
            unknown=self.sealed.unknown,
            sequence=body.sequence,
            previous=body.previous,
            recovered=told,
        )


def _origin(
    source: Store, folder: Folder, participants: list[ParticipantId], recovery: Recovery
) -> _Origin:
    try:
        sealed = read_aggregate(source, folder)
        return _Origin(sealed.body.checkpoint_id, sealed)
    except UnsupportedError:
        raise
    except CkptError as error:
        if not isinstance(error, IncompleteError):
            recovery.lose(error)
    return _Origin(_likely_id(source, folder, participants))


def _gym_origin(
    source: Store, gym: Folder, participants: list[ParticipantId], recovery: Recovery
) -> _Origin:
    try:
        checkpoint = GymCheckpoint.open(source, gym)
    except UnsupportedError:
        raise
    except CkptError as error:
        recovery.lose(error)
        return _Origin(_likely_id(source, gym, participants))
    for participant in set(checkpoint.participants) - set(participants):
        recovery.lose(_absent(participant))
    return _Origin(checkpoint.manifest.checkpoint_id)


def _absent(participant: ParticipantId) -> CkptError:
    return MissingError("nothing of this participant is there").at(participant=str(participant))


def _likely_id(source: Store, folder: Folder, participants: list[ParticipantId]) -> str:
    """The id that most of what lies here says; by default the folder's name."""
    ids = Counter(chain.from_iterable(_ids(source, folder, item) for item in participants))
    return ids.most_common(1)[0][0] if ids else _id_of(folder)


def _ids(source: Store, folder: Folder, participant: ParticipantId) -> Iterator[str]:
    """The ids of the checkpoints that what lies here says it belongs to."""
    with contextlib.suppress(CkptError):
        yield open_participant(source, folder, participant).manifest.checkpoint_id
        return
    for name in _data_names(source, folder, participant):
        with contextlib.suppress(CkptError):
            yield _head(source, folder.data(participant, name)).checkpoint_id


def _id_of(folder: Folder) -> str:
    try:
        return check_name(folder.prefix.rpartition("/")[2], "checkpoint id")
    except CkptError:
        return _UNNAMED


def _data_names(source: Store, folder: Folder, participant: ParticipantId) -> list[DataName]:
    names = (DataName.parse(item.name) for item in source.entries(folder.participant(participant)))
    return [name for name in names if name is not None]


def _head(source: Store, file: str) -> Head:
    with StreamReader(source.open_source(file)) as stream:
        return stream.head()


def _publish(
    target: Store, participants: list[ParticipantId], origin: _Origin, recovery: Recovery
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
        "checkpoint_id": origin.checkpoint_id,
        "records": recovery.records,
        "lost_count": recovery.lost_count,
        "lost": [item.to_json() for item in recovery.lost],
    }
    recovery.outcome = publish_checkpoint(
        target, Folder(), origin.checkpoint_id, participants, origin.about(told)
    )


class _Salvage:
    """The readable records of one participant."""

    def __init__(
        self,
        source: Store,
        folder: Folder,
        participant: ParticipantId,
        origin: _Origin,
        recovery: Recovery,
    ) -> None:
        self._source = source
        self._folder = folder
        self._participant = participant
        self._checkpoint_id = origin.checkpoint_id
        self._expected = origin.expected.get(participant)
        self._recovery = recovery

    def copy(self, target: Store) -> bool:
        """Write them into the target; false if there was nothing that could be written."""
        try:
            reader = self._reader()
            objects = self._without_manifest() if reader is None else _names(reader)
        except UnsupportedError as error:
            self._lose(error)
            return False
        if objects is None:
            return False
        written = self._write(target, objects, reader)
        self._recovery.records += len(written)
        if reader is not None:
            self._name_lost(reader, written)
        return True

    def _reader(self) -> ParticipantReader | None:
        """The participant as it was published; None where its manifest does not tell.

        Raises:
            UnsupportedError: what it holds is not known here, and must not pass for anything else.
        """
        try:
            reader = ParticipantReader.open(
                self._source, self._folder, self._participant, self._checkpoint_id, self._expected
            )
        except UnsupportedError:
            raise
        except CkptError as error:
            self._lose(error)
            return None
        reader.check_schema()
        return reader

    def _write(
        self, target: Store, objects: list[str], reader: ParticipantReader | None
    ) -> set[str]:
        """Write what can be read of the data objects; the keys of the records."""
        written: set[str] = set()
        with ParticipantWriter(
            target,
            Folder(),
            self._checkpoint_id,
            self._participant,
            role=None if reader is None else reader.manifest.role,
            user=None if reader is None else reader.manifest.provenance.user,
            unknown=None if reader is None else reader.sealed.unknown,
            ledger_pins=() if reader is None else reader.manifest.ledger_pins,
        ) as writer:
            for record in self._records(objects):
                try:
                    writer.add(record)
                    written.add(record.key)
                except RefusedError as error:
                    self._lose(error)
            writer.finish().require()
        return written

    def _name_lost(self, reader: ParticipantReader, written: set[str]) -> None:
        """Say which records are lost, where an index still lists them all."""
        for keys in reader.index_keys():
            with contextlib.suppress(CkptError):
                for key in keys:
                    if key not in written:
                        self._lose(MissingError("this record is lost").at(key=key))

    def _without_manifest(self) -> list[str] | None:
        """The objects of the attempt that stored most, if there is one."""
        attempts: dict[str, list[DataName]] = {}
        for name in _data_names(self._source, self._folder, self._participant):
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
            file = f"{self._folder.participant(self._participant)}/{name}"
            try:
                stream = self._stream(file)
            except CkptError as error:
                self._lose(error)
                continue
            with stream:
                for found in stream.salvage():
                    if isinstance(found, Loss):
                        self._lose(found.error)
                        continue
                    try:
                        yield read_record(self._participant.kind, found.line)
                    except CkptError as error:
                        self._lose(error.at(file=file, block=found.block, ordinal=found.ordinal))

    def _stream(self, file: str) -> RecordStream:
        """Open a data object that is the participant's own.

        Raises:
            CkptError: it is another's, or cannot be opened.
        """
        self._check_head(file)
        return StreamReader(self._source.open_source(file))

    def _check_head(self, file: str) -> None:
        """Refuse a stream that says that it is another's; one that does not say is taken."""
        try:
            head = _head(self._source, file)
        except DataError:
            return
        owner = (head.kind, head.instance, head.checkpoint_id)
        if owner != (self._participant.kind, self._participant.instance, self._checkpoint_id):
            raise CorruptError(
                f"the records are those of {head.kind}/{head.instance} in checkpoint "
                f"{head.checkpoint_id}, and are left out"
            ).at(file=file)

    def _lose(self, error: CkptError) -> None:
        self._recovery.lose(error.at(participant=str(self._participant)))


class _GymSalvage(_Salvage):
    """The readable records of one participant in NeMo Gym's layout; ``folder`` holds the kinds."""

    def _reader(self) -> ParticipantReader | None:
        try:
            return GymReader.open(
                self._source, self._folder, self._participant, self._checkpoint_id
            )
        except UnsupportedError:
            raise
        except CkptError as error:
            self._lose(error)
            return None

    def _without_manifest(self) -> list[str] | None:
        entries = self._source.entries(self._folder.participant(self._participant))
        return [item.name for item in entries if is_records_name(item.name)] or None

    def _stream(self, file: str) -> RecordStream:
        return GymStream(self._source.open_source(file), self._facts(file), GymIndex)

    def _facts(self, file: str) -> GymFacts:
        with contextlib.suppress(CkptError):
            manifest, _ = read_gym_manifest(self._source, self._folder, self._participant)
            if file.endswith(f"/{manifest.records_file}"):
                return GymFacts(manifest.kind, manifest.record_count, manifest.records_sha256)
        return GymFacts(self._participant.kind)


def _names(reader: ParticipantReader) -> list[str]:
    return [item.name for item in reader.manifest.objects]
