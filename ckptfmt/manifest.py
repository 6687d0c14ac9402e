"""Manifests: what commits a participant, what commits a checkpoint, and what closes a name.

A manifest is compact ASCII JSON, its members sorted by name at every level, but for the
last one, ``self``: the SHA-256 of all bytes before it.  Members that this release does
not know are kept as the bytes they came as.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

from ckptfmt.errors import (
    CorruptError,
    DepthError,
    NameRefusedError,
    RefusedError,
    SizeError,
    TornError,
    UnsupportedError,
)
from ckptfmt.exact.text import from_any_stack
from ckptfmt.identity import EpisodeId, ParticipantId, check_name
from ckptfmt.layout import DataName
from ckptfmt.ledger_pin import LedgerPin, check_pins
from ckptfmt.members import split_members
from ckptfmt.wire import FORMAT_MAJOR, FORMAT_MINOR, MAX_MANIFEST_BYTES

__all__ = [
    "KNOWN_FEATURES",
    "NOT_RECOVERED",
    "CheckpointManifest",
    "DataObject",
    "Expected",
    "ParticipantManifest",
    "Previous",
    "Provenance",
    "Sealed",
    "Tombstone",
    "decode_manifest",
    "encode_manifest",
]

KNOWN_FEATURES: Final[frozenset[str]] = frozenset()
"""Named features that this release can read; a manifest that requires others is refused."""

NOT_RECOVERED: Final = msgspec.Raw(b"null")
"""The member ``recovered`` of a checkpoint that was not made by salvage."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
_Token = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{24}$", max_length=24)]

_LEFT_OUT_IF_EMPTY: Final = frozenset({"ledger_pins"})
_SELF: Final = b',"self":"sha256:'
_SEAL: Final = re.compile(_SELF + rb'([0-9a-f]{64})"}\n')
_SEAL_BYTES: Final = len(_SELF) + 64 + 3


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a manifest; what a later release adds to it is ignored."""


class Provenance(_Part, frozen=True, kw_only=True):
    """Who wrote it: library version, interpreter, host, time (RFC 3339, UTC), and what the
    caller wants to be remembered, such as a commit id."""

    library: str
    python: str
    host: str
    created_at: str
    user: dict[str, str]


class DataObject(_Part, frozen=True, kw_only=True):
    """A data object of a participant; sizes and offsets in bytes.

    ``first_ordinal`` is the global ordinal of its first record; within the object
    records count from 0 again.
    """

    name: str
    size_bytes: _Count
    sha256: _Sha256
    first_ordinal: _Count
    records: _Count
    blocks: _Count
    raw_bytes: _Count
    index_offset: _Count
    index_length: _Count


class _Head(_Part, frozen=True, kw_only=True):
    format: Literal["ckptfmt"] = "ckptfmt"
    major: _Count = FORMAT_MAJOR
    minor: _Count = FORMAT_MINOR
    required_features: list[str] = []
    checkpoint_id: str


class ParticipantManifest(_Head, frozen=True, kw_only=True):
    """What a participant wrote; it commits the participant.

    ``content_digest`` is the SHA-256 over, for each record in order, the line's length
    as u64le and the first 16 bytes of the line's SHA-256.  ``episodes`` are capture keys,
    sorted.  ``role`` holds what the role adds, as the JSON it is.  ``ledger_pins`` name the
    prefixes of ledgers that go with the records, sorted by name.
    """

    kind: str
    instance: str
    token: _Token
    schema: str
    schema_version: _Count
    objects: list[DataObject]
    record_count: _Count
    content_digest: _Sha256
    episode_ids: list[str]
    role: msgspec.Raw = msgspec.Raw(b"{}")
    ledger_pins: list[LedgerPin] = []
    provenance: Provenance

    @property
    def participant(self) -> ParticipantId:
        """Who wrote it."""
        return ParticipantId(self.kind, self.instance)


class Expected(_Part, frozen=True, kw_only=True):
    """A participant of a checkpoint: its manifest's digest (SHA-256 of the file) and size."""

    kind: str
    instance: str
    manifest_sha256: _Sha256
    manifest_bytes: _Count

    @property
    def participant(self) -> ParticipantId:
        """Whom it speaks of."""
        return ParticipantId(self.kind, self.instance)


class Previous(_Part, frozen=True, kw_only=True):
    """The checkpoint that was latest when this one was published."""

    checkpoint_id: str
    sha256: _Sha256


class CheckpointManifest(_Head, frozen=True, kw_only=True):
    """``checkpoint.json``: written last, it commits the checkpoint.

    ``sequence`` orders the checkpoints of a run.  ``scope`` are the capture keys of the
    episodes that the controller continues, sorted, or None for all.
    """

    token: _Token
    sequence: _Count
    previous: Previous | None = None
    run_id: str | None = None
    config_digest: str | None = None
    participants: list[Expected]
    scope: list[str] | None = None
    recovered: msgspec.Raw = NOT_RECOVERED
    user_metadata: msgspec.Raw = msgspec.Raw(b"{}")
    provenance: Provenance


class Tombstone(_Part, frozen=True, kw_only=True):
    """Closes a name for good: the commit under it was given up."""

    format: Literal["ckptfmt"] = "ckptfmt"
    tombstone: Literal[True] = True
    checkpoint_id: str
    kind: str | None = None
    instance: str | None = None
    token: _Token


_Body = TypeVar("_Body", bound=_Part)


@dataclass(frozen=True, slots=True)
class Sealed(Generic[_Body]):
    """A manifest as it is stored: its body, the members nobody here knows, and its bytes."""

    body: _Body
    data: bytes = field(repr=False)
    unknown: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The digest of the whole file, in hex."""
        return hashlib.sha256(self.data).hexdigest()


def encode_manifest(body: _Body, unknown: Mapping[str, bytes] | None = None) -> Sealed[_Body]:
    """Spell and seal a manifest; ``unknown`` members are spliced in as they are.

    Raises:
        SizeError: it would exceed 64 MiB.
    """
    members = {
        name: _spelled(value)
        for name in body.__struct_fields__
        if (value := getattr(body, name)) or name not in _LEFT_OUT_IF_EMPTY
    }
    members |= unknown or {}
    listed = b",".join(_spelled(name) + b":" + members[name] for name in sorted(members))
    sealed = b"{" + listed
    data = sealed + _SELF + hashlib.sha256(sealed).hexdigest().encode() + b'"}\n'
    if len(data) > MAX_MANIFEST_BYTES:
        raise SizeError(f"a manifest of {len(data):,} bytes exceeds {MAX_MANIFEST_BYTES:,}")
    return Sealed(body, data, dict(unknown or {}))


def _spelled(value: object) -> bytes:
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    plain = msgspec.to_builtins(value)
    return json.dumps(plain, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def decode_manifest(data: bytes, expected: type[_Body]) -> Sealed[_Body] | Sealed[Tombstone]:
    """Read a manifest of the ``expected`` type, or the tombstone that stands in its place.

    Raises:
        TornError: it ends too early.
        CorruptError: it is not what was written, or not a manifest; the member is named.
        UnsupportedError: a newer major version, or required features that are missing here.
    """
    try:
        return from_any_stack(partial(_decoded, expected=expected), data)
    except DepthError as error:
        raise CorruptError(f"the manifest is not JSON: {error.message}") from error


def _decoded(data: bytes, expected: type[_Body]) -> Sealed[_Body] | Sealed[Tombstone]:
    members = _unseal(data)
    if members.get("tombstone") is not None:
        return Sealed(_typed(members, Tombstone), data)
    _check_version(members)
    body = _typed(members, expected)
    # The defaults of the types are for writers: nothing is made up for a reader.
    if missing := set(body.__struct_fields__) - members.keys() - _LEFT_OUT_IF_EMPTY:
        raise CorruptError(f"the manifest has no member {min(missing)}")
    _check(body)
    known = {*body.__struct_fields__, "self"}
    return Sealed(body, data, {n: bytes(raw) for n, raw in members.items() if n not in known})


def _unseal(data: bytes) -> dict[str, msgspec.Raw]:
    seal = data[-_SEAL_BYTES:]
    match = _SEAL.fullmatch(seal)
    if match is None:
        # One damaged byte leaves either end of the seal whole; a cut leaves neither in place.
        if seal.startswith(_SELF) or seal.endswith(b'"}\n'):
            raise CorruptError("the manifest's seal is damaged").at(offset=len(data) - len(seal))
        raise TornError(
            f"the manifest ends after {len(data):,} bytes without its seal",
            advice="use the previous checkpoint",
        ).at(offset=len(data))
    sealed = data[:-_SEAL_BYTES]
    if hashlib.sha256(sealed).hexdigest().encode() != match[1]:
        raise CorruptError("the manifest's content does not match its own digest").at(offset=0)
    try:
        json.loads(data, object_pairs_hook=_refuse_twins, parse_int=len, parse_float=len)
    except ValueError as error:
        raise CorruptError(f"the manifest is not JSON: {error}") from error
    return split_members(data.removesuffix(b"\n"), "the manifest")


def _refuse_twins(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise CorruptError(f"the manifest has two members named {twin[:40]!a}")


def _check_version(members: Mapping[str, msgspec.Raw]) -> None:
    writer = _typed(members, _Origin)
    if writer.format != "ckptfmt":
        raise UnsupportedError(f"the format is {writer.format[:40]!a}, not 'ckptfmt'")
    made_by = f"it was written by {writer.provenance.get('library', 'an unknown release')!a}"
    if writer.major != FORMAT_MAJOR:
        raise UnsupportedError(
            f"format version {writer.major}.{writer.minor}; this release reads {FORMAT_MAJOR}",
            advice=made_by,
        )
    if missing := [name for name in writer.required_features if name not in KNOWN_FEATURES]:
        raise UnsupportedError(
            f"required features are missing here: {', '.join(map(ascii, missing))}", advice=made_by
        )


class _Origin(_Part, frozen=True, kw_only=True):
    format: str
    major: _Count
    minor: _Count
    required_features: list[str] = []
    provenance: dict[str, Any] = {}


_Read = TypeVar("_Read", bound=_Part)


def _typed(members: Mapping[str, msgspec.Raw], expected: type[_Read]) -> _Read:
    values = {name: members[name] for name in expected.__struct_fields__ if name in members}
    listed = b",".join(_spelled(name) + b":" + bytes(raw) for name, raw in values.items())
    try:
        return msgspec.json.decode(b"{" + listed + b"}", type=expected)
    except (msgspec.MsgspecError, NameRefusedError) as error:
        raise CorruptError(f"a member of the manifest is malformed: {error}") from error


def _check(body: _Part) -> None:
    try:
        if isinstance(body, _Head):
            check_name(body.checkpoint_id, "checkpoint id")
        if isinstance(body, ParticipantManifest):
            _check_participant(body)
        if isinstance(body, CheckpointManifest):
            _check_aggregate(body)
    except RefusedError as error:
        raise CorruptError(f"the manifest is malformed: {error.message}") from error


def _check_participant(body: ParticipantManifest) -> None:
    check_name(body.kind, "kind")
    check_name(body.instance, "instance")
    _check_object(body.role, "role")
    _check_keys(body.episode_ids, "episode_ids")
    check_pins(body.ledger_pins)
    ordinal = 0
    for number, item in enumerate(body.objects):
        if item.name != str(DataName(body.token, number)):
            raise CorruptError(f"objects[{number}].name {item.name[:80]!a} is not its own")
        if item.first_ordinal != ordinal:
            raise CorruptError(
                f"objects[{number}].first_ordinal is {item.first_ordinal}, not {ordinal}"
            )
        if item.index_offset + item.index_length > item.size_bytes:
            raise CorruptError(f"objects[{number}].index_offset reaches past the object")
        ordinal += item.records
    if ordinal != body.record_count:
        raise CorruptError(f"record_count is {body.record_count}, the objects have {ordinal}")


def _check_aggregate(body: CheckpointManifest) -> None:
    if not body.participants:
        raise CorruptError("participants is empty, and no writer publishes that")
    _check_object(body.user_metadata, "user_metadata")
    if bytes(body.recovered) != bytes(NOT_RECOVERED):
        _check_object(body.recovered, "recovered")
    seen: set[str] = set()
    for expected in body.participants:
        folded = expected.participant.folded
        if folded in seen:
            raise CorruptError(f"participants names {folded} twice")
        seen.add(folded)
    if body.scope is not None:
        _check_keys(body.scope, "scope")


def _check_object(value: msgspec.Raw, member: str) -> None:
    # That it is JSON was seen before.
    if not bytes(value).lstrip().startswith(b"{"):
        raise CorruptError(f"{member} is not an object")


def _check_keys(keys: list[str], member: str) -> None:
    for key in keys:
        EpisodeId.from_capture_key(key)
    if keys != sorted(set(keys)):
        raise CorruptError(f"{member} is not sorted or names an episode twice")
