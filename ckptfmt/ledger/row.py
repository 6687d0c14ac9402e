"""Rows of an external-staging ledger: one committed or failed call each, without tokens.

A row is written once and handed over as one validated object: a missing or an extra
field is refused.  What is read from a file stays a plain mapping, since a row that lacks
a field must not keep the others from being read; :func:`breaches` judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import msgspec
import orjson
from msgspec import UNSET, Meta, UnsetType

from ckptfmt.errors import CorruptError, NameRefusedError, SizeError, ValueRefusedError
from ckptfmt.ledger.entry import check_call_id
from ckptfmt.ledger.limits import MAX_LINE_BYTES
from ckptfmt.ledger.names import check_key
from ckptfmt.ledger.typed import check_types, form_of

__all__ = ["FailureRow", "Row", "RowMembers", "breaches", "row_line", "typed_row"]

RowMembers: TypeAlias = Mapping[str, Any]

_Count = Annotated[int, Meta(ge=0)]
_Name = Annotated[str, Meta(min_length=1)]
_Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One committed call.

    Lengths count tokens.  ``digest`` equals ``cumulative_hash``; ``staging_digest`` is the
    digest of the staged record that ``staging_key`` names.  ``admitted_at`` is in Unix
    seconds.  ``capture_key``, after a restore, is the key under which the call was staged.

    Raises:
        ValueRefusedError: a field has another form, or an invariant does not hold.
        SizeError: the call id is too long.
    """

    model_call_id: str
    fingerprint: str
    context_len: _Count
    context_digest: _Sha256
    digest: _Sha256
    parent_call_id: _Name | None
    staging_key: _Name
    weight_version: _Count
    prev_len: _Count
    delta_len: _Count
    cum_len: _Count
    staging_digest: _Sha256
    extras_digest: _Sha256
    mode: Literal["text", "token_in"]
    admitted_at: float | None
    staging_chain: list[_Name]
    chain_hash: _Sha256
    cumulative_hash: _Sha256
    response_id: _Name
    output_fingerprint: _Sha256 | None
    continuation_fingerprint: _Sha256 | None
    fingerprint_version: _Count
    capture_key: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        check_types(self, _FORM, "a ledger row")
        check_call_id(self.model_call_id)
        if self.capture_key is not UNSET:
            check_key(self.capture_key)
        if self.admitted_at is not None and not isfinite(self.admitted_at):
            raise ValueRefusedError("admitted_at of a ledger row is NaN or an infinity")
        for wrong in _length_breaches(self):
            raise ValueRefusedError(f"model call {self.model_call_id!a}: {wrong}")

    @classmethod
    def from_mapping(cls, members: RowMembers) -> Self:
        """The row that a JSON object is.

        Raises:
            As the class; also ``ValueRefusedError`` where a field is missing or extra.
        """
        row: Self = _built(cls, members)
        return row

    def members(self) -> dict[str, Any]:
        """The row as a JSON object."""
        members = msgspec.structs.asdict(self)
        if self.capture_key is UNSET:
            del members["capture_key"]
        return members


class FailureRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call whose capture did not complete, and why.

    Raises:
        ValueRefusedError: no reason, or no call id.
        SizeError: the call id is too long.
    """

    model_call_id: str
    failure_reason: str

    def __post_init__(self) -> None:
        check_call_id(self.model_call_id)
        if not isinstance(self.failure_reason, str) or not self.failure_reason:
            raise ValueRefusedError("failure_reason of a ledger row is not a text, or empty")

    def members(self) -> dict[str, Any]:
        """The row as a JSON object."""
        return msgspec.structs.asdict(self)


_FORM: Final = form_of(Row)


def _built(cls: type[Any], members: RowMembers) -> Any:
    unknown = sorted(set(members) - set(cls.__struct_fields__))
    if unknown:
        raise ValueRefusedError(f"a ledger row with unknown fields: {', '.join(unknown)[:200]!a}")
    try:
        return cls(**members)
    except TypeError as error:
        raise ValueRefusedError(f"a ledger row lacks a field: {error}") from error


def typed_row(members: RowMembers) -> Row | FailureRow:
    """The row that a JSON object is, of either kind.

    Raises:
        ValueRefusedError: it is none.
        SizeError: the call id is too long.
    """
    row: Row | FailureRow = _built(FailureRow if "failure_reason" in members else Row, members)
    return row


def _length_breaches(row: Row) -> list[str]:
    wrong: list[str] = []
    if row.parent_call_id is None:
        if row.prev_len != 0:
            wrong.append(f"a root with prev_len {row.prev_len}")
        if row.mode != "text":
            wrong.append(f"a root of mode {row.mode}")
    else:
        if row.prev_len == 0:
            wrong.append("a child with prev_len 0")
        if row.mode != "token_in":
            wrong.append(f"a child of mode {row.mode}")
    if row.delta_len == 0:
        wrong.append("delta_len is 0")
    if row.cum_len != row.prev_len + row.delta_len:
        wrong.append(f"cum_len {row.cum_len} is not {row.prev_len} + {row.delta_len}")
    if row.digest != row.cumulative_hash:
        wrong.append("digest is not cumulative_hash")
    return wrong


def breaches(members: RowMembers) -> str | None:
    """What is wrong with a row that was read; None if nothing is.

    Fields of a later release are no fault of the row.
    """
    known = FailureRow if "failure_reason" in members else Row
    try:
        typed_row({name: members[name] for name in members if name in known.__struct_fields__})
    except (ValueRefusedError, NameRefusedError, SizeError) as error:
        return error.message
    return None


def row_line(members: RowMembers) -> bytes:
    """A row as compact JSON with sorted keys, without a newline: what is compared and stored.

    Raises:
        SizeError: it is longer than the format permits.
        CorruptError: a row that was read holds what JSON does not carry.
    """
    try:
        line = orjson.dumps(members, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise CorruptError(f"a ledger row that JSON does not carry: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise SizeError(f"a ledger row of {len(line):,} bytes; at most {MAX_LINE_BYTES:,}")
    return line
