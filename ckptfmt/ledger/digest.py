"""The digest of a token sequence, as entries of complete records carry it.

The bytes that are hashed are those of NeMo Gym, so that its digests can be recomputed:
a domain, then (unless the sequence is empty) a version byte, the count and each token
as 64-bit big-endian integers.
"""

from __future__ import annotations

import array
import hashlib
import struct
import sys
from collections.abc import Iterable
from typing import Final, Self

__all__ = ["TokenDigest", "token_digest"]

_DOMAIN: Final = b"nemo-gym-tokens"
_VERSION: Final = 1


def token_digest(token_ids: Iterable[int]) -> str:
    """SHA-256, in hex, of a sequence of tokens (each 0 to 2**64 - 1)."""
    return TokenDigest(token_ids).hexdigest()


class TokenDigest:
    """A sequence of tokens that grows, with its digest at any point.

    Costs 8 bytes a token to hold, and a hash of all of them for each digest.
    """

    def __init__(self, token_ids: Iterable[int] = ()) -> None:
        self._tokens = array.array("Q", token_ids)

    def __len__(self) -> int:
        return len(self._tokens)

    def extended(self, token_ids: Iterable[int]) -> Self:
        """This sequence and then those tokens, as a new one."""
        longer = type(self)()
        longer._tokens = self._tokens + array.array("Q", token_ids)
        return longer

    def hexdigest(self) -> str:
        """SHA-256 of the sequence so far, in hex."""
        digest = hashlib.sha256(_DOMAIN)
        if self._tokens:
            digest.update(struct.pack(">BQ", _VERSION, len(self._tokens)))
            tokens = self._tokens
            if sys.byteorder == "little":
                tokens = tokens[:]
                tokens.byteswap()
            digest.update(tokens)
        return digest.hexdigest()
