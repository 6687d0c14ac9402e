"""The readable records of one participant of a damaged checkpoint, copied into a new one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    DataError,
    MissingError,
    RefusedError,
    StateError,
    UnsupportedError,
)
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import DataName, Folder
from ckptfmt.manifest import Expected
from ckptfmt.nemo_gym.layout import is_records_name
from ckptfmt.nemo_gym.reader import GymReader, read_gym_manifest
from ckptfmt.nemo_gym.stream import GymFacts, GymIndex, GymStream
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.record import Record
from ckptfmt.recovery import Recovery
from ckptfmt.schema import TypedRecord, read_record
from ckptfmt.store.base import Store
from ckptfmt.stream import Head, Loss, RecordStream, StreamReader

__all__ = ["GymSalvage", "Salvage", "data_names", "head_of"]


def data_names(source: Store, folder: Folder, participant: ParticipantId) -> list[DataName]:
    """The data objects in a participant's folder, whoever wrote them."""
    names = (DataName.parse(item.name) for item in source.entries(folder.participant(participant)))
    return [name for name in names if name is not None]


def head_of(source: Store, file: str) -> Head:
    """What a data object says of itself.

    Raises:
        DataError: it does not say, or cannot be read.
    """
    with StreamReader(source.open_source(file)) as stream:
        return stream.head()


class Salvage:
    """The readable records of one participant.

    ``expected`` is what ``checkpoint.json`` says of it, as far as that can be read; what is
    lost goes into ``recovery``.
    """

    def __init__(
        self,
        source: Store,
        folder: Folder,
        participant: ParticipantId,
        checkpoint_id: str,
        expected: Expected | None,
        recovery: Recovery,
    ) -> None:
        self._source = source
        self._folder = folder
        self._participant = participant
        self._checkpoint_id = checkpoint_id
        self._expected = expected
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
        """Say which records are lost, as indexes list them, and which episodes wholly."""
        episodes = {_episode_of(key) for key in written}
        for keys in reader.index_keys():
            with contextlib.suppress(CkptError):
                for key in keys:
                    episodes.add(_episode_of(key))
                    if key not in written:
                        self._lose(MissingError("this record is lost").at(key=key))
        with contextlib.suppress(CkptError):
            for episode in reader.episode_ids:
                if episode not in episodes:
                    self._lose(MissingError("no record of this episode is left").at(key=episode))

    def _without_manifest(self) -> list[str] | None:
        """The objects of the attempt that stored most, if there is one."""
        attempts: dict[str, list[DataName]] = {}
        for name in data_names(self._source, self._folder, self._participant):
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
            head = head_of(self._source, file)
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


class GymSalvage(Salvage):
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


def _episode_of(key: str) -> str:
    return key.partition("/")[0]


def _names(reader: ParticipantReader) -> list[str]:
    return [item.name for item in reader.manifest.objects]
