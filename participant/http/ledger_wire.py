"""The messages of the ledger routes, as server and client spell them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

__all__ = ["LEDGER_PREFIX", "MAX_BATCH_KEYS", "MAX_BODY_BYTES", "RemovalReply", "RolloutBatch"]

LEDGER_PREFIX: Final = "/training-token-capture/control/rollouts"
MAX_BATCH_KEYS: Final = 4096
"""Keys of one request; a client splits what is longer."""
MAX_BODY_BYTES: Final = 1 << 20
"""More than a full batch of the longest keys takes."""


class RolloutBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a retire or a delete: capture keys."""

    rollout_ids: Annotated[list[str], Meta(min_length=1, max_length=MAX_BATCH_KEYS)]


class RemovalReply(msgspec.Struct, frozen=True):
    """Which of the keys had records that are now gone, and which had none."""

    removed: list[str]
    absent: list[str]
