"""A record and its line: ``{"episode_id": ..., members ..., "$exact": ...}``.

:class:`Record` is what every stream holds, whatever server wrote it: an episode and
named payloads.  The schemas of the four roles (:mod:`ckptfmt.schema`) are typed views
of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import orjson

from ckptfmt.errors import (
    CorruptError,
    NameRefusedError,
    RefusedError,
    UnsupportedError,
    ValueRefusedError,
)
from ckptfmt.exact import pointer
from ckptfmt.exact.encode import is_plain_text
from ckptfmt.exact.text import Buffer
from ckptfmt.identity import EpisodeId, record_key
from ckptfmt.members import split_members
from ckptfmt.payload import JsonPayload
from ckptfmt.stream.records import Line

__all__ = [
    "EXACT",
    "SUB_KEY",
    "Line",
    "Record",
    "check_members",
    "episode_of",
    "join_line",
    "line_of",
]

EXACT: Final = "$exact"
"""The member that holds the annotations: ``{field: [entry, ...]}``."""
_EPISODE_ID: Final = "episode_id"
SUB_KEY: Final = "sub_key"
"""The member that completes the key where no role's schema names another."""


class _WireEpisode(msgspec.Struct, forbid_unknown_fields=True):
    rollout_id: str
    attempt: int


_EPISODE: Final = msgspec.json.Decoder(_WireEpisode)
# As every writer of ours begins a line.
_OPENING: Final = re.compile(rb'\{"episode_id":(\{"rollout_id":"[^"\\]*","attempt":[0-9]+\})[,}]')


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of any schema.

    ``members`` are all top-level members but ``episode_id`` and ``$exact``, in order; the
    string member named ``sub_key_member`` tells records of one episode apart (None: an
    episode has one record).  A record
    that was read keeps its line, and is written again as those bytes.

    Raises:
        NameRefusedError: a member's name is reserved (``episode_id``, ``$...``), or the
            record's key would be malformed.
    """

    episode_id: EpisodeId
    members: Mapping[str, JsonPayload]
    sub_key_member: str | None = SUB_KEY
    stored_line: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_members(self.episode_id, self.members)
        record_key(self.episode_id, self.sub_key)

    @property
    def sub_key(self) -> str | None:
        """What tells this record from others of its episode: a session id, say."""
        payload = self.members.get(self.sub_key_member) if self.sub_key_member else None
        value = None if payload is None else payload.value()
        if value is None or isinstance(value, str):
            return value
        raise NameRefusedError(f"member {self.sub_key_member} is not a string")

    @property
    def key(self) -> str:
        """``capture_key`` or ``capture_key/sub-key``; unique within a participant."""
        return record_key(self.episode_id, self.sub_key)

    def line(self) -> Line:
        """The record as it stands in the stream."""
        if self.stored_line is not None:
            return (self.stored_line,)
        return line_of(self.episode_id, self.members)

    @classmethod
    def from_line(cls, line: bytes, *, sub_key_member: str | None = SUB_KEY) -> Record:
        """Split a line into its members; payloads are not decoded.

        Raises:
            CorruptError: no record line: not an object, a name twice, no episode id,
                annotations of a member that is not there.
            UnsupportedError: a reserved member that this release does not know.
        """
        members = split_members(line, "a record")
        notes = split_members(bytes(members.pop(EXACT, b"{}")), "$exact")
        episode_id = _episode_id(members.pop(_EPISODE_ID, None))
        if unknown := [name for name in members if name.startswith("$")]:
            raise UnsupportedError(f"unknown reserved member {unknown[0][:40]!a}")
        payloads = {
            name: JsonPayload.stored(text, notes.pop(name, None)) for name, text in members.items()
        }
        if notes:
            raise CorruptError(f"annotations of {sorted(notes)[:3]!a}, which are not there")
        try:
            record = cls(episode_id=episode_id, members=payloads, sub_key_member=sub_key_member)
        except RefusedError as error:
            raise CorruptError(f"a record's key is malformed: {error.message}") from error
        # Not an argument: a changed copy must not claim to be what was read.
        object.__setattr__(record, "stored_line", line)
        return record


def check_members(episode_id: EpisodeId, members: Mapping[str, JsonPayload]) -> None:
    """Refuse what may not be a member of a record of this episode.

    Raises:
        NameRefusedError: ``episode_id``, a name that starts with ``$``, or no Unicode text.
        ValueRefusedError: a value that is not a payload.
    """
    for name, value in members.items():
        if name == _EPISODE_ID or not is_plain_text(name) or name.startswith("$"):
            raise NameRefusedError(f"a record member may not be named {name!a}").at(
                key=episode_id.capture_key
            )
        if not isinstance(value, JsonPayload):
            raise ValueRefusedError(
                f"member {name!a} is a {type(value).__qualname__}, not a JsonPayload",
                advice="use JsonPayload.from_value() or JsonPayload.from_json()",
            ).at(key=episode_id.capture_key, pointer=pointer.join([name]))


def line_of(episode_id: EpisodeId, members: Mapping[str, JsonPayload]) -> Line:
    """The line of a new record, whose members' names were checked."""
    episode = {"rollout_id": episode_id.rollout_id, "attempt": episode_id.attempt}
    pieces: list[Buffer] = [b'{"episode_id":', orjson.dumps(episode)]
    annotated: list[Buffer] = []
    for name, payload in members.items():
        quoted = orjson.dumps(name)
        pieces += (b",", quoted, b":", payload.text)
        if payload.annotations is not None:
            annotated += (b",", quoted, b":", payload.annotations)
    if annotated:
        pieces += (b',"$exact":{', *annotated[1:], b"}")
    pieces.append(b"}")
    return tuple(pieces)


def episode_of(line: bytes) -> EpisodeId:
    """The episode of a record line; where it stands first, the rest is not looked at.

    Raises:
        CorruptError: no record line.
        UnsupportedError: a reserved member that this release does not know.
    """
    opening = _OPENING.match(line)
    if opening is None:
        return Record.from_line(line, sub_key_member=None).episode_id
    return _episode_id(opening[1])


def join_line(line: Line) -> bytes:
    """The line as one bytes object."""
    return b"".join(line)


def _episode_id(text: Buffer | None) -> EpisodeId:
    if text is None:
        raise CorruptError("a record has no episode_id")
    # Split first, since the typed decoder would let the last of two members win.
    split_members(bytes(text), "an episode_id")
    try:
        wire = _EPISODE.decode(text)
        return EpisodeId(wire.rollout_id, wire.attempt)
    except (msgspec.MsgspecError, NameRefusedError) as error:
        raise CorruptError(f"a record's episode_id is malformed: {error}") from error
