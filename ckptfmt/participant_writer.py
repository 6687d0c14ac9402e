"""Writing what one participant holds: data objects first, then the manifest.

The manifest commits the participant.  Until it is published nothing of the attempt is
visible; each attempt has a token of its own, so no other attempt ever completes it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec

from ckptfmt.commit import (
    Committed,
    NotCommitted,
    Outcome,
    Publication,
    PublicationState,
    publish,
    same_participant,
)
from ckptfmt.errors import CkptError, DuplicateKeyError, RefusedError, StateError
from ckptfmt.identity import ParticipantId, check_name
from ckptfmt.layout import DataName, Folder, new_token
from ckptfmt.ledger_pin import LedgerPin, check_pins
from ckptfmt.manifest import DataObject, ParticipantManifest, encode_manifest
from ckptfmt.metadata import metadata
from ckptfmt.provenance import provenance
from ckptfmt.record import Record
from ckptfmt.schema import GENERIC_SCHEMA, SCHEMAS, TypedRecord, check_kind
from ckptfmt.store.base import BytesLike, DataWriter, Store
from ckptfmt.stream import StreamSummary, StreamWriter
from ckptfmt.threads import HomeProcess
from ckptfmt.wire import OBJECT_TARGET_BYTES

__all__ = ["ParticipantWriter", "write_participant"]


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A sink that stops once the commit was abandoned; it is asked once a block."""

    data: DataWriter
    publication: Publication

    def write(self, data: BytesLike) -> None:
        self.publication.check_open()
        self.data.write(data)

    def flush(self) -> None:
        self.data.flush()


class ParticipantWriter:
    """Streams the records of one participant into a checkpoint folder.

    Use it as a context manager: a block that ends without :meth:`finish` leaves nothing.
    ``publication`` lets an owner abandon the commit from another thread.  A new data
    object is begun once one holds ``object_target_bytes`` of lines.  ``role`` and
    ``unknown`` members that come from a manifest are kept as the bytes that they are.
    ``ledger_pins`` are of the ledgers that the records go with, in any order.

    Raises:
        NameRefusedError: the checkpoint id is malformed, or a ledger is pinned twice.
        ValueRefusedError: ``role`` holds what plain JSON cannot spell.
        StateError: ``publication`` was abandoned; nothing is left behind.
        StorageError: the store cannot take the first object.
    """

    def __init__(
        self,
        store: Store,
        folder: Folder,
        checkpoint_id: str,
        participant: ParticipantId,
        *,
        publication: Publication | None = None,
        role: Mapping[str, Any] | msgspec.Raw | None = None,
        user: Mapping[str, str] | None = None,
        unknown: Mapping[str, bytes] | None = None,
        ledger_pins: Iterable[LedgerPin] = (),
        object_target_bytes: int = OBJECT_TARGET_BYTES,
    ) -> None:
        self._store = store
        self._folder = folder
        self._checkpoint_id = check_name(checkpoint_id, "checkpoint id")
        self._participant = participant
        self._publication = publication or Publication()
        self._role = metadata({} if role is None else role)
        self._user = user
        self._unknown = unknown
        self._ledger_pins = sorted(ledger_pins, key=lambda pin: pin.name)
        check_pins(self._ledger_pins)
        self._object_target_bytes = object_target_bytes
        self._token = new_token()
        self._content = hashlib.sha256()
        self._objects: list[DataObject] = []
        self._keys: set[str] = set()
        self._episodes: set[str] = set()
        self._records = 0
        self._raw_bytes = 0
        self._done = False
        self._home = HomeProcess()
        self._data, self._stream = self._open_object()

    def add(self, record: TypedRecord | Record) -> None:
        """Append a record.

        Raises:
            DuplicateKeyError: a record with this key was added before.
            ValueRefusedError: it is not of the schema of the participant's kind.
            StateError: the commit was finished or abandoned.
            SizeError: the record's line is over 1 GiB.
            StorageError: a block could not be stored; the attempt is lost.
        """
        if self._done:
            raise StateError("the participant was finished or abandoned")
        try:
            check_kind(self._participant.kind, record)
            self._append(record)
        except RefusedError as error:
            # It leaves the stream as it was; anything else, an interrupt too, ends it.
            error.at(**self._place(), key=getattr(record, "key", None))
            raise
        except BaseException as error:
            self.abandon()
            if isinstance(error, CkptError):
                error.at(**self._place(), key=record.key)
            raise

    def _append(self, record: TypedRecord | Record) -> None:
        key = record.key
        if key in self._keys:
            raise DuplicateKeyError("two records have the same key")
        if self._raw_bytes >= self._object_target_bytes:
            self._close_object()
            self._data, self._stream = self._open_object()
        line = record.line()
        self._stream.add(key, line)
        self._keys.add(key)
        self._episodes.add(record.episode_id.capture_key)
        self._records += 1
        self._raw_bytes += sum(len(memoryview(piece)) for piece in line)

    def flush(self) -> None:
        """Hand all records so far to the store; on a local disk they can be salvaged from then on.

        Raises:
            StorageError: a block could not be stored.
        """
        self._stream.flush()

    def finish(self, check: Callable[[], None] | None = None) -> Outcome[ParticipantManifest]:
        """Complete the data and publish the manifest.

        ``check`` is asked under the publication's lock, at the last moment at which the
        commit can still be refused; it raises a :class:`CkptError` to refuse.

        Raises:
            StateError: it was finished or abandoned before.
        """
        if self._done:
            raise StateError("the participant was finished or abandoned")
        try:
            self._close_object()
            sealed = encode_manifest(self._manifest(), self._unknown)
            self._publication.claim(check)
        except CkptError as error:
            self.abandon()
            return NotCommitted(error.at(**self._place()))
        self._done = True
        name = self._folder.manifest(self._participant)
        outcome = publish(self._store, name, sealed, same_participant)
        self._settle(outcome)
        return outcome

    def abandon(self) -> None:
        """Give the attempt up and remove what it wrote.  Never raises.

        In a child of fork nothing is removed: the attempt is its parent's.
        """
        if self._done:
            return
        self._done = True
        if not self._home.is_here:
            return
        self._publication.abandon()
        self._stream.abandon()
        self._data.abort()
        self._remove_objects()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()

    def _place(self) -> dict[str, str]:
        return {"checkpoint": self._checkpoint_id, "participant": str(self._participant)}

    def _open_object(self) -> tuple[DataWriter, StreamWriter]:
        name = DataName(self._token, len(self._objects))
        data = self._store.open_data(self._folder.data(self._participant, name))
        self._raw_bytes = 0
        try:
            stream = StreamWriter(
                _Guarded(data, self._publication),
                kind=self._participant.kind,
                instance=self._participant.instance,
                checkpoint_id=self._checkpoint_id,
                content=self._content,
            )
        except BaseException:
            data.abort()
            raise
        return data, stream

    def _close_object(self) -> None:
        summary = self._stream.close()
        self._data.finish()
        self._objects.append(self._data_object(summary))

    def _data_object(self, summary: StreamSummary) -> DataObject:
        return DataObject(
            name=str(DataName(self._token, len(self._objects))),
            size_bytes=summary.size_bytes,
            sha256=summary.sha256,
            first_ordinal=self._records - summary.records,
            records=summary.records,
            blocks=summary.blocks,
            raw_bytes=summary.raw_bytes,
            index_offset=summary.index_offset,
            index_length=summary.index_length,
        )

    def _manifest(self) -> ParticipantManifest:
        schema = SCHEMAS.get(self._participant.kind)
        return ParticipantManifest(
            checkpoint_id=self._checkpoint_id,
            kind=self._participant.kind,
            instance=self._participant.instance,
            token=self._token,
            schema=GENERIC_SCHEMA if schema is None else self._participant.kind,
            schema_version=1 if schema is None else schema.schema_version,
            objects=self._objects,
            record_count=self._records,
            content_digest=self._content.hexdigest(),
            episode_ids=sorted(self._episodes),
            role=self._role,
            ledger_pins=self._ledger_pins,
            provenance=provenance(self._user),
        )

    def _settle(self, outcome: Outcome[ParticipantManifest]) -> None:
        match outcome:
            case Committed(ours=ours):
                self._publication.settle(PublicationState.PUBLISHED)
                if not ours:
                    self._remove_objects()
            case NotCommitted(reason=reason):
                self._publication.settle(PublicationState.NOT_PUBLISHED)
                reason.at(**self._place())
                self._remove_objects()
            case _:
                self._publication.settle(PublicationState.UNKNOWN)
                outcome.reason.at(**self._place())

    def _remove_objects(self) -> None:
        # What cannot be removed now is a leftover that no manifest names; gc will find it.
        for item in self._objects:
            with contextlib.suppress(CkptError):
                self._store.delete(self._folder.data(self._participant, item.name))


def write_participant(
    store: Store,
    folder: Folder,
    checkpoint_id: str,
    participant: ParticipantId,
    records: Iterable[TypedRecord | Record],
    *,
    role: Mapping[str, Any] | None = None,
    user: Mapping[str, str] | None = None,
    ledger_pins: Iterable[LedgerPin] = (),
) -> Outcome[ParticipantManifest]:
    """Write records sorted by key, so that a repeat agrees, and publish the manifest.

    The records are held in memory meanwhile; to stream them, use :class:`ParticipantWriter`.

    Raises:
        RefusedError: a record cannot be written.
        StorageError: the data could not be stored; nothing is left of it.
    """
    with ParticipantWriter(
        store, folder, checkpoint_id, participant, role=role, user=user, ledger_pins=ledger_pins
    ) as writer:
        for record in sorted(records, key=lambda record: record.key):
            writer.add(record)
        return writer.finish()
