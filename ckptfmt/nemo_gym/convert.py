"""Whole checkpoints from Gym's layout into this format and back, each held against its source.

Values, key order and record order are kept exactly.  What one layout has no place for
is kept in the other where it can be (:mod:`ckptfmt.nemo_gym.origin`), and refused or
listed where it cannot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import (
    CkptError,
    RoundTripError,
    StateError,
)
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.nemo_gym.layout import (
    GYM_FOLDER,
    GymManifest,
    encode_gym_manifest,
    records_name,
)
from ckptfmt.nemo_gym.lines import Order, beyond_gym, spell_gym_line
from ckptfmt.nemo_gym.origin import (
    Origin,
    aggregate_files,
    keep_aggregate,
    keep_participant,
    origin_of,
)
from ckptfmt.nemo_gym.reader import GymCheckpoint, GymReader
from ckptfmt.nemo_gym.stream import GymFacts, GymIndex, GymStream
from ckptfmt.nemo_gym.writer import create_or_find, publish_gym_participant
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import About, publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import Store
from ckptfmt.stream import RecordStream
from ckptfmt.target import check_target

__all__ = ["Beyond", "Conversion", "Told", "convert_to_ckptfmt", "convert_to_gym"]

_FOLDER: Final = Folder(GYM_FOLDER)

Told = Callable[[int, int], None]
"""Is told how many records, and how many bytes of lines, are done."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """A record that Gym's layout cannot spell whole, and the tags of what it cannot."""

    participant: ParticipantId
    key: str
    tags: tuple[str, ...]


@dataclass(slots=True)
class Conversion:
    """What came of it.  ``respelt`` are participants whose file is not byte for byte the one
    that they once were converted from, although nothing was lost.

    ``is_written`` is false where ``beyond`` was refused.
    """

    checkpoint_id: str
    participants: int = 0
    records: int = 0
    raw_bytes: int = 0
    beyond: list[Beyond] = field(default_factory=list)
    respelt: list[ParticipantId] = field(default_factory=list)
    is_written: bool = False


def _silent(records: int, raw_bytes: int) -> None:
    pass


def convert_to_ckptfmt(
    source: Checkpoint, target: Store, *, sequence: int | None = None, told: Told = _silent
) -> Conversion:
    """Write a checkpoint of Gym's layout into ``target``, which has nothing in it.

    ``sequence`` is its place in the run, which Gym's layout does not know.

    Raises:
        StateError: the source is in this format already.
        ExistsError: the target is not empty.
        DataError: the source is damaged anywhere.
        RoundTripError: what was written is not what was read; it was not published.
        StorageError, CommitError: the target cannot be written.
    """
    if not isinstance(source, GymCheckpoint):
        raise StateError("the source is in the layout of ckptfmt already")
    check_target(source.store, source.root, target)
    done = Conversion(source.manifest.checkpoint_id)
    for participant in source.participants:
        reader = source.participant(participant)
        assert isinstance(reader, GymReader)
        reader.index.check_bytes()
        reader.index.check_keys()
        _write_ours(reader, target, done, told)
        written = ParticipantReader.open(target, Folder(), participant, done.checkpoint_id)
        _compare(reader, written.records())
    about = About(user=keep_aggregate(source.aggregate.files), sequence=sequence)
    outcome = publish_checkpoint(target, Folder(), done.checkpoint_id, source.participants, about)
    outcome.require()
    done.is_written = True
    return done


def _write_ours(reader: GymReader, target: Store, done: Conversion, told: Told) -> None:
    kept = keep_participant(reader.sealed.data, reader.index.orders, reader.manifest.record_count)
    with ParticipantWriter(
        target, Folder(), done.checkpoint_id, reader.participant, user=kept
    ) as writer:
        for record in reader.records():
            writer.add(record)
            done.records += 1
            done.raw_bytes += len(record.stored_line or b"") + 1
            told(done.records, done.raw_bytes)
        writer.finish().require()
    done.participants += 1


def convert_to_gym(
    source: Checkpoint, target: Store, *, lossy: bool = False, told: Told = _silent
) -> Conversion:
    """Write a checkpoint of this format into ``target``, which has nothing in it, as Gym does.

    Records that Gym cannot spell whole are listed, and nothing is written, unless ``lossy``;
    a participant that was converted from Gym's layout and is what it was is never among them.
    The lines of one participant are in memory at once.

    Raises:
        StateError: the source is in Gym's layout already.
        ExistsError: the target is not empty.
        DataError: the source is damaged anywhere, or what was written is not what was read.
        StorageError, CommitError: the target cannot be written.
    """
    if isinstance(source, GymCheckpoint):
        raise StateError("the source is in NeMo Gym's layout already")
    check_target(source.store, source.folder, target)
    done = Conversion(source.manifest.checkpoint_id)
    readers = [source.participant(participant) for participant in source.participants]
    beyond = {reader.participant: _beyond(reader) for reader in readers}
    done.beyond = [item for found in beyond.values() for item in found]
    if done.beyond and not lossy:
        return done
    manifests: dict[ParticipantId, bytes] = {}
    for reader in readers:
        keys = {item.key for item in beyond[reader.participant]}
        manifests[reader.participant] = _write_gym(reader, target, keys, done, told)
    # Nothing says that the checkpoint is whole but that these are there.
    for participant, manifest in manifests.items():
        publish_gym_participant(target, _FOLDER, participant, manifest)
    for name, data in aggregate_files(source.manifest.provenance.user).items():
        create_or_find(target, name, data)
    done.is_written = True
    return done


def _beyond(reader: ParticipantReader) -> list[Beyond]:
    found = [
        Beyond(reader.participant, record.key, tuple(tags))
        for record in reader.records()
        if (tags := beyond_gym(record))
    ]
    if not found:
        return []
    # Lone surrogates are among them, which json.dumps spells: what it once spelt comes back.
    origin, digests = _origin(reader), _Digests()
    for line in _gym_lines(reader, origin):
        digests.update(line)
    return [] if origin and origin.manifest.records_sha256 in digests.either else found


class _Digests:
    """The digests of lines with and without the last LF, which a writer may leave out."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._bare = self._whole

    def update(self, line: bytes) -> None:
        self._whole.update(line[:-1])
        self._bare = self._whole.copy()
        self._whole.update(line[-1:])

    @property
    def either(self) -> tuple[str, str]:
        return self._whole.hexdigest(), self._bare.hexdigest()


def _origin(reader: ParticipantReader) -> Origin | None:
    try:
        return origin_of(reader.manifest.provenance.user, reader.manifest.record_count)
    except CkptError as error:
        raise error.at(**reader.place()) from error


def _gym_lines(reader: ParticipantReader, origin: Origin | None) -> Iterator[bytes]:
    orders: Mapping[int, Order] = {} if origin is None else origin.orders
    for ordinal, record in enumerate(reader.records()):
        try:
            yield spell_gym_line(record, orders.get(ordinal), lossy=True) + b"\n"
        except CkptError as error:
            raise error.at(key=record.key, **reader.place()) from error


def _write_gym(
    reader: ParticipantReader, target: Store, beyond: set[str], done: Conversion, told: Told
) -> bytes:
    """Write the records, and hold them against the source; the manifest that is to be published."""
    origin, data, digests, count = _origin(reader), bytearray(), _Digests(), 0
    for line in _gym_lines(reader, origin):
        data += line
        digests.update(line)
        count += 1
        told(done.records + count, done.raw_bytes + len(data))
    if origin is not None and origin.manifest.records_sha256 in digests.either:
        manifest, stored = origin.manifest, origin.data
        if manifest.records_sha256 != digests.either[0]:
            del data[-1:]
    else:
        manifest = _new_manifest(reader, digests.either[0], count)
        stored = encode_gym_manifest(manifest)
        if origin is not None:
            done.respelt.append(reader.participant)
    name = f"{_FOLDER.participant(reader.participant)}/{manifest.records_file}"
    create_or_find(target, name, data)
    facts = GymFacts(manifest.kind, count, manifest.records_sha256)
    with GymStream(target.open_source(name), facts, GymIndex) as stream:
        _compare(reader, _read_back(reader, stream), beyond)
        if (fault := stream.digest_fault()) is not None:
            raise fault
    done.participants += 1
    done.records += count
    done.raw_bytes += len(data)
    return stored


def _new_manifest(reader: ParticipantReader, sha256: str, count: int) -> GymManifest:
    return GymManifest(
        checkpoint_id=reader.manifest.checkpoint_id,
        instance=reader.participant.instance,
        kind=reader.participant.kind,
        record_count=count,
        records_file=records_name(sha256),
        records_sha256=sha256,
    )


def _read_back(reader: ParticipantReader, stream: RecordStream) -> Iterator[TypedRecord | Record]:
    for stored in stream.lines():
        yield reader.read(stored.line)


def _compare(
    reader: ParticipantReader,
    written: Iterable[TypedRecord | Record],
    beyond: Container[str] = (),
) -> None:
    """Hold every record that was written against its source; of those ``beyond``, the key.

    Raises:
        RoundTripError: the first one that is not the same.
    """
    for ordinal, (one, other) in enumerate(zip_longest(reader.records(), written)):
        if one is None or other is None or one.key != other.key:
            raise RoundTripError("the records that were written are not those that were read").at(
                ordinal=ordinal, **reader.place()
            )
        if one.key not in beyond and _members(one) != _members(other):
            raise RoundTripError("the record that was written is not the one that was read").at(
                key=one.key, **reader.place()
            )


def _members(record: TypedRecord | Record) -> list[tuple[str, JsonPayload]]:
    """The members in order, each in the one spelling of its value."""
    generic = record if isinstance(record, Record) else record.to_record()
    return [
        (name, JsonPayload.from_value(payload.value())) for name, payload in generic.members.items()
    ]
