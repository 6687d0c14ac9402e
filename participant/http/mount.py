"""Puts a participant into a Starlette app, and so into a FastAPI app."""

from __future__ import annotations

from starlette.applications import Starlette

from participant.hooks import ParticipantHooks
from participant.http.admission import AdmissionMiddleware
from participant.http.rollout_prefix import RolloutPrefixMiddleware
from participant.http.routes import control_routes
from participant.runtime.shell import Participant

__all__ = ["mount"]


def mount(app: Starlette, participant: Participant, hooks: ParticipantHooks) -> None:
    """Add the control routes and the middleware.

    The routes come first, so that no catch-all of the server hides them; they are outside
    admission and answer in every phase.

    Raises:
        RuntimeError: the app has started.
    """
    app.router.routes[0:0] = control_routes(participant)
    app.add_middleware(AdmissionMiddleware, participant=participant, routes=hooks.gated_routes)
    # Added last, so it runs first: what is gated is told by the path without the prefix.
    app.add_middleware(RolloutPrefixMiddleware)
