"""What an error of the library means for the exit code, and how it is told."""

from __future__ import annotations

from ckptfmt.errors import (
    AbortedError,
    AmbiguousLatestError,
    CkptError,
    CommitError,
    CommitUnknownError,
    DeadlineError,
    ExistsError,
    IncompleteError,
    Location,
    MissingError,
    RefusedError,
    StorageError,
    TransientError,
    UnsupportedError,
)
from inspector.exit_codes import Exit

__all__ = ["code_of_damage", "exit_code_of", "location_members"]


def exit_code_of(error: CkptError) -> Exit:
    """The code for an error that ends a command."""
    match error:
        case TransientError() | DeadlineError() | CommitUnknownError():
            return Exit.TRANSIENT
        case RefusedError() | ExistsError():
            return Exit.USAGE
        case CommitError():
            return Exit.NEGATIVE
        case (
            StorageError()
            | MissingError()
            | IncompleteError()
            | AbortedError()
            | UnsupportedError()
            | AmbiguousLatestError()
        ):
            return Exit.UNAVAILABLE
        case _:
            return Exit.INCOMPLETE


def code_of_damage(error: CkptError) -> Exit:
    """The code for an error about a part, after which the command goes on.

    What is missing inside a checkpoint weighs as much as what is damaged.
    """
    return exit_code_of(error) if isinstance(error, StorageError) else Exit.INCOMPLETE


def location_members(location: Location) -> dict[str, str | int]:
    """What is known of a place, as JSON members."""
    return {
        name: value
        for name in Location.__dataclass_fields__
        if (value := getattr(location, name)) is not None
    }
