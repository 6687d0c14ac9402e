"""Pins: the part of a ledger that belongs to a checkpoint, by size and SHA-256.

Ledgers only grow, so a checkpoint need not copy them: it names the prefix that it goes
with.  What became of the ledger since then shows when the prefix is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ckptfmt.errors import CkptError, CorruptError, Location, MissingError, NameRefusedError
from ckptfmt.ledger.names import Kind, file_name, parse_name
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.rules import found
from ckptfmt.rules import Finding

__all__ = ["LedgerPin", "pin_ledger", "verify_pins"]

_PINNED: Final = (Kind.TOKENS, Kind.LINEAGE)


class LedgerPin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first ``size`` bytes of the ledger file ``name``, and their SHA-256 in hex.

    Raises:
        NameRefusedError: ``name`` is not that of a ledger's lines.
    """

    name: str
    size: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]

    def __post_init__(self) -> None:
        parsed = parse_name(self.name)
        if parsed is None or parsed[1] not in _PINNED:
            raise NameRefusedError(f"{self.name[:80]!a} is not the name of a ledger's lines")


def pin_ledger(reader: LedgerReader, key: str, kind: Kind) -> LedgerPin:
    """Pin the whole lines that a ledger has now; a torn one at its end is left out.

    Raises:
        MissingError: there is no such ledger.
    """
    name = file_name(key, kind)
    if kind not in reader.kinds(key):
        raise MissingError("there is no such ledger").at(file=name)
    size = 0
    for line in reader.lines(key, kind):
        if line.is_ended:
            size = line.end
    return LedgerPin(name=name, size=size, sha256=_sha256(reader, name, size)[1])


def verify_pins(reader: LedgerReader, pins: Iterable[LedgerPin]) -> Iterator[Finding]:
    """Which pinned ledgers were truncated after the checkpoint, or rewritten."""
    for pin in pins:
        place = Location(file=pin.name)
        try:
            size, sha256 = _sha256(reader, pin.name, pin.size)
        except MissingError:
            size, sha256 = 0, ""
            if pin.size == 0:
                text = "truncated after checkpoint: the ledger is gone"
                yield found("ledger-truncated", CorruptError(text), place)
                continue
        except CkptError as error:
            yield found("ledger-unreadable", error, place)
            continue
        if size < pin.size:
            text = f"truncated after checkpoint: {size:,} bytes of the {pin.size:,} that it pins"
            yield found("ledger-truncated", CorruptError(text), place)
        elif sha256 != pin.sha256:
            text = (
                f"rewritten: its first {size:,} bytes have sha256 {sha256}, but {pin.sha256} "
                "is pinned"
            )
            yield found("ledger-rewritten", CorruptError(text), place)


def _sha256(reader: LedgerReader, name: str, size: int) -> tuple[int, str]:
    digest, read = hashlib.sha256(), 0
    for piece in reader.prefix(name, size):
        digest.update(piece)
        read += len(piece)
    return read, digest.hexdigest()
