"""Writing one participant in Gym's layout: the records under their digest, then the manifest.

Both are created whole or not at all, and only if the name is free.  The manifest commits
the participant.  It has no token: a writer knows its own by its bytes, which equal
records make equal.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ckptfmt.commit import Publication, PublicationState
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CommitUnknownError,
    DuplicateKeyError,
    ExistsError,
    FencedError,
    StorageError,
    ValueRefusedError,
)
from ckptfmt.identity import ParticipantId, check_name
from ckptfmt.layout import Folder, new_token
from ckptfmt.manifest import Tombstone, encode_manifest
from ckptfmt.nemo_gym.layout import GymManifest, encode_gym_manifest, records_name
from ckptfmt.nemo_gym.lines import beyond_gym, spell_gym_line
from ckptfmt.nemo_gym.reader import read_gym_manifest
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord, check_kind
from ckptfmt.store.base import BytesLike, Store
from ckptfmt.wire import MAX_MANIFEST_BYTES, MAX_RECORD_BYTES

__all__ = [
    "abort_gym_participant",
    "create_or_find",
    "publish_gym_participant",
    "write_gym_participant",
]

_ADVICE: Final = "nothing of it was touched; use a new checkpoint id"


def write_gym_participant(
    store: Store,
    folder: Folder,
    checkpoint_id: str,
    participant: ParticipantId,
    records: Iterable[TypedRecord | Record],
    *,
    publication: Publication | None = None,
    check: Callable[[], None] | None = None,
) -> bytes:
    """Write records, in the order given, below ``folder``, which holds the kinds; the manifest.

    All lines are in memory at once.  ``publication`` and ``check`` are those of
    :class:`ckptfmt.participant_writer.ParticipantWriter`; a publication that was claimed is
    settled here.

    Raises:
        ValueRefusedError: a record holds what Gym's lines cannot spell; its tags are named.
        RefusedError: another reason not to write it, or the commit was abandoned.
        FencedError: other content was published here first.
        AbortedError: the name was closed.
        CommitUnknownError: whether it was published cannot be told.
        StorageError: the store failed; nothing was published.
    """
    publication = publication or Publication()
    check_name(checkpoint_id, "checkpoint id")
    data, count = bytearray(), 0
    for line in _lines(participant.kind, records, publication):
        data += line
        count += 1
    sha256 = hashlib.sha256(data).hexdigest()
    manifest = encode_gym_manifest(
        GymManifest(
            checkpoint_id=checkpoint_id,
            instance=participant.instance,
            kind=participant.kind,
            record_count=count,
            records_file=records_name(sha256),
            records_sha256=sha256,
        )
    )
    records_file = f"{folder.participant(participant)}/{records_name(sha256)}"
    is_new = create_or_find(store, records_file, data)
    try:
        publication.check_open()
        publication.claim(check)
    except CkptError:
        if is_new:
            _remove(store, records_file)
        raise
    try:
        publish_gym_participant(store, folder, participant, manifest)
    except CommitUnknownError:
        publication.settle(PublicationState.UNKNOWN)
        raise
    except CkptError:
        publication.settle(PublicationState.NOT_PUBLISHED)
        if is_new:
            _remove(store, records_file)
        raise
    publication.settle(PublicationState.PUBLISHED)
    return manifest


def _lines(
    kind: str, records: Iterable[TypedRecord | Record], publication: Publication
) -> Iterator[bytes]:
    keys: set[str] = set()
    for record in records:
        publication.check_open()
        check_kind(kind, record)
        if record.key in keys:
            raise DuplicateKeyError("two records have the same key").at(key=record.key)
        keys.add(record.key)
        if beyond := beyond_gym(record):
            raise ValueRefusedError(
                f"NeMo Gym's layout cannot spell all of a record: {', '.join(beyond)}",
                advice="use lists and string keys, or the layout of ckptfmt",
            ).at(key=record.key)
        line = spell_gym_line(record)
        if len(line) > MAX_RECORD_BYTES:
            raise ValueRefusedError(f"a record of {len(line):,} bytes").at(key=record.key)
        yield line + b"\n"


def create_or_find(store: Store, name: str, data: BytesLike) -> bool:
    """Create an object, or find that one of this content is there, which is made durable.

    True where this call created it.

    Raises:
        ExistsError: one of another content is there; it was not touched.
        CommitUnknownError, StorageError: as :meth:`Store.create`.
    """
    try:
        store.create(name, data)
    except (ExistsError, CommitUnknownError) as doubt:
        if not _holds(store, name, data):
            raise
        store.sync(name)
        return isinstance(doubt, CommitUnknownError)
    return True


def _holds(store: Store, name: str, data: BytesLike) -> bool:
    try:
        size_bytes = memoryview(data).nbytes
        return store.size(name) == size_bytes and store.read_range(name, 0, size_bytes) == data
    except CkptError:
        return False


def publish_gym_participant(
    store: Store, folder: Folder, participant: ParticipantId, manifest: bytes
) -> None:
    """Create the manifest, or find that the same one stands there.

    Raises:
        FencedError, AbortedError, CommitUnknownError: as :func:`write_gym_participant`.
        StorageError: the store failed; nothing was published.
    """
    name = folder.manifest(participant)
    try:
        store.create(name, manifest)
    except (ExistsError, CommitUnknownError) as doubt:
        _read_back(store, folder, participant, manifest, doubt)


def _read_back(
    store: Store, folder: Folder, participant: ParticipantId, manifest: bytes, doubt: CkptError
) -> None:
    name = folder.manifest(participant)
    try:
        stored = store.read_small(name, MAX_MANIFEST_BYTES)
        store.sync(name)
    except CkptError as error:
        raise _unknown(name, doubt, error) from doubt
    if stored == manifest:
        return
    try:
        winner, _ = read_gym_manifest(store, folder, participant)
    except AbortedError as error:
        raise AbortedError(error.message, advice="use a new checkpoint id").at(file=name) from doubt
    except StorageError as error:
        raise _unknown(name, doubt, error) from doubt
    except CkptError as error:
        raise FencedError(
            f"a manifest stands here that cannot be read: {error.message}", advice=_ADVICE
        ).at(file=name) from doubt
    raise FencedError(
        f"other content was published here first: {winner.records_file} of checkpoint "
        f"{winner.checkpoint_id}",
        advice=_ADVICE,
    ).at(file=name) from doubt


def _unknown(name: str, doubt: CkptError, error: CkptError) -> CommitUnknownError:
    return CommitUnknownError(
        f"the commit is in doubt ({doubt.message}), and so is what stands there: {error}",
        advice="remove nothing; repeat the commit, or close the name by a tombstone",
    ).at(file=name)


def _remove(store: Store, name: str) -> None:
    # What cannot be removed stays behind; no manifest names it.
    with contextlib.suppress(CkptError):
        store.delete(name)


def abort_gym_participant(
    store: Store, folder: Folder, checkpoint_id: str, participant: ParticipantId
) -> bool:
    """Close a participant's part for good by a tombstone; false where a manifest had won.

    Gym's readers take the tombstone for a malformed manifest, and restore nothing from it.

    Raises:
        CommitUnknownError: neither could be made sure of; repeat.
        StorageError: the store failed.
    """
    name = folder.manifest(participant)
    tombstone = Tombstone(
        checkpoint_id=checkpoint_id,
        kind=participant.kind,
        instance=participant.instance,
        token=new_token(),
    )
    try:
        store.create(name, encode_manifest(tombstone).data)
    except (ExistsError, CommitUnknownError) as doubt:
        try:
            read_gym_manifest(store, folder, participant)
            store.sync(name)
        except AbortedError:
            store.sync(name)
            return True
        except CkptError as error:
            raise _unknown(name, doubt, error) from doubt
        return False
    return True
