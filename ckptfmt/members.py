"""Splitting a JSON object into its members without decoding their values."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import msgspec
import orjson

from ckptfmt.errors import CorruptError, DepthError
from ckptfmt.exact.text import from_any_stack, on_fresh_stack

__all__ = ["split_members"]

_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def split_members(text: bytes, what: str) -> dict[str, msgspec.Raw]:
    """The members of the object that ``text`` is, in order; ``what`` names it in errors.

    Values are checked for their syntax; that their strings are UTF-8 shows when they are
    decoded.

    Raises:
        CorruptError: not a JSON object, or two members of one name.
    """
    try:
        members = from_any_stack(_DECODER.decode, text)
    except (msgspec.MsgspecError, DepthError) as error:
        raise CorruptError(f"{what} is not a JSON object: {error}") from error
    # Compact and without duplicates, the members account for every byte of the text.
    names_bytes = len(orjson.dumps(list(members))) - 2
    values_bytes = sum(len(memoryview(value)) + 1 for value in members.values())
    if names_bytes + values_bytes + 2 != len(text):
        _refuse_duplicates(text, what)
    return members


def _refuse_duplicates(text: bytes, what: str) -> None:
    try:
        names = [name for name, _ in on_fresh_stack(_pairs, text)]
    except UnicodeDecodeError as error:
        raise CorruptError(f"{what} is not UTF-8: {error.reason}") from error
    for name, count in Counter(names).items():
        if count > 1:
            raise CorruptError(f"{what} has {count} members named {name[:40]!a}")


def _pairs(text: bytes) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = json.loads(
        text, object_pairs_hook=list, parse_int=len, parse_float=len
    )
    return pairs
