"""File names of NeMo Gym's layout, the participant's manifest, and recognising the layout."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    DataError,
    RefusedError,
    UnsupportedError,
)
from ckptfmt.exact.text import from_any_stack
from ckptfmt.identity import ParticipantId, check_name
from ckptfmt.layout import CHECKPOINT_NAME, LATEST_NAME, MANIFEST_NAME, Folder
from ckptfmt.members import split_members
from ckptfmt.store.base import Store
from ckptfmt.store.names import join_name

__all__ = [
    "AGGREGATE_NAMES",
    "COLLECTION_NAME",
    "GYM_CHECKPOINT_NAME",
    "GYM_FOLDER",
    "GYM_SCHEMA_VERSION",
    "GymManifest",
    "decode_gym_manifest",
    "encode_gym_manifest",
    "gym_folder",
    "gym_participants",
    "is_records_name",
    "records_name",
]

GYM_FOLDER: Final = "gym"
"""The folder of a checkpoint that holds the participants: ``gym/<kind>/<instance>/``."""
GYM_CHECKPOINT_NAME: Final = "gym_checkpoint.json"
COLLECTION_NAME: Final = "collection.json"
AGGREGATE_NAMES: Final = (GYM_CHECKPOINT_NAME, COLLECTION_NAME, LATEST_NAME)
"""What a controller may put beside that folder; each is optional."""

GYM_SCHEMA_VERSION: Final = 1
"""The version of the participant's manifest."""
_RECORDS: Final = re.compile(r"records(?:-(?P<sha256>[0-9a-f]{64}))?\.jsonl")

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class GymManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a participant wrote: its records' file beside the manifest, and that file's digest."""

    checkpoint_id: str
    instance: str
    kind: str
    record_count: _Count
    records_file: str
    records_sha256: _Sha256
    schema_version: Literal[1] = 1

    @property
    def participant(self) -> ParticipantId:
        """Who wrote it."""
        return ParticipantId(self.kind, self.instance)


class _Version(msgspec.Struct, frozen=True):
    schema_version: int


def records_name(sha256: str) -> str:
    """The name that a file of records is written under, told by its content."""
    return f"records-{sha256}.jsonl"


def is_records_name(name: str) -> bool:
    """Whether a file of this name holds records: ``records.jsonl`` or named by its digest."""
    return _RECORDS.fullmatch(name) is not None


def encode_gym_manifest(manifest: GymManifest) -> bytes:
    """The manifest as it is written: members sorted by name, standard separators, one line."""
    return (json.dumps(msgspec.to_builtins(manifest), sort_keys=True) + "\n").encode()


def decode_gym_manifest(data: bytes) -> GymManifest:
    """Read a participant's manifest; members that are not known here are ignored.

    Raises:
        CorruptError: it is no such manifest, or names a file that no writer of it names.
        UnsupportedError: another schema version.
    """
    text = data.strip(b" \t\r\n")
    try:
        # Only for what it refuses: it is exact about two members of one name.
        split_members(text, "the manifest")
        version = from_any_stack(partial(msgspec.json.decode, type=_Version), text).schema_version
        if version != GYM_SCHEMA_VERSION:
            raise UnsupportedError(
                f"schema version {version} of a NeMo Gym manifest; {GYM_SCHEMA_VERSION} is read"
            )
        manifest: GymManifest = from_any_stack(partial(msgspec.json.decode, type=GymManifest), text)
        check_name(manifest.checkpoint_id, "checkpoint id")
        check_name(manifest.kind, "kind")
        check_name(manifest.instance, "instance")
    except (msgspec.MsgspecError, RefusedError) as error:
        raise CorruptError(f"the manifest is malformed: {error}") from error
    _check_records_file(manifest)
    return manifest


def _check_records_file(manifest: GymManifest) -> None:
    match = _RECORDS.fullmatch(manifest.records_file)
    if match is None:
        raise CorruptError(
            f"records_file {manifest.records_file[:80]!a} is neither records.jsonl nor "
            "records-<sha256>.jsonl"
        )
    if match["sha256"] not in (None, manifest.records_sha256):
        raise CorruptError("records_file is named by another digest than records_sha256")


def gym_folder(store: Store, folder: Folder) -> Folder | None:
    """Where the participants of a checkpoint in this layout lie; None if it is in no such layout.

    ``folder`` is the checkpoint's, or already its ``gym`` folder.  Names decide; nothing is
    read.  A folder with ``checkpoint.json`` is ours.

    Raises:
        StorageError: it cannot be listed.
    """
    files = _names(store, folder.prefix, "file")
    if CHECKPOINT_NAME in files:
        return None
    below = Folder(join_name(folder.prefix, GYM_FOLDER))
    for candidate in (below, folder):
        if next(gym_participants(store, candidate), None) is not None:
            return candidate
    return below if GYM_CHECKPOINT_NAME in files else None


def gym_participants(store: Store, folder: Folder) -> Iterator[ParticipantId]:
    """Those that have records in this layout below ``folder``, sorted by kind and instance."""
    for kind in _names(store, folder.prefix, "dir"):
        for instance in _names(store, folder.kind(kind), "dir"):
            with contextlib.suppress(CkptError):
                participant = ParticipantId(kind, instance)
                if _has_records(store, folder, participant):
                    yield participant


def _has_records(store: Store, folder: Folder, participant: ParticipantId) -> bool:
    files = [e.name for e in store.entries(folder.participant(participant)) if e.kind != "dir"]
    if any(is_records_name(name) for name in files):
        return True
    # A manifest whose records are gone: only where no other layout has such folders.
    return MANIFEST_NAME in files and folder.prefix.rpartition("/")[2] == GYM_FOLDER


def _names(store: Store, prefix: str, kind: Literal["file", "dir"]) -> list[str]:
    # A folder that cannot be named or listed holds nothing that could be read here either.
    with contextlib.suppress(RefusedError, DataError):
        return [entry.name for entry in store.entries(prefix) if entry.kind == kind]
    return []
