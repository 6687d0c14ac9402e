"""Errors as HTTP replies.  The table of statuses stands here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from participant.core.errors import ParticipantError

__all__ = ["STATUS_OF", "error_response", "json_response"]

STATUS_OF: Final[Mapping[str, int]] = {
    "rollout_id_required": 400,
    "invalid_rollout_id": 400,
    "unauthorized": 401,
    "checkpoint_error": 409,
    "stale_checkpoint": 409,
    "checkpoint_conflict": 409,
    "invalid_phase": 409,
    "deadline_exceeded": 409,
    "stale_attempt": 409,
    "checkpoint_parked": 409,
    "admission_closed": 409,
    "retired": 410,
    "request_too_large": 413,
    "invalid_request": 422,
    "invalid_checkpoint_state": 422,
    "internal_error": 500,
    "checkpoint_coordinator_unavailable": 503,
}


def json_response(body: bytes, status: int = 200) -> Response:
    """A reply of JSON that is spelled already."""
    return Response(body, status, media_type="application/json")


def error_response(error: ParticipantError) -> Response:
    """``{"error": {"code", "detail"}}`` with the status of the code."""
    members = {"error": {"code": error.code, "detail": error.detail}}
    return json_response(msgspec.json.encode(members), STATUS_OF[error.code])
