"""A checkpoint in Gym's layout, behind the same classes as any other.

The layout has no index, no sizes and, without an aggregate, no list of who belongs to
it.  Manifests and names are all that opening reads; what an index would tell costs one
reading of the records, once for each reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final, Self

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CorruptError,
    DataError,
    MissingError,
)
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.manifest import (
    CheckpointManifest,
    DataObject,
    Expected,
    ParticipantManifest,
    Provenance,
    Sealed,
    Tombstone,
    decode_manifest,
)
from ckptfmt.nemo_gym.aggregate import Aggregate, read_gym_aggregate
from ckptfmt.nemo_gym.layout import (
    AGGREGATE_NAMES,
    GYM_FOLDER,
    GYM_SCHEMA_VERSION,
    GymManifest,
    decode_gym_manifest,
    gym_participants,
)
from ckptfmt.nemo_gym.stream import GymFacts, GymIndex, GymStream, build_index
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.schema import GENERIC_SCHEMA, SCHEMAS
from ckptfmt.store.base import Store
from ckptfmt.store.names import join_name
from ckptfmt.wire import MAX_MANIFEST_BYTES

__all__ = ["GymCheckpoint", "GymReader", "read_gym_manifest"]

_LIBRARY: Final = "NeMo Gym"
_UNKNOWN: Final = "unknown"
_TOMBSTONE: Final = b'"tombstone":true'


def read_gym_manifest(
    store: Store, folder: Folder, participant: ParticipantId
) -> tuple[GymManifest, bytes]:
    """A participant's manifest and its bytes; ``folder`` holds the kinds.

    Raises:
        MissingError: it is not there.
        AbortedError: the participant's commit was given up.
        CorruptError, UnsupportedError: as :func:`decode_gym_manifest`, and where it lies in a
            folder that is not its own.
    """
    data = store.read_small(folder.manifest(participant), MAX_MANIFEST_BYTES)
    if _TOMBSTONE in data and isinstance(
        decode_manifest(data, ParticipantManifest).body, Tombstone
    ):
        raise AbortedError("the participant's commit was given up")
    manifest = decode_gym_manifest(data)
    if manifest.participant != participant:
        raise CorruptError(f"the manifest belongs to {manifest.participant}")
    return manifest, data


class GymReader(ParticipantReader):
    """The records of one participant.

    Of its :attr:`manifest`, what only the records tell is empty (``episode_ids``,
    ``content_digest``, ``raw_bytes``); the properties of those names know it, and raise what
    is wrong with the file.
    """

    @classmethod
    def open(
        cls,
        store: Store,
        folder: Folder,
        participant: ParticipantId,
        checkpoint_id: str | None = None,
        expected: Expected | None = None,
    ) -> Self:
        """As :meth:`ParticipantReader.open`; there is nobody to say what is ``expected``.

        Raises:
            DataError: as :func:`read_gym_manifest`, and where it is of another checkpoint.
        """
        name = folder.manifest(participant)
        try:
            manifest, data = read_gym_manifest(store, folder, participant)
            if checkpoint_id is not None and manifest.checkpoint_id != checkpoint_id:
                raise CorruptError(f"the manifest belongs to checkpoint {manifest.checkpoint_id}")
            size_bytes = _size(store, f"{folder.participant(participant)}/{manifest.records_file}")
        except CkptError as error:
            error.at(checkpoint=checkpoint_id, participant=str(participant), file=name)
            raise
        return cls(store, folder, Sealed(_in_our_terms(manifest, size_bytes), data))

    @cached_property
    def index(self) -> GymIndex:
        """What one reading of all records told."""
        (item,) = self.manifest.objects
        try:
            with self.stream(item) as stream:
                return build_index(stream)
        except CkptError as error:
            return GymIndex(fault=error.at(file=self.data_name(item), **self.place()))

    @property
    def episode_ids(self) -> list[str]:
        """As :attr:`ParticipantReader.episode_ids`; the records are read."""
        return self._sound_index().episode_ids

    @property
    def content_digest(self) -> str:
        """As :attr:`ParticipantReader.content_digest`; the records are read."""
        return self._sound_index().content_digest

    @property
    def raw_bytes(self) -> int:
        """As :attr:`ParticipantReader.raw_bytes`; the records are read."""
        return self._sound_index().raw_bytes

    def _sound_index(self) -> GymIndex:
        try:
            self.index.check_bytes()
        except CkptError as error:
            error.at(**self.place())
            raise
        return self.index

    def data_name(self, item: DataObject) -> str:
        """The name of the file of records in the store."""
        return f"{self.folder.participant(self.participant)}/{item.name}"

    def stream(self, item: DataObject) -> GymStream:
        """The reader of the file of records."""
        facts = GymFacts(self.manifest.kind, item.records, item.sha256)
        source = self.store.open_source(self.data_name(item))
        return GymStream(source, facts, lambda: self.index)


def _size(store: Store, name: str) -> int:
    try:
        return store.size(name)
    except DataError:
        # The manifest can be read all the same; whoever reads the records will be told.
        return 0


def _in_our_terms(manifest: GymManifest, size_bytes: int) -> ParticipantManifest:
    schema = SCHEMAS.get(manifest.kind)
    item = DataObject(
        name=manifest.records_file,
        size_bytes=size_bytes,
        sha256=manifest.records_sha256,
        first_ordinal=0,
        records=manifest.record_count,
        blocks=0,
        raw_bytes=0,
        index_offset=0,
        index_length=0,
    )
    return ParticipantManifest(
        checkpoint_id=manifest.checkpoint_id,
        kind=manifest.kind,
        instance=manifest.instance,
        token="",
        schema=GENERIC_SCHEMA if schema is None else manifest.kind,
        schema_version=1 if schema is None else schema.schema_version,
        objects=[item],
        record_count=manifest.record_count,
        content_digest="",
        episode_ids=[],
        provenance=_provenance(),
    )


def _provenance(created_at: str = "") -> Provenance:
    return Provenance(
        library=_LIBRARY,
        python=_UNKNOWN,
        host=_UNKNOWN,
        created_at=created_at or _UNKNOWN,
        user={},
    )


class GymCheckpoint(Checkpoint):
    """A checkpoint; ``folder`` is where the kinds lie.  It is complete if they are."""

    aggregate: Aggregate = Aggregate()

    @classmethod
    def open(cls, store: Store, folder: Folder = Folder()) -> Self:
        """Open the checkpoint whose participants lie in ``folder``.

        Raises:
            MissingError: there are none.
            CorruptError, UnsupportedError: an aggregate is damaged.
        """
        aggregate = read_gym_aggregate(store, _parent(folder))
        there = list(gym_participants(store, folder))
        expected = [_expected(item) for item in there + aggregate.missing(there)]
        if not expected:
            raise MissingError(f"there is no participant's data in {store.label}").at(
                file=folder.prefix or None
            )
        manifest = CheckpointManifest(
            checkpoint_id=aggregate.checkpoint_id or _checkpoint_id(store, folder, there),
            token="",
            sequence=0,
            participants=expected,
            provenance=_provenance(aggregate.created_at),
        )
        opened = cls(store, folder, Sealed(manifest, aggregate.data))
        opened.aggregate = aggregate
        return opened

    @property
    def sequence(self) -> int | None:
        """The layout has none."""
        return None

    @property
    def format_version(self) -> str:
        """The layout, and its version."""
        return f"nemo-gym {GYM_SCHEMA_VERSION}"

    @property
    def root(self) -> Folder:
        """The checkpoint's own folder, which holds the aggregates."""
        return _parent(self.folder)

    @property
    def files(self) -> set[str]:
        """The names in the store of the files that lie beside the kinds, if they do."""
        return {join_name(self.root.prefix, name) for name in AGGREGATE_NAMES}

    def participant(self, participant: ParticipantId) -> ParticipantReader:
        """As :meth:`Checkpoint.participant`."""
        if participant not in self.participants:
            return super().participant(participant)
        return GymReader.open(self.store, self.folder, participant, self.manifest.checkpoint_id)


def _parent(folder: Folder) -> Folder:
    before, _, last = folder.prefix.rpartition("/")
    return Folder(before) if last == GYM_FOLDER else folder


def _expected(participant: ParticipantId) -> Expected:
    # Nothing in this layout vouches for a manifest.
    return Expected(
        kind=participant.kind, instance=participant.instance, manifest_sha256="", manifest_bytes=0
    )


def _checkpoint_id(store: Store, folder: Folder, there: Iterable[ParticipantId]) -> str:
    """The id that the first readable manifest has; of the others each is held against it."""
    first: CkptError | None = None
    for participant in there:
        try:
            return read_gym_manifest(store, folder, participant)[0].checkpoint_id
        except CkptError as error:
            first = first or error.at(
                participant=str(participant), file=folder.manifest(participant)
            )
    raise first or MissingError("no participant says which checkpoint this is")
