"""Names: episodes and their capture keys, checkpoint ids, participants, record keys.

Everything that becomes part of a path is checked here, with ``fullmatch`` (a
``$`` would let a trailing newline through), before any path is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from ckptfmt.errors import NameRefusedError
from ckptfmt.wire import MAX_KEY_BYTES, MAX_NAME_CHARS

__all__ = [
    "MAX_CAPTURE_KEY_BYTES",
    "EpisodeId",
    "ParticipantId",
    "check_name",
    "record_key",
]

MAX_CAPTURE_KEY_BYTES: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPT_SUFFIX: Final = re.compile(r"(?P<rollout>.*)-a(?P<attempt>[1-9][0-9]*)", re.DOTALL)
# An attempt is a count of restarts; 2**63 keeps it an integer for every reader.
_MAX_ATTEMPT: Final = 2**63 - 1


def check_name(name: object, what: str) -> str:
    """Return ``name`` if it may stand as one path segment; ``what`` names it in the error.

    Used for kinds, instances and checkpoint ids: ``[A-Za-z0-9][A-Za-z0-9._-]*``, at
    most 128 characters.

    Raises:
        NameRefusedError: it may not.
    """
    if type(name) is not str or _NAME.fullmatch(name) is None:
        raise NameRefusedError(
            f"{what} {_quoted(name)} is not a letter or digit followed by letters, digits, "
            "'.', '_' or '-'"
        )
    if len(name) > MAX_NAME_CHARS:
        raise NameRefusedError(f"{what} {_quoted(name)} is longer than {MAX_NAME_CHARS} characters")
    return name


def _quoted(name: object) -> str:
    if not isinstance(name, (str, int, float, bytes)) or (type(name) is int and abs(name) >> 64):
        return f"of type {type(name).__qualname__}"
    text = ascii(name)
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, slots=True, order=True)
class EpisodeId:
    """One attempt at one rollout.

    ``rollout_id`` fullmatches ``[A-Za-z0-9][A-Za-z0-9._-]*`` and does not end in
    ``-a<N>`` (N from 1, no leading zero): that suffix spells an attempt in the
    capture key.  ``attempt`` counts the continuations after a restore, from 0.

    Raises:
        NameRefusedError: the rollout id or the attempt is not of that form.
    """

    rollout_id: str
    attempt: int = 0

    def __post_init__(self) -> None:
        # Wire data arrives here unchecked, whatever the annotations promise.
        rollout_id: object = self.rollout_id
        attempt: object = self.attempt
        if type(rollout_id) is not str or _NAME.fullmatch(rollout_id) is None:
            raise NameRefusedError(f"rollout id {_quoted(rollout_id)} is malformed")
        if _ATTEMPT_SUFFIX.fullmatch(rollout_id):
            raise NameRefusedError(
                f"rollout id {_quoted(rollout_id)} ends like an attempt (-a<N>), which is reserved"
            )
        if type(attempt) is not int or not 0 <= attempt <= _MAX_ATTEMPT:
            raise NameRefusedError(
                f"attempt {_quoted(attempt)} of {_quoted(rollout_id)} is not a whole number from 0"
            )

    @property
    def capture_key(self) -> str:
        """``rollout_id`` at attempt 0, else ``rollout_id-a<attempt>``."""
        return self.rollout_id if self.attempt == 0 else f"{self.rollout_id}-a{self.attempt}"

    @classmethod
    def from_capture_key(cls, key: str) -> EpisodeId:
        """The inverse of :attr:`capture_key`.

        ``x-a0`` and ``x-a01`` are plain ids at attempt 0; ``x-a1-a2`` is refused.

        Raises:
            NameRefusedError: the key is malformed.
        """
        if type(key) is not str:
            raise NameRefusedError(f"capture key {_quoted(key)} is not a string")
        match = _ATTEMPT_SUFFIX.fullmatch(key)
        if match is None:
            return cls(key)
        digits = match["attempt"]
        if len(digits) > len(str(_MAX_ATTEMPT)):
            raise NameRefusedError(f"capture key {_quoted(key)} has an attempt out of range")
        return cls(match["rollout"], int(digits))

    def check_length(self) -> EpisodeId:
        """Return self if the capture key fits a file name (200 bytes).

        Raises:
            NameRefusedError: it does not.
        """
        if len(self.capture_key) > MAX_CAPTURE_KEY_BYTES:
            raise NameRefusedError(
                f"capture key {_quoted(self.capture_key)} is longer than "
                f"{MAX_CAPTURE_KEY_BYTES} bytes"
            )
        return self

    @property
    def continuation(self) -> EpisodeId:
        """The attempt that continues this one after a restore."""
        return EpisodeId(self.rollout_id, self.attempt + 1)

    def covers(self, other: EpisodeId) -> bool:
        """Whether a retire of this attempt also retires ``other``: same rollout, not later."""
        return self.rollout_id == other.rollout_id and other.attempt <= self.attempt


@dataclass(frozen=True, slots=True, order=True)
class ParticipantId:
    """A server that takes part in checkpoints: its kind and its instance name.

    Raises:
        NameRefusedError: kind or instance may not stand as a path segment.
    """

    kind: str
    instance: str

    def __post_init__(self) -> None:
        check_name(self.kind, "kind")
        check_name(self.instance, "instance")

    def __str__(self) -> str:
        return f"{self.kind}/{self.instance}"

    @property
    def folded(self) -> str:
        """For comparison where disks ignore case: equal for participants that would clash."""
        return str(self).casefold()


def record_key(episode_id: EpisodeId, sub_key: str | None = None) -> str:
    """The key of a record: ``capture_key`` or ``capture_key/sub-key``.

    The sub-key (a session id, say) is percent-encoded as UTF-8 outside
    ``[A-Za-z0-9._-]``, so that a key has one slash at most and never a control
    character.

    Raises:
        NameRefusedError: the sub-key is no Unicode text, or the key is over 1,024 bytes.
    """
    key = episode_id.capture_key
    if sub_key is not None:
        try:
            key += "/" + quote(sub_key, safe="").replace("~", "%7E")
        except UnicodeEncodeError:
            raise NameRefusedError(f"sub-key {_quoted(sub_key)} holds a lone surrogate") from None
    if len(key) > MAX_KEY_BYTES:
        raise NameRefusedError(f"record key {_quoted(key)} is longer than {MAX_KEY_BYTES} bytes")
    return key
