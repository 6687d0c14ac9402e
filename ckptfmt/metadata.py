"""What callers add to a manifest: any finite JSON, kept as the bytes that it is spelled as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ckptfmt.errors import ValueRefusedError
from ckptfmt.exact import encode
from ckptfmt.exact.text import from_any_stack

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
    encoded = encode(plain)
    if encoded.annotations is not None:
        raise ValueRefusedError(
            "metadata holds a value that JSON cannot spell",
            advice="use finite numbers, lists and string keys",
        )
    # As deep as a value may be, from wherever in a program it is called.
    return msgspec.Raw(from_any_stack(lambda _: _sorted(plain), encoded.text))


def _sorted(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, separators=(",", ":"), sort_keys=True).encode()
