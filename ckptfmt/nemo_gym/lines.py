"""One record in two spellings: Gym's line (``json.dumps`` as it comes) and the one of this format.

Gym's line has NaN, Infinity and -Infinity spelt out, and its members in any order; ours
is strict JSON with annotations, ``episode_id`` first.  A record whose members stood in
another order carries that order along, so that it can be spelt again byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ckptfmt.errors import (
    CorruptError,
    RefusedError,
    UnsupportedError,
    ValueRefusedError,
)
from ckptfmt.exact import decode_json
from ckptfmt.exact.annotations import STARRED, Tag
from ckptfmt.exact.integers import from_digits
from ckptfmt.exact.text import from_any_stack
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import SUB_KEY, Record, join_line
from ckptfmt.schema import SCHEMAS, TypedRecord, read_record

__all__ = ["GymRecord", "Order", "beyond_gym", "read_gym_line", "spell_gym_line"]

_EPISODE_ID: Final = "episode_id"
_EPISODE: Final = ("rollout_id", "attempt")
_SPELT: Final = frozenset({Tag.NAN, Tag.INF, Tag.NEG_INF})


class Order(NamedTuple):
    """The members of a record and of its ``episode_id``, in the order in which Gym had them.

    A member that is missing here was not there, and is read as null.
    """

    members: tuple[str, ...]
    episode_id: tuple[str, ...] = _EPISODE


@dataclass(frozen=True, slots=True)
class GymRecord:
    """A record that Gym wrote: in this format's terms, and Gym's order where it differs."""

    record: TypedRecord | Record
    line: bytes
    order: Order | None


def read_gym_line(kind: str, text: bytes) -> GymRecord:
    """Read a line, without its LF, of a participant of ``kind``.

    A member that may be null and is not there is read as null.

    Raises:
        CorruptError: it is no record of that kind, or holds what this format cannot keep.
        UnsupportedError: a reserved member, which Gym does not write.
    """
    found = _object(text)
    order = Order(tuple(found), ())
    episode = found.pop(_EPISODE_ID, None)
    if type(episode) is not dict or sorted(episode) != sorted(_EPISODE):
        raise CorruptError("a record has no episode_id of rollout_id and attempt")
    order = order._replace(episode_id=tuple(episode))
    if reserved := [name for name in found if name.startswith("$")]:
        raise UnsupportedError(f"member {reserved[0][:40]!a} has a name that is reserved here")
    members = _in_our_order(kind, found)
    schema = SCHEMAS.get(kind)
    try:
        record = Record(
            episode_id=EpisodeId(**episode),
            members={name: JsonPayload.from_value(value) for name, value in members.items()},
            sub_key_member=SUB_KEY if schema is None else schema.sub_key_member,
        )
    except RefusedError as error:
        raise CorruptError(f"a record cannot be kept: {error.message}", error.location) from error
    line = join_line(record.line())
    kept = Order((_EPISODE_ID, *members))
    return GymRecord(read_record(kind, line), line, None if order == kept else order)


def _in_our_order(kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
    schema = SCHEMAS.get(kind)
    forms = {} if schema is None else schema.forms
    known = {
        name: found.get(name) for name, form in forms.items() if name in found or form.nullable
    }
    return {**known, **{name: value for name, value in found.items() if name not in forms}}


def _object(text: bytes) -> dict[str, Any]:
    try:
        value, count = _decoded(text)
    except UnicodeDecodeError as error:
        raise CorruptError(f"the line is not UTF-8: {error.reason}") from error
    except ValueError as error:
        raise CorruptError(f"the line is not JSON: {error}") from error
    except RefusedError as error:
        raise CorruptError(f"a record cannot be kept: {error.message}") from error
    if type(value) is not dict:
        raise CorruptError("the line is not a JSON object")
    if len(value) != count:
        raise CorruptError("the record has two members of one name")
    return value


def _decoded(text: bytes) -> tuple[Any, int]:
    return from_any_stack(_Decoding().decode, text)


class _Decoding:
    """``json.loads``, and how many members the last object to end had: the outermost one.

    Below it the last of two members of one name wins, as for Gym itself, which spells the
    keys 1 and "1" of one dict alike.
    """

    def __init__(self) -> None:
        self._count = 0

    def decode(self, text: bytes) -> tuple[Any, int]:
        value = json.loads(text.decode(), object_pairs_hook=self._made, parse_int=from_digits)
        return value, self._count

    def _made(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._count = len(pairs)
        return dict(pairs)


def beyond_gym(record: TypedRecord | Record) -> list[str]:
    """The tags of what a line of Gym's cannot spell in a record: tuples, other keys and so on.

    Raises:
        CorruptError: an annotation is malformed.
    """
    tags: set[str] = set()
    for name, payload in _generic(record).members.items():
        if payload.annotations is None:
            continue
        try:
            entries = decode_json(payload.annotations)
            tags.update(STARRED.get(entry[1], entry[1]) for entry in entries)
        except (TypeError, LookupError, RefusedError) as error:
            raise CorruptError("annotations are malformed").at(pointer=f"/{name}") from error
    return sorted(tags - _SPELT)


def spell_gym_line(
    record: TypedRecord | Record, order: Order | None = None, *, lossy: bool = False
) -> bytes:
    """The line that ``json.dumps`` gives for a record, without LF.

    ``order`` is taken where it is that of this record.  ``lossy`` leaves out what stands
    under a key that cannot be spelt, such as a tuple.

    Raises:
        ValueRefusedError: there is such a key.
        CorruptError: a payload cannot be decoded.
    """
    generic = _generic(record)
    episode = {"rollout_id": generic.episode_id.rollout_id, "attempt": generic.episode_id.attempt}
    members = {name: payload.value() for name, payload in generic.members.items()}
    whole: Mapping[str, Any] = {_EPISODE_ID: episode, **members}
    if order is not None:
        whole = _reordered(whole, order)
    try:
        return _on_deep_stack(lambda: json.dumps(whole, skipkeys=lossy)).encode()
    except TypeError as error:
        raise ValueRefusedError(f"a record has a key that JSON cannot spell: {error}") from error


def _reordered(whole: Mapping[str, Any], order: Order) -> Mapping[str, Any]:
    """The members in that order; as they are where it is not that of this record."""
    absent = whole.keys() - set(order.members)
    if (
        not whole.keys() >= set(order.members)
        or sorted(order.episode_id) != sorted(_EPISODE)
        or any(whole[name] is not None for name in absent)
    ):
        return whole
    made = {name: whole[name] for name in order.members}
    made[_EPISODE_ID] = {name: made[_EPISODE_ID][name] for name in order.episode_id}
    return made


def _on_deep_stack(call: Callable[[], str]) -> str:
    try:
        return call()
    except RecursionError:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(call).result()


def _generic(record: TypedRecord | Record) -> Record:
    return record if isinstance(record, Record) else record.to_record()
