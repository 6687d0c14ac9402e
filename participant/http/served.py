"""ASGI middleware next to the server's code: what happens round a call that was admitted."""

from __future__ import annotations

import contextlib
import functools
import inspect

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from participant.core.errors import ParticipantError
from participant.core.steps import StepMode
from participant.hooks import ParticipantHooks
from participant.http.replies import error_response
from participant.runtime.calls import ServedCall, current_call

__all__ = ["ServedCallMiddleware"]


class ServedCallMiddleware:
    """Tells the hooks of gated calls, and holds replies back while a checkpoint is open.

    Stands inside the server's own middleware, so that the hooks see what that found out:
    the session of a cookie, say.
    """

    def __init__(self, app: ASGIApp, hooks: ParticipantHooks) -> None:
        self._app = app
        self._hooks = hooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        call = current_call.get()
        if call is None:
            await self._app(scope, receive, send)
            return
        call.scope = scope
        # Asked when it is retired: by then the router has noted whom it called.
        call.execution.is_in_thread = lambda: _is_in_thread(scope)
        reply = _Reply(call, self._hooks, receive, send)
        async with reply.replay:
            await reply.begin()
            try:
                await self._hooks.call_begins(call)
                await self._app(scope, receive, reply.send)
            except Exception:
                call.has_failed = True
                # A failure is an answer too: it must not leave either before resume.
                await reply.hold()
                raise
            finally:
                await self._hooks.call_ends(call)


def _is_in_thread(scope: Scope) -> bool:
    """Whether a plain function serves the request, for which Starlette takes a thread."""
    endpoint = scope.get("endpoint")
    if inspect.isclass(endpoint):
        endpoint = getattr(endpoint, scope["method"].lower(), None)
    while isinstance(endpoint, functools.partial):
        endpoint = endpoint.func
    return inspect.isroutine(endpoint) and not inspect.iscoroutinefunction(endpoint)


class _Reply:
    """The reply of one call; ``replay`` is the step that no checkpoint waits for."""

    def __init__(
        self, call: ServedCall, hooks: ParticipantHooks, receive: Receive, send: Send
    ) -> None:
        self._call = call
        self._hooks = hooks
        self._receive = receive
        self._send = send
        self._was_held = False
        self._is_refused = False
        self.replay = contextlib.AsyncExitStack()

    async def begin(self) -> None:
        """The call runs."""
        if self._call.route.replays:
            step = self._call.execution.step(StepMode.REPLAY)
            await self.replay.enter_async_context(step)

    async def send(self, message: Message) -> None:
        """Pass a message on; the first one is held while a checkpoint is open."""
        if message["type"] == "http.response.start":
            await self.hold()
            try:
                added = await self._hooks.call_replies(self._call, message["status"])
            except ParticipantError as error:
                # Answered from here: the server's own code has replied as it sees it.
                self._is_refused = True
                await error_response(error)(dict(self._call.scope), self._receive, self._send)
                return
            message.setdefault("headers", [])
            MutableHeaders(scope=message).update(added)
        if not self._is_refused:
            await self._send(message)

    async def hold(self) -> None:
        """Park here while a checkpoint is open; once a call."""
        if self._was_held:
            return
        self._was_held = True
        await self.replay.aclose()
        route, execution = self._call.route, self._call.execution
        if route.holds_reply or route.replays:
            await execution.boundary(execution.boundary_state)
