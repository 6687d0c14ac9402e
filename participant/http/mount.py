"""Puts a participant into a Starlette app, and so into a FastAPI app."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from participant.core.errors import ParticipantError
from participant.hooks import ParticipantHooks
from participant.http.admission import AdmissionMiddleware
from participant.http.replies import error_response
from participant.http.rollout_prefix import RolloutPrefixMiddleware
from participant.http.routes import control_routes
from participant.http.served import ServedCallMiddleware
from participant.runtime.shell import Participant

__all__ = ["check_mountable", "mount"]


def check_mountable(app: Starlette) -> None:
    """Refuse an app that no participant can be put into any more.

    Raises:
        RuntimeError: it has started, or has a participant.
    """
    if app.middleware_stack is not None:
        raise RuntimeError("the app has started; install the participant before it serves")
    installed: list[object] = [middleware.cls for middleware in app.user_middleware]
    if AdmissionMiddleware in installed:
        raise RuntimeError("the app has a participant already: one is installed once")


def mount(app: Starlette, participant: Participant, hooks: ParticipantHooks) -> None:
    """Add the control routes, the middleware, and replies for what the roles refuse.

    The routes come first, so that no catch-all of the server hides them; they are outside
    admission and answer in every phase.  Apps that are mounted in this one by now answer the
    refusals too.
    """
    app.router.routes[0:0] = control_routes(participant)
    _answer_refusals(app)
    app.add_middleware(AdmissionMiddleware, participant=participant, routes=hooks.gated_routes)
    # Added last, so it runs first: what is gated is told by the path without the prefix.
    app.add_middleware(RolloutPrefixMiddleware)
    # And this one last of all, where the server's own middleware has seen the call.
    app.user_middleware.append(Middleware(ServedCallMiddleware, hooks=hooks))


def _answer_refusals(app: Starlette) -> None:
    app.exception_handlers.setdefault(ParticipantError, _refused)
    for route in app.routes:
        if isinstance(route, Mount) and isinstance(route.app, Starlette):
            # It answers every exception by itself: none would ever come out of it.
            _answer_refusals(route.app)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ParticipantError)
    return error_response(error)
