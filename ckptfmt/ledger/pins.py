"""Pins: the part of a ledger that belongs to a checkpoint, by size and SHA-256.

Ledgers only grow, so a checkpoint need not copy them: it names the prefix that it goes
with.  What became of the ledger since then shows when the prefix is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from ckptfmt.errors import CkptError, CorruptError, Location, MissingError
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.rules import Finding

__all__ = ["pin_ledger", "pin_prefix", "verify_pins"]


def pin_ledger(reader: LedgerReader, key: str, kind: Kind) -> LedgerPin:
    """Pin the whole lines that a ledger has now; a torn one at its end is left out.

    Raises:
        MissingError: there is no such ledger.
    """
    name = file_name(key, kind)
    if kind not in reader.kinds(key):
        raise MissingError("there is no such ledger").at(file=name)
    size_bytes = 0
    for line in reader.lines(key, kind):
        if line.is_ended:
            size_bytes = line.end
    return pin_prefix(name, reader.prefix(name, size_bytes))


def pin_prefix(name: str, pieces: Iterable[bytes]) -> LedgerPin:
    """The pin of the file ``name`` whose pinned bytes are ``pieces``."""
    size_bytes, sha256 = _measured(pieces)
    return LedgerPin(name=name, size_bytes=size_bytes, sha256=sha256)


def verify_pins(reader: LedgerReader, pins: Iterable[LedgerPin]) -> Iterator[Finding]:
    """Which pinned ledgers were truncated after the checkpoint, or rewritten."""
    for pin in pins:
        place = Location(file=pin.name)
        try:
            if (wrong := _breach(reader, pin)) is not None:
                yield Finding.of("ledger-pin", CorruptError(wrong, place))
        except CkptError as error:
            yield Finding.of("unreadable", error.at(file=pin.name))


def _breach(reader: LedgerReader, pin: LedgerPin) -> str | None:
    try:
        size_bytes, sha256 = _measured(reader.prefix(pin.name, pin.size_bytes))
    except MissingError:
        return (
            f"truncated after checkpoint: the ledger is gone; {pin.size_bytes:,} bytes are pinned"
        )
    if size_bytes < pin.size_bytes:
        return (
            f"truncated after checkpoint: it has {size_bytes:,} bytes; "
            f"{pin.size_bytes:,} are pinned"
        )
    if sha256 != pin.sha256:
        return (
            f"rewritten: its first {size_bytes:,} bytes have sha256 {sha256}, but {pin.sha256} "
            "is pinned"
        )
    return None


def _measured(pieces: Iterable[bytes]) -> tuple[int, str]:
    digest, size_bytes = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size_bytes += len(piece)
    return size_bytes, digest.hexdigest()
