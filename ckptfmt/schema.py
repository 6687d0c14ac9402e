"""The records of the four roles: typed views of :class:`ckptfmt.record.Record`.

A schema's members are the fields of its class, in that order.  Members that a later
release added stay in ``extras`` and are written back after the known ones; a record
that was read and not changed is written as the very bytes that were read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

from ckptfmt.errors import CkptError, CorruptError, NameRefusedError, ValueRefusedError
from ckptfmt.identity import EpisodeId, record_key
from ckptfmt.payload import JsonPayload
from ckptfmt.record import SUB_KEY, Line, Record, check_members, line_of

__all__ = [
    "GENERIC_SCHEMA",
    "SCHEMAS",
    "AgentRecord",
    "EnvironmentRecord",
    "Form",
    "ModelRecord",
    "ResourcesRecord",
    "TypedRecord",
    "check_kind",
    "read_record",
]


@dataclass(frozen=True, slots=True)
class Form:
    """What a member may be: a plain value, or a payload that is handed through."""

    says: str
    is_payload: bool = True
    nullable: bool = False
    opening: bytes = b""
    pattern: re.Pattern[str] = re.compile(".*", re.DOTALL)

    def fits(self, value: object) -> bool:
        """Whether ``value`` may stand in the field."""
        if value is None:
            return self.nullable
        if self.is_payload:
            return isinstance(value, JsonPayload) and (
                self.opening in (b"", value.opening) or self._is_none(value)
            )
        return type(value) is str and self.pattern.fullmatch(value) is not None

    def read(self, payload: JsonPayload) -> Any:
        """The field's value of a stored member."""
        if not self.is_payload:
            return payload.value()
        return None if self._is_none(payload) else payload

    def _is_none(self, payload: JsonPayload) -> bool:
        return self.nullable and payload.opening == b"n" and payload.annotations is None


_TEXT: Final = Form("a string", is_payload=False)
_TEXT_OR_NULL: Final = Form("a string or None", is_payload=False, nullable=True)
_SHA256: Final = Form(
    "64 lower-case hex digits", is_payload=False, pattern=re.compile("[0-9a-f]{64}")
)
_PAYLOAD: Final = Form("a payload")
_PAYLOAD_OR_NULL: Final = Form("a payload or None", nullable=True)
_OBJECT_OR_NULL: Final = Form("a payload that is an object, or None", nullable=True, opening=b"{")
_ARRAY: Final = Form("a payload that is an array", opening=b"[")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedRecord:
    """What the records of all roles share.

    ``extras`` holds members that this release does not know, in the order they were read.

    Raises:
        ValueRefusedError: a field is not of the form that the schema asks for.
        NameRefusedError: the sub-key or the name of an extra member is malformed.
    """

    schema_version: ClassVar[int] = 1
    forms: ClassVar[Mapping[str, Form]] = {}
    sub_key_member: ClassVar[str | None] = None

    episode_id: EpisodeId
    extras: Mapping[str, JsonPayload] = field(default_factory=dict)
    stored_line: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, form in self.forms.items():
            value = getattr(self, name)
            if not form.fits(value):
                raise ValueRefusedError(
                    f"member {name} is not {form.says}, but of type {type(value).__qualname__}"
                ).at(key=self.episode_id.capture_key, pointer=f"/{name}")
        check_members(self.episode_id, self.extras)
        if known := self.extras.keys() & self.forms.keys():
            raise NameRefusedError(f"extras name known members: {', '.join(sorted(known))}")
        record_key(self.episode_id, self.sub_key)

    @property
    def sub_key(self) -> str | None:
        """What tells this record from others of its episode, or None."""
        return getattr(self, self.sub_key_member) if self.sub_key_member else None

    @property
    def key(self) -> str:
        """``capture_key`` or ``capture_key/sub-key``; unique within a participant."""
        return record_key(self.episode_id, self.sub_key)

    def line(self) -> Line:
        """The record as it stands in the stream."""
        if self.stored_line is not None:
            return (self.stored_line,)
        return line_of(self.episode_id, self._members())

    def to_record(self) -> Record:
        """The same record without its type."""
        return Record(
            episode_id=self.episode_id,
            members=self._members(),
            sub_key_member=self.sub_key_member,
        )

    def _members(self) -> dict[str, JsonPayload]:
        members = {name: _to_payload(getattr(self, name)) for name in self.forms}
        return {**members, **self.extras}

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read a line of this schema; payloads are not decoded.

        Raises:
            CorruptError: not a record line, or a member is missing or malformed.
            UnsupportedError: a reserved member that this release does not know.
        """
        record = Record.from_line(line, sub_key_member=cls.sub_key_member)
        extras = dict(record.members)
        try:
            members = {name: form.read(extras.pop(name)) for name, form in cls.forms.items()}
            typed = cls(episode_id=record.episode_id, extras=extras, **members)
        except KeyError as error:
            raise CorruptError(f"a record has no member {error}").at(key=record.key) from error
        except CkptError as error:
            where = replace(error.location, key=record.key)
            raise CorruptError(error.message, where) from error
        # Frozen for everybody else: the line belongs to what was read, not to a changed copy.
        object.__setattr__(typed, "stored_line", line)
        return typed


def _to_payload(value: JsonPayload | str | None) -> JsonPayload:
    return value if isinstance(value, JsonPayload) else JsonPayload.from_value(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord(TypedRecord):
    """An episode of an environment server and the boundary it continues from, if any.

    ``task_digest`` is the SHA-256, in hex, of the task's sorted-key compact JSON.
    """

    forms: ClassVar[Mapping[str, Form]] = {"task_digest": _SHA256, "boundary": _OBJECT_OR_NULL}

    task_digest: str
    boundary: JsonPayload | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord(TypedRecord):
    """One session of an agent server.

    ``episode`` is the step boundary of an agent that owns the whole episode.
    """

    sub_key_member: ClassVar[str | None] = "session_key"
    forms: ClassVar[Mapping[str, Form]] = {
        "session_key": _TEXT,
        "session": _PAYLOAD,
        "boundary": _PAYLOAD_OR_NULL,
        "episode": _PAYLOAD_OR_NULL,
    }

    session_key: str
    session: JsonPayload
    boundary: JsonPayload | None
    episode: JsonPayload | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesRecord(TypedRecord):
    """One session of a resources server; ``state`` is None where the server is stateless.

    A state whose value is None is the same thing, here as in every nullable member.
    ``owner`` is the id of the worker that held the session, or None.
    """

    sub_key_member: ClassVar[str | None] = "session_id"
    forms: ClassVar[Mapping[str, Form]] = {
        "session_id": _TEXT,
        "state": _PAYLOAD_OR_NULL,
        "owner": _TEXT_OR_NULL,
    }

    session_id: str
    state: JsonPayload | None
    owner: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord(TypedRecord):
    """The ledger rows of one episode (token-free), and at most one generation cut."""

    forms: ClassVar[Mapping[str, Form]] = {"rows": _ARRAY, "generation_cuts": _ARRAY}

    rows: JsonPayload
    generation_cuts: JsonPayload


GENERIC_SCHEMA: Final = "generic"
"""The schema name of participants whose records have no type here."""

SCHEMAS: Final[Mapping[str, type[TypedRecord]]] = {
    "environment": EnvironmentRecord,
    "agent": AgentRecord,
    "resources": ResourcesRecord,
    "model": ModelRecord,
}
"""Participant kind -> the schema of its records.  Other kinds hold plain records."""


def check_kind(kind: str, record: TypedRecord | Record) -> None:
    """Refuse a record that :func:`read_record` would not give back for a participant of ``kind``.

    Raises:
        ValueRefusedError: it is of another schema.
    """
    expected = SCHEMAS.get(kind, Record)
    if not isinstance(record, expected):
        raise ValueRefusedError(
            f"a participant of kind {kind} has no records of type {type(record).__qualname__}",
            advice=f"use {expected.__qualname__}",
        )
    if isinstance(record, Record) and record.sub_key_member != SUB_KEY:
        raise ValueRefusedError(
            f"a record of kind {kind} has its sub-key in {SUB_KEY}, not in {record.sub_key_member}"
        )


def read_record(kind: str, line: bytes) -> TypedRecord | Record:
    """Read a line of a participant of ``kind``; kinds without a schema give a plain record.

    Raises:
        CorruptError: the line is no record of that kind.
        UnsupportedError: a reserved member that this release does not know.
    """
    schema = SCHEMAS.get(kind)
    return Record.from_line(line) if schema is None else schema.from_line(line)
