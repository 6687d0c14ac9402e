"""The errors of ``participant``.

What a participant refuses with are the public names of :mod:`participant.core.errors`;
what a controller's call ends with is :class:`CoordinationError`, sorted by what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from participant.core.errors import (
    AdmissionClosedError,
    CheckpointConflictError,
    CheckpointFailedError,
    CheckpointParkedError,
    CoordinatorUnavailableError,
    DeadlineExceededError,
    FailedError,
    InternalError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    InvalidRequestError,
    InvalidRolloutIdError,
    NotNowError,
    ParticipantError,
    RequestError,
    RequestTooLargeError,
    RolloutIdRequiredError,
    RolloutRetiredError,
    StaleAttemptError,
    StaleCheckpointError,
    UnauthorizedError,
)

__all__ = [
    "AdmissionClosedError",
    "CheckpointConflictError",
    "CheckpointFailedError",
    "CheckpointParkedError",
    "CoordinationError",
    "CoordinationFatalError",
    "CoordinationRetryError",
    "CoordinationUnknownError",
    "CoordinatorUnavailableError",
    "DeadlineExceededError",
    "FailedError",
    "InternalError",
    "InvalidCheckpointStateError",
    "InvalidPhaseError",
    "InvalidRequestError",
    "InvalidRolloutIdError",
    "NotNowError",
    "ParticipantError",
    "RequestError",
    "RequestTooLargeError",
    "RolloutIdRequiredError",
    "RolloutRetiredError",
    "StaleAttemptError",
    "StaleCheckpointError",
    "UnauthorizedError",
]


class CoordinationError(Exception):
    """An operation of a controller did not succeed everywhere.

    ``operation`` is its name, ``failures`` says of each culprit, by its server's address,
    what went wrong there.
    """

    code: ClassVar[str] = "coordination_error"

    def __init__(self, operation: str, failures: Mapping[str, str]) -> None:
        listed = "; ".join(f"{server}: {text}" for server, text in sorted(failures.items()))
        super().__init__(f"{operation} failed: {listed}")
        self.operation = operation
        self.failures = dict(failures)


class CoordinationRetryError(CoordinationError):
    """No answer, not ready, or refused for now.

    Repeat under the same id, or resume and take another checkpoint later.
    """

    code = "coordination_retry"


class CoordinationUnknownError(CoordinationRetryError):
    """It cannot be told whether ``checkpoint.json`` was published.

    Repeat the publication, or close it by ``abandon``, before anything is resumed.
    """

    code = "coordination_unknown"


class CoordinationFatalError(CoordinationError):
    """A malformed reply, a refusal of the request, or parts that do not fit together.

    It does not get better by itself: resume, and mend what the text names.
    """

    code = "coordination_fatal"
