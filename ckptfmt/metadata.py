"""What callers add to a manifest: any finite JSON, kept as the bytes that it is spelled as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ckptfmt.errors import ValueRefusedError
from ckptfmt.exact import encode

__all__ = ["metadata"]


def metadata(members: Mapping[str, Any] | msgspec.Raw) -> msgspec.Raw:
    """Spell ``members`` as a manifest holds them: compact, ASCII, sorted at every level.

    What comes from a manifest is kept as it is.

    Raises:
        ValueRefusedError: something that plain JSON cannot spell (NaN, tuples, other keys).
    """
    if isinstance(members, msgspec.Raw):
        return members
    plain = dict(members)
    if encode(plain).annotations is not None:
        raise ValueRefusedError(
            "metadata holds a value that JSON cannot spell",
            advice="use finite numbers, lists and string keys",
        )
    return msgspec.Raw(json.dumps(plain, separators=(",", ":"), sort_keys=True).encode())
