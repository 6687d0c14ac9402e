"""The error tree of ``ckptfmt``, sorted by what the caller does next.

=====================  ==============================================================
branch                 what to do
=====================  ==============================================================
:class:`RefusedError`  fix the call: nothing was read, nothing was written
:class:`DataError`     do not use what is stored: verify it, salvage it, or go back
:class:`CommitError`   look who won before doing anything else; see each class
:class:`StorageError`  fix the storage or wait, then repeat the same call
=====================  ==============================================================

``code`` is the stable name of a class: it is never renamed, and codes are only
added.  The text is for people and may change.  Every error carries a
:class:`Location`, filled as far as the culprit is known; a caller that knows
more adds it with :meth:`CkptError.at`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

__all__ = [
    "AbortedError",
    "AmbiguousLatestError",
    "CapabilityError",
    "CkptError",
    "CommitError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "CycleError",
    "DataError",
    "DeadlineError",
    "DepthError",
    "DuplicateKeyError",
    "ExistsError",
    "FencedError",
    "IncompleteError",
    "IntegerError",
    "JsonSyntaxError",
    "Location",
    "MissingError",
    "NameRefusedError",
    "RefusedError",
    "RetiredError",
    "RoundTripError",
    "SizeError",
    "StateError",
    "StorageError",
    "StorageFailedError",
    "TornError",
    "TransientError",
    "UnsupportedError",
    "ValueRefusedError",
]


@dataclass(frozen=True, slots=True)
class Location:
    """Where the culprit is.  Fields that are not known are ``None``.

    ``offset`` is in bytes from the start of ``file``; ``block`` and ``ordinal``
    count from 0 within the file; ``pointer`` is an RFC 6901 pointer.
    """

    checkpoint: str | None = None
    participant: str | None = None
    file: str | None = None
    block: int | None = None
    offset: int | None = None
    ordinal: int | None = None
    key: str | None = None
    pointer: str | None = None

    def __str__(self) -> str:
        parts = [
            f"{field.name} {_shown(getattr(self, field.name))}"
            for field in fields(self)
            if getattr(self, field.name) is not None
        ]
        return ", ".join(parts)

    def merged(self, other: Location) -> Location:
        """This location, with what it lacks taken from ``other``."""
        missing = {
            field.name: getattr(other, field.name)
            for field in fields(self)
            if getattr(self, field.name) is None
        }
        return replace(self, **missing)

    def covers(self, other: Location) -> bool:
        """Whether all that ``other`` knows of a place is known here, and the same."""
        return other.merged(self) == self


def _shown(value: str | int) -> str:
    # ascii() keeps control and bidi characters of a damaged file out of terminals and logs.
    return str(value) if isinstance(value, int) else ascii(value)


class CkptError(Exception):
    """Base of every error that ``ckptfmt`` raises on purpose."""

    code: ClassVar[str] = "ckpt_error"

    def __init__(
        self, message: str, location: Location = Location(), *, advice: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.advice = advice

    def at(self, **known: str | int | None) -> Self:
        """Add what is known about the place; what the error already says stays."""
        self.location = self.location.merged(Location(**known))  # type: ignore[arg-type]
        return self

    def __str__(self) -> str:
        where = str(self.location)
        text = f"{self.message} [{where}]" if where else self.message
        return f"{text}; {self.advice}" if self.advice else text


class RefusedError(CkptError):
    """The call cannot be carried out as asked; nothing was read or written."""

    code = "refused"


class ValueRefusedError(RefusedError):
    """A Python value that the format does not carry (bytes, set, datetime, subclasses, ...), or
    a record of another schema than its participant's."""

    code = "value_refused"


class CycleError(ValueRefusedError):
    """A container that holds itself."""

    code = "value_cycle"


class DepthError(ValueRefusedError):
    """More nesting than :data:`ckptfmt.wire.MAX_DEPTH` levels."""

    code = "value_too_deep"


class IntegerError(ValueRefusedError):
    """An integer of more than :data:`ckptfmt.wire.MAX_INTEGER_DIGITS` decimal digits."""

    code = "integer_too_long"


class JsonSyntaxError(RefusedError):
    """Bytes offered as JSON that are not RFC 8259 JSON in UTF-8."""

    code = "json_invalid"


class NameRefusedError(RefusedError):
    """An id, kind, instance, key or file name outside the permitted form."""

    code = "name_refused"


class DuplicateKeyError(RefusedError):
    """A second record with the same key in one participant."""

    code = "duplicate_key"


class SizeError(RefusedError):
    """A record, block or name larger than the format permits."""

    code = "too_large"


class StateError(RefusedError):
    """A call that the object's state does not permit, such as a write after close."""

    code = "invalid_state"


class RetiredError(StateError):
    """A rollout whose ledger was retired: its fence refuses reads and writes."""

    code = "retired"


class ConflictError(RefusedError):
    """A model call that was recorded before with other content."""

    code = "conflict"


class DataError(CkptError):
    """What is stored cannot be used as asked."""

    code = "data_error"


class MissingError(DataError):
    """The object, record or checkpoint is not there."""

    code = "missing"


class IncompleteError(DataError):
    """A checkpoint that was never published: participants without ``checkpoint.json``."""

    code = "incomplete"


class TornError(DataError):
    """A file that ends before its content does."""

    code = "torn"


class CorruptError(DataError):
    """Bytes that are not what was written."""

    code = "corrupt"


class RoundTripError(DataError):
    """A record that, decoded and encoded again, gives other bytes."""

    code = "round_trip"


class UnsupportedError(DataError):
    """A version, feature or schema that this release does not know."""

    code = "unsupported"


class AbortedError(DataError):
    """A name that a tombstone has closed: the commit was given up."""

    code = "aborted"


class AmbiguousLatestError(DataError):
    """Two complete checkpoints of a run have the same sequence: it forked."""

    code = "ambiguous_latest"


class CommitError(CkptError):
    """A commit that did not end as *committed*."""

    code = "commit_error"


class FencedError(CommitError):
    """Another writer has published other content under this name; the text names it."""

    code = "fenced"


class ExistsError(CommitError):
    """The name exists already; its content was not touched."""

    code = "exists"


class CommitUnknownError(CommitError):
    """Whether the commit happened cannot be told yet; nothing may be cleaned up."""

    code = "commit_unknown"


class StorageError(CkptError):
    """The store did not do what was asked; the same call may be repeated later."""

    code = "storage_error"


class StorageFailedError(StorageError):
    """The store failed for a reason to be mended: no space, no permission, an I/O error."""

    code = "storage_failed"


class CapabilityError(StorageError):
    """The store lacks something the format needs, such as create-only."""

    code = "capability_missing"


class TransientError(StorageError):
    """The store failed in a way that may pass; repeat."""

    code = "transient"


class DeadlineError(StorageError):
    """The deadline passed before the work was done."""

    code = "deadline_exceeded"
