"""What callers add to a manifest: any finite JSON, kept as the bytes that it is spelled as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ckptfmt.errors import ValueRefusedError
from ckptfmt.exact import decode_json, encode

__all__ = ["metadata", "metadata_value"]


def metadata(members: Mapping[str, Any]) -> msgspec.Raw:
    """Spell ``members`` as a manifest holds them: compact, ASCII, sorted at every level.

    Raises:
        ValueRefusedError: something that plain JSON cannot spell (NaN, tuples, other keys).
    """
    plain = dict(members)
    if encode(plain).annotations is not None:
        raise ValueRefusedError(
            "metadata holds a value that JSON cannot spell",
            advice="use finite numbers, lists and string keys",
        )
    return msgspec.Raw(json.dumps(plain, separators=(",", ":"), sort_keys=True).encode())


def metadata_value(stored: msgspec.Raw) -> dict[str, Any]:
    """The object that a manifest's metadata is; empty where it is anything else."""
    value = decode_json(stored)
    return value if isinstance(value, dict) else {}
