"""What a participant refuses with: the public names of :mod:`participant.core.errors`."""

from __future__ import annotations

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
    StaleAttemptError,
    StaleCheckpointError,
    UnauthorizedError,
)

__all__ = [
    "AdmissionClosedError",
    "CheckpointConflictError",
    "CheckpointFailedError",
    "CheckpointParkedError",
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
    "StaleAttemptError",
    "StaleCheckpointError",
    "UnauthorizedError",
]
