"""Addresses: ``kind/instance/record-key#/json/pointer``, percent-encoded.

A record's key may hold a slash itself (``capture_key/sub-key``) and is percent-encoded in
the checkpoint already, so it stands in an address as it is.  The pointer is RFC 6901 and
addresses the stored JSON.  What is printed can be pasted back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from ckptfmt.errors import Location, MissingError, NameRefusedError
from ckptfmt.exact import pointer
from ckptfmt.identity import ParticipantId

__all__ = ["Address", "Selection", "address_of", "join_pointer", "parse", "select"]

# Nothing that a shell, a terminal or this form could take for something else.
_SAFE: Final = "/~-._"
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Address:
    """An address as it was given: its path's segments, and the pointer's tokens, if any."""

    segments: tuple[str, ...]
    tokens: tuple[str, ...] | None = None

    def __str__(self) -> str:
        path = "/".join(self.segments)
        return path if self.tokens is None else path + join_pointer(self.tokens)


def join_pointer(tokens: Iterable[str | int]) -> str:
    """``#`` and the pointer, percent-encoded; lone surrogates of a key included."""
    return "#" + quote(pointer.join(tokens).encode(errors="surrogatepass"), safe=_SAFE)


def parse(text: str) -> Address:
    """Read an address.

    Raises:
        NameRefusedError: it is malformed.
    """
    path, mark, fragment = text.partition("#")
    if _BAD_PERCENT.search(text):
        raise NameRefusedError(
            f"address {text[:200]!a} has a % that no two hex digits follow",
            advice="write % itself as %25",
        )
    # Keys are encoded with capitals; either is the same address.
    path = _PERCENT.sub(lambda escape: escape[0].upper(), path)
    segments = tuple(path.strip("/").split("/"))
    if not all(segments):
        raise NameRefusedError(
            f"address {text[:200]!a} has an empty segment",
            advice="an address is kind/instance/record-key#/json/pointer",
        )
    return Address(segments, _tokens(fragment) if mark else None)


def _tokens(fragment: str) -> tuple[str, ...]:
    try:
        # What the command line holds beside UTF-8 came in as lone surrogates.
        decoded = unquote_to_bytes(fragment.encode(errors="surrogateescape"))
        return tuple(pointer.split(decoded.decode(errors="surrogatepass")))
    except ValueError as error:
        raise NameRefusedError(
            f"{fragment[:200]!a} is no JSON pointer",
            advice="it is empty or begins with a slash; in names ~ is ~0, and / is ~1",
        ) from error


@dataclass(frozen=True, slots=True)
class Selection:
    """What an address names in a checkpoint: participants, and a record's key or its beginning."""

    participants: tuple[ParticipantId, ...]
    key: str | None = None
    tokens: tuple[str, ...] | None = None

    def matches(self, key: str) -> bool:
        """Whether a record is meant: by its whole key, or by its episode."""
        return self.key is None or key == self.key or key.startswith(self.key + "/")


def select(address: Address, participants: Iterable[ParticipantId]) -> Selection:
    """What ``address`` names among ``participants``.

    ``kind/instance`` comes first.  A kind alone means all its instances.  What only one
    participant can be may be shortened: a kind with one instance, or an instance's name.

    Raises:
        MissingError: nothing has that name; it tells what there is.
        NameRefusedError: a short name could mean several.
    """
    known = sorted(participants)
    first, *rest = address.segments
    exact = [item for item in known if rest and (item.kind, item.instance) == (first, rest[0])]
    if exact:
        return Selection(tuple(exact), _key(rest[1:]), address.tokens)
    short = [item for item in known if item.kind == first]
    if not short:
        short = [item for item in known if item.instance == first]
    if not short:
        raise MissingError(
            f"the checkpoint has no participant that {str(address)[:200]!a} could name",
            advice=f"there are {_listed(known)}",
        )
    if len(short) > 1 and (rest or short[0].kind != first):
        raise NameRefusedError(
            f"{str(address)[:200]!a} could mean several participants",
            advice=f"name one of {_listed(short)}",
        )
    return Selection(tuple(short), _key(rest), address.tokens)


def _key(segments: list[str]) -> str | None:
    return "/".join(segments) or None


def _listed(participants: list[ParticipantId]) -> str:
    shown = ", ".join(map(str, participants[:10]))
    more = len(participants) - 10
    return (shown or "none") + (f" and {more:,} more" if more > 0 else "")


def address_of(location: Location) -> str | None:
    """The address of the place that an error or a finding names, as far as it goes."""
    if location.participant is None or location.key is None:
        return location.participant
    record = f"{location.participant}/{location.key}"
    try:
        tokens = pointer.split(location.pointer or "")
    except ValueError:
        return record
    return record + join_pointer(tokens) if tokens else record
