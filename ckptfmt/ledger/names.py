"""Every file name in a capture directory: built and parsed here only.

A capture key starts with a letter or a digit, so names that start with a dot are
free for what belongs to no rollout: lock stripes and temporary files.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from ckptfmt.errors import NameRefusedError, SizeError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.limits import LOCK_STRIPES, MAX_BATCH_KEYS

__all__ = [
    "Kind",
    "check_batch",
    "check_key",
    "file_name",
    "is_stripe",
    "is_temporary",
    "new_temporary",
    "parse_name",
    "stripe_name",
    "stripe_of",
]


class Kind(StrEnum):
    """What a file holds for its rollout; the value is the end of the file's name."""

    TOKENS = "tokens.jsonl"
    STATE = "tokens.state.json"
    INTENTS = "tokens.intents"
    INCOMPLETE = "tokens.incomplete"
    LOCK = "tokens.lock"
    LINEAGE = "lineage.jsonl"
    FENCE = "lineage.retired"


_STRIPE: Final = re.compile(r"\.ledger-lock-[0-9a-f]{2}")
# The second form is what NeMo Gym's store leaves behind when it is killed.
_TEMPORARY: Final = re.compile(r"\.ledger-tmp-[0-9a-f]{24}|\.tokens-state-[A-Za-z0-9_]{1,64}")
_TEMPORARY_RANDOM_BYTES: Final = 12


def check_key(key: str) -> str:
    """Return ``key`` if it is a capture key that fits a file name.

    Raises:
        NameRefusedError: it is not.
    """
    return EpisodeId.from_capture_key(key).check_length().capture_key


def check_batch(keys: Sequence[str]) -> list[str]:
    """The capture keys of a batch, each checked, each once, in the order they came.

    Raises:
        NameRefusedError: a bare string, which is a sequence of one-letter keys, or a
            malformed key.
        SizeError: more than :data:`~ckptfmt.ledger.limits.MAX_BATCH_KEYS` keys.
    """
    if isinstance(keys, str | bytes):
        raise NameRefusedError(
            f"{keys[:80]!a} is one capture key where a list of them is expected",
            advice="pass a list",
        )
    if len(keys) > MAX_BATCH_KEYS:
        raise SizeError(f"a batch of {len(keys):,} capture keys; at most {MAX_BATCH_KEYS:,}")
    return list(dict.fromkeys(check_key(key) for key in keys))


def file_name(key: str, kind: Kind) -> str:
    """The name of a rollout's file; ``key`` has been checked."""
    # Not formatted, which costs an enumeration's member two calls: every put comes here.
    return key + "." + kind


def parse_name(name: str) -> tuple[str, Kind] | None:
    """The capture key and the kind of a file; None if it is no rollout's."""
    for kind in Kind:
        key = name.removesuffix(f".{kind}")
        if key != name:
            try:
                return check_key(key), kind
            except NameRefusedError:
                return None
    return None


def stripe_of(key: str) -> int:
    """The number of the lock stripe of a key: CRC-32 of the key, modulo the stripes."""
    return zlib.crc32(key.encode()) % LOCK_STRIPES


def stripe_name(stripe: int) -> str:
    """The name of a lock stripe's file."""
    return f".ledger-lock-{stripe:02x}"


def is_stripe(name: str) -> bool:
    """Whether a file is a lock stripe."""
    return _STRIPE.fullmatch(name) is not None


def new_temporary() -> str:
    """A name that nobody has, for a file that will be renamed."""
    return f".ledger-tmp-{secrets.token_hex(_TEMPORARY_RANDOM_BYTES)}"


def is_temporary(name: str) -> bool:
    """Whether only an unfinished write leaves a file of this name behind."""
    return _TEMPORARY.fullmatch(name) is not None
