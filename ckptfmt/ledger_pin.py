"""What a manifest says of a ledger: the prefix that belongs to the checkpoint.

Ledgers only grow, so a checkpoint need not copy them.  ``ckptfmt.ledger`` makes pins and
compares them with the files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ckptfmt.errors import NameRefusedError
from ckptfmt.identity import EpisodeId

__all__ = ["LedgerPin", "check_pins"]

_LINES: Final = re.compile(r"(.+)\.(?:tokens|lineage)\.jsonl")


class LedgerPin(msgspec.Struct, frozen=True, kw_only=True):
    """The first ``size_bytes`` of the ledger file ``name``, and their SHA-256 in hex.

    Raises:
        NameRefusedError: ``name`` is not that of a ledger's lines.
    """

    name: str
    size_bytes: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]

    def __post_init__(self) -> None:
        match = _LINES.fullmatch(self.name)
        if match is None:
            raise NameRefusedError(f"{self.name[:80]!a} is not the name of a ledger's lines")
        EpisodeId.from_capture_key(match[1]).check_length()


def check_pins(pins: Sequence[LedgerPin]) -> None:
    """Make sure that pins are sorted by name, each ledger once.

    Raises:
        NameRefusedError: they are not.
    """
    names = [pin.name for pin in pins]
    if names != sorted(set(names)):
        raise NameRefusedError("ledger_pins is not sorted or names a ledger twice")
