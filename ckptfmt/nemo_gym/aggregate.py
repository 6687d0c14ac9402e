"""What a Gym controller puts beside the participants; each file is optional, and so are all."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    DepthError,
    MissingError,
    RefusedError,
    UnsupportedError,
)
from ckptfmt.exact.text import from_any_stack
from ckptfmt.identity import ParticipantId, check_name
from ckptfmt.layout import LATEST_NAME, Folder
from ckptfmt.nemo_gym.layout import AGGREGATE_NAMES, COLLECTION_NAME, GYM_CHECKPOINT_NAME
from ckptfmt.store.base import Store
from ckptfmt.store.names import join_name
from ckptfmt.wire import MAX_MANIFEST_BYTES

__all__ = ["UNKNOWN_KIND", "Aggregate", "read_gym_aggregate"]

_SCHEMA_VERSION: Final = 2
_MAX_HINT_BYTES: Final = 4096
UNKNOWN_KIND: Final = "unknown"
"""The kind of an instance that an aggregate names without its kind, and that is not there."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What the files say.  ``files`` are their bytes, for those who write them again.

    ``instances`` are the participants that are named, with a kind of None where only the
    instance is.
    """

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    checkpoint_id: str | None = None
    created_at: str = ""
    instances: tuple[tuple[str | None, str], ...] = ()

    @property
    def data(self) -> bytes:
        """The bytes of the one that stands for the checkpoint; empty where there is none."""
        names = (GYM_CHECKPOINT_NAME, COLLECTION_NAME)
        return next((self.files[name] for name in names if name in self.files), b"")

    def missing(self, there: list[ParticipantId]) -> list[ParticipantId]:
        """Those that are named and not among ``there``."""
        lacking = []
        for kind, instance in self.instances:
            if not any(p.instance == instance and kind in (None, p.kind) for p in there):
                lacking.append(ParticipantId(kind or UNKNOWN_KIND, instance))
        return sorted(set(lacking))


def read_gym_aggregate(store: Store, folder: Folder) -> Aggregate:
    """Read the aggregates in a checkpoint's folder.

    Raises:
        CorruptError: one is no JSON object, or what it says of the checkpoint is malformed.
        UnsupportedError: another schema version.
        StorageError: it cannot be read.
    """
    files = {}
    for name in AGGREGATE_NAMES:
        most = _MAX_HINT_BYTES if name == LATEST_NAME else MAX_MANIFEST_BYTES
        try:
            files[name] = store.read_small(join_name(folder.prefix, name), most)
        except MissingError:
            continue
    known: dict[str, Any] = {}
    for name in (COLLECTION_NAME, GYM_CHECKPOINT_NAME):
        if name in files:
            try:
                known |= _members(name, files[name])
            except CkptError as error:
                raise error.at(file=join_name(folder.prefix, name)) from error
    return Aggregate(files, **known)


def _members(name: str, data: bytes) -> dict[str, Any]:
    try:
        members = from_any_stack(_decoded, data)
    except (ValueError, DepthError) as error:
        raise CorruptError(f"{name} is not JSON: {error}") from error
    if type(members) is not dict:
        raise CorruptError(f"{name} is not a JSON object")
    version = members.get("schema_version")
    if name == GYM_CHECKPOINT_NAME and version != _SCHEMA_VERSION:
        raise UnsupportedError(f"schema version {version!a} of {name}; {_SCHEMA_VERSION} is read")
    try:
        return dict(_used(members))
    except RefusedError as error:
        raise CorruptError(f"{name} is malformed: {error.message}") from error


def _decoded(data: bytes) -> Any:
    # Of numbers nothing is needed but the version, and a long one must cost nothing.
    return json.loads(data.decode(), parse_int=lambda digits: int(digits[:20]))


def _used(members: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if "checkpoint_id" in members:
        yield "checkpoint_id", check_name(members["checkpoint_id"], "checkpoint id")
    if isinstance(created_at := members.get("created_at"), str):
        yield "created_at", created_at
    yield "instances", tuple(_instances(members.get("instances")))


def _instances(named: Any) -> Iterator[tuple[str | None, str]]:
    """The participants named by a list of names or objects, or by an object keyed by name.

    The wire contract leaves the shape open: what names no participant is passed over.
    """
    if isinstance(named, dict):
        named = [{"instance": name, **_kind_of(told)} for name, told in named.items()]
    for item in named if isinstance(named, list) else ():
        members = item if isinstance(item, dict) else {"instance": item}
        kind, instance = members.get("kind"), members.get("instance")
        if isinstance(instance, str) and kind is None and "/" in instance:
            kind, _, instance = instance.partition("/")
        with contextlib.suppress(RefusedError):
            yield kind and check_name(kind, "kind"), check_name(instance, "instance")


def _kind_of(told: Any) -> dict[str, Any]:
    if isinstance(told, dict):
        return {name: told[name] for name in ("kind", "instance") if name in told}
    return {"kind": told} if isinstance(told, str) else {}
