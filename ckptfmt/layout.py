"""Every file name in a checkpoint: built and parsed here only.

Names are relative POSIX paths within a store.  A checkpoint's folder may have any
name; the folders below it are named after the participant that owns them.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

from ckptfmt.errors import NameRefusedError
from ckptfmt.identity import ParticipantId
from ckptfmt.store.names import PROBE_NAME, final_name, join_name
from ckptfmt.wire import TOKEN_BYTES

__all__ = [
    "CHECKPOINT_NAME",
    "LATEST_NAME",
    "MANIFEST_NAME",
    "DataName",
    "Folder",
    "is_leftover",
    "is_own",
    "new_token",
]

CHECKPOINT_NAME: Final = "checkpoint.json"
MANIFEST_NAME: Final = "manifest.json"
LATEST_NAME: Final = "LATEST"

_DATA: Final = re.compile(r"records-(?P<token>[0-9a-f]{24})-(?P<number>[0-9]{3,9})\.jsonl\.zst")


def new_token() -> str:
    """96 random bits in hex: one for each attempt to write a participant or an aggregate."""
    return secrets.token_hex(TOKEN_BYTES)


@dataclass(frozen=True, slots=True)
class DataName:
    """The name of a data object: the attempt that wrote it, and its number from 0."""

    token: str
    number: int

    def __str__(self) -> str:
        return f"records-{self.token}-{self.number:03}.jsonl.zst"

    @classmethod
    def parse(cls, name: str) -> DataName | None:
        """The parts of ``name``; None if it is not the name of a data object."""
        match = _DATA.fullmatch(name)
        if match is None:
            return None
        parsed = cls(match["token"], int(match["number"]))
        return parsed if str(parsed) == name else None


@dataclass(frozen=True, slots=True)
class Folder:
    """A checkpoint's place in a store; ``prefix`` is its folder, ``""`` the store itself."""

    prefix: str = ""

    @property
    def aggregate(self) -> str:
        """The name of ``checkpoint.json``."""
        return join_name(self.prefix, CHECKPOINT_NAME)

    def kind(self, kind: str) -> str:
        """The folder of all participants of a kind."""
        return join_name(self.prefix, kind)

    def participant(self, participant: ParticipantId) -> str:
        """The folder of a participant."""
        return join_name(self.prefix, str(participant))

    def manifest(self, participant: ParticipantId) -> str:
        """The name of a participant's manifest."""
        return f"{self.participant(participant)}/{MANIFEST_NAME}"

    def data(self, participant: ParticipantId, name: DataName | str) -> str:
        """The name of a data object.

        Raises:
            NameRefusedError: ``name`` comes from a manifest and names anything else.
        """
        if isinstance(name, str) and DataName.parse(name) is None:
            raise NameRefusedError(f"{name[:80]!a} is not the name of a data object")
        return f"{self.participant(participant)}/{name}"


def is_own(name: str) -> bool:
    """Whether a file of this name in a participant's folder was put there by a writer of ours."""
    return name == MANIFEST_NAME or DataName.parse(name) is not None or is_leftover(name)


def is_leftover(name: str) -> bool:
    """Whether ``name`` is one that only an unfinished write leaves behind."""
    return final_name(name) in (CHECKPOINT_NAME, MANIFEST_NAME, LATEST_NAME, PROBE_NAME)
