"""A TokenEntry: the complete record of one model call, and its line.

The fields are those of NeMo Gym; its versions 1 to 5 are read, absent fields at their
defaults.  Fields that are not known here are kept and written back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Final, Literal, Self

import msgspec
import orjson
from msgspec import Meta

from ckptfmt.errors import CorruptError, SizeError, UnsupportedError, ValueRefusedError
from ckptfmt.ledger.digest import token_digest
from ckptfmt.ledger.limits import ENTRY_SCHEMA_VERSION, MAX_CALL_ID_BYTES, MAX_LINE_BYTES
from ckptfmt.ledger.typed import check_types, form_of

__all__ = ["TokenEntry", "check_call_id", "line_digest", "parse_object"]

_Count = Annotated[int, Meta(ge=0)]


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What training needs of one model call.

    ``rollout_id`` is the capture key.  Token arrays hold ids from 0;
    ``generation_log_probs`` has one finite number for each generated token;
    ``token_item_index`` counts within ``output_items``; ``created_at`` is in Unix
    seconds.  ``cum_len`` and ``digest`` describe prompt and generation together, the
    parent's tokens included where ``prompt_is_delta``.
    """

    schema_version: int = ENTRY_SCHEMA_VERSION
    rollout_id: str
    model_call_id: str
    model: str = ""
    prompt_token_ids: list[_Count]
    generation_token_ids: list[_Count]
    generation_log_probs: list[float]
    routed_experts: Any = None
    output_items: list[dict[str, Any]] = msgspec.field(default_factory=list)
    token_item_index: int | None = None
    created_at: float = 0.0
    parent_call_id: str | None = None
    cum_len: _Count | None = None
    digest: str | None = None
    parent_resolution: Literal["root", "resolved", "unresolved"] | None = None
    parent_resolution_reason: str = ""
    continuation_fingerprint: str = ""
    continuation_context_len: _Count = 0
    continuation_context_digest: str = ""
    fingerprint_version: int | None = None
    prompt_is_delta: bool = False
    prefix_requested: bool | int | None = None
    prefix_supplied: bool | int | None = None
    extras: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_version(self.schema_version)
        check_types(self, _FORM, "a token entry")
        check_call_id(self.model_call_id)
        for wrong in self._breaches():
            raise ValueRefusedError(f"model call {self.model_call_id!a}: {wrong}")

    @classmethod
    def from_mapping(cls, members: Mapping[str, Any]) -> Self:
        """The entry that a JSON object is.

        Raises:
            As the class; also ``ValueRefusedError`` where a required field is missing.
        """
        _check_version(members.get("schema_version", ENTRY_SCHEMA_VERSION))
        known = {name: value for name, value in members.items() if name in _KNOWN}
        extras = {name: value for name, value in members.items() if name not in _KNOWN}
        try:
            return cls(**known, extras=extras)
        except TypeError as error:
            raise ValueRefusedError(f"a token entry lacks a field: {error}") from error

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read a line, without its newline.

        Raises:
            UnsupportedError: a newer schema version.
            CorruptError: the line is no entry, or breaks an invariant.
        """
        return cls.from_parsed(parse_object(line))

    @classmethod
    def from_parsed(cls, members: Mapping[str, Any]) -> Self:
        """As :meth:`from_line`, for the object that the line is."""
        if "schema_version" not in members:
            raise CorruptError("a token entry without schema_version")
        try:
            return cls.from_mapping(members)
        except (SizeError, ValueRefusedError) as error:
            raise CorruptError(error.message, error.location) from error

    def line(self) -> bytes:
        """The entry as compact JSON with sorted keys, without a newline.

        Raises:
            ValueRefusedError: an item or an extra field holds what JSON does not carry.
            SizeError: the line is longer than the format permits.
        """
        members = msgspec.structs.asdict(self)
        members.update(members.pop("extras"))
        try:
            line = orjson.dumps(members, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            raise ValueRefusedError(f"a token entry that JSON does not carry: {error}") from error
        if len(line) > MAX_LINE_BYTES:
            raise SizeError(f"a token entry of {len(line):,} bytes; at most {MAX_LINE_BYTES:,}")
        return line

    def _breaches(self) -> list[str]:
        wrong: list[str] = []
        generated, log_probs = len(self.generation_token_ids), len(self.generation_log_probs)
        if generated != log_probs:
            wrong.append(
                f"generation_log_probs has {log_probs} members for {generated} generated tokens"
            )
        # The sum tells at once, unless finite numbers overflow it.
        log_prob_sum = sum(self.generation_log_probs)
        if not isfinite(log_prob_sum) and not all(map(isfinite, self.generation_log_probs)):
            wrong.append("generation_log_probs holds NaN or an infinity")
        index, items = self.token_item_index, len(self.output_items)
        if index is not None and not 0 <= index < items:
            wrong.append(f"token_item_index {index} is not within {items} output_items")
        resolved = self.parent_resolution == "resolved"
        if resolved and not self.parent_call_id:
            wrong.append("parent_resolution is resolved, but there is no parent_call_id")
        if self.parent_resolution in ("root", "unresolved") and self.parent_call_id is not None:
            wrong.append(f"parent_resolution is {self.parent_resolution}, yet has a parent_call_id")
        if self.prompt_is_delta and not resolved:
            wrong.append("prompt_is_delta without a resolved parent")
        return wrong

    def with_digest(self) -> Self:
        """This entry with ``cum_len`` and ``digest`` of its own tokens; not for a delta."""
        tokens = self.prompt_token_ids + self.generation_token_ids
        return msgspec.structs.replace(self, cum_len=len(tokens), digest=token_digest(tokens))


_FORM: Final = form_of(TokenEntry)
_KNOWN: Final = frozenset(TokenEntry.__struct_fields__) - {"extras"}


def _check_version(version: object) -> None:
    if type(version) is not int or version < 1:
        raise ValueRefusedError(f"schema_version {str(version)[:40]!a} is not a version")
    if version > ENTRY_SCHEMA_VERSION:
        raise UnsupportedError(
            f"a token entry of schema_version {version}; this release knows 1 to "
            f"{ENTRY_SCHEMA_VERSION}",
            advice="read it with a newer release",
        )


def check_call_id(call_id: str) -> str:
    """Return ``call_id`` if it can stand on a line of its own.

    Raises:
        ValueRefusedError: it is empty, starts with ``-`` (which cancels), or holds a
            control character or a lone surrogate.
        SizeError: it is longer than the format permits.
    """
    if (
        not isinstance(call_id, str)
        or not call_id
        or call_id[0] == "-"
        or call_id.strip() != call_id
    ):
        raise ValueRefusedError(
            f"model_call_id {ascii(call_id)[:80]} is empty, begins with '-', or has space around it"
        )
    try:
        size_bytes = len(call_id.encode())
    except UnicodeEncodeError:
        raise ValueRefusedError("a model_call_id holds a lone surrogate") from None
    if size_bytes > MAX_CALL_ID_BYTES:
        raise SizeError(f"a model_call_id of {size_bytes:,} bytes; at most {MAX_CALL_ID_BYTES:,}")
    if not call_id.isprintable():
        raise ValueRefusedError(f"model_call_id {ascii(call_id)[:80]} holds a control character")
    return call_id


def line_digest(line: bytes) -> str:
    """SHA-256, in hex, of a line without its newline: what ``entry_digests`` holds."""
    return hashlib.sha256(line).hexdigest()


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object that a line is.

    Raises:
        CorruptError: it is not JSON, or no object.
    """
    try:
        members = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CorruptError(f"a line that is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise CorruptError(f"a line that is not a JSON object but {type(members).__name__}")
    return members
