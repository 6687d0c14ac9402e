"""The error tree of ``participant``, sorted by what the caller does next.

============================  =======================================================
branch                        what to do
============================  =======================================================
:class:`RequestError`         fix the request: nothing was done
:class:`NotNowError`          the request is fine, the state is not: see each class
:class:`FailedError`          it was tried and failed: repeat, resume, or look at storage
============================  =======================================================

``code`` is what stands in the reply.  Codes are never renamed, and only added.
"""

from __future__ import annotations

from typing import ClassVar

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
    "RolloutRetiredError",
    "StaleAttemptError",
    "StaleCheckpointError",
    "UnauthorizedError",
]


class ParticipantError(Exception):
    """Base of every error that a participant answers with."""

    code: ClassVar[str] = "checkpoint_error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RequestError(ParticipantError):
    """The request itself is wrong."""

    code = "invalid_request"


class InvalidRequestError(RequestError):
    """The body is malformed, or a member is unknown, missing or of the wrong form."""

    code = "invalid_request"


class RequestTooLargeError(RequestError):
    """The body has more bytes than the settings permit."""

    code = "request_too_large"


class UnauthorizedError(RequestError):
    """The bearer token is missing or wrong."""

    code = "unauthorized"


class RolloutIdRequiredError(RequestError):
    """Work that must belong to an episode names none."""

    code = "rollout_id_required"


class InvalidRolloutIdError(RequestError):
    """The rollout id or capture key is malformed or reserved."""

    code = "invalid_rollout_id"


class NotNowError(ParticipantError):
    """The participant's state does not permit it."""

    code = "invalid_phase"


class InvalidPhaseError(NotNowError):
    """The phase does not permit the command; nothing was changed."""

    code = "invalid_phase"


class CheckpointConflictError(NotNowError):
    """Another checkpoint is open, or this one with other arguments."""

    code = "checkpoint_conflict"


class StaleCheckpointError(NotNowError):
    """The checkpoint id was resumed here before; it is spent."""

    code = "stale_checkpoint"


class StaleAttemptError(NotNowError):
    """The attempt was retired, or a later one continues it; it will not run again."""

    code = "stale_attempt"


class RolloutRetiredError(NotNowError):
    """The rollout's capture ledger was retired; that is not an empty ledger."""

    code = "retired"


class CheckpointParkedError(NotNowError):
    """A first request for the same work waits or runs; this one is not carried out."""

    code = "checkpoint_parked"


class AdmissionClosedError(NotNowError):
    """As many calls wait for resume as the settings permit."""

    code = "admission_closed"


class FailedError(ParticipantError):
    """It was tried, and did not succeed."""

    code = "checkpoint_error"


class CheckpointFailedError(FailedError):
    """Storage failed; the same command may be repeated under the same id."""

    code = "checkpoint_error"


class DeadlineExceededError(FailedError):
    """The deadline passed first; a repeat waits for the work that still runs."""

    code = "deadline_exceeded"


class InvalidCheckpointStateError(FailedError):
    """What is stored, or was to be stored, is missing, corrupt, foreign or no record."""

    code = "invalid_checkpoint_state"


class CoordinatorUnavailableError(FailedError):
    """The server's main process, which owns the participant, does not answer."""

    code = "checkpoint_coordinator_unavailable"


class InternalError(FailedError):
    """A defect of this server; its log says more."""

    code = "internal_error"
