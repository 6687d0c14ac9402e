"""ASGI middleware that sends the gated routes of a server through admission.

It stands on the outside, so that a call that waits has cost nothing; what belongs next to
the server's own code stands in :mod:`participant.http.served`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ckptfmt.identity import EpisodeId
from participant.attribution import current_episode
from participant.core.errors import (
    AdmissionClosedError,
    ParticipantError,
    RequestTooLargeError,
    RolloutIdRequiredError,
)
from participant.hooks import GatedRoute
from participant.http.ledger_wire import LEDGER_PREFIX
from participant.http.replies import error_response
from participant.http.rollout_prefix import route_path
from participant.runtime.calls import ServedCall, current_call
from participant.runtime.shell import Participant

__all__ = ["MAX_WAITING_BODY_BYTES", "AdmissionMiddleware"]

MAX_WAITING_BODY_BYTES: Final = 256 * 1024 * 1024
"""How large the body of a gated call may be: it is read in full, since the call may wait."""

_GONE: Final = AdmissionClosedError("the client went away before its call ran; it did not run")
_CONTROL: Final = ("/ng-control/", LEDGER_PREFIX + "/")


class AdmissionMiddleware:
    """Calls of gated routes wait while a checkpoint is open, and end when they are retired.

    Probes (GET, HEAD, OPTIONS), control routes and every other route pass.
    """

    def __init__(
        self, app: ASGIApp, participant: Participant, routes: Sequence[GatedRoute]
    ) -> None:
        self._app = app
        self._participant = participant
        self._routes = tuple(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        route = self._route(scope)
        if route is None:
            with _serving(None):
                await self._app(scope, receive, send)
            return
        call = _GatedCall(receive, send)
        try:
            episode = current_episode.get()
            if episode is None and route.requires_rollout:
                raise RolloutIdRequiredError(
                    f"{scope['path']} belongs to an episode: call it under /ng-rollout/<key>/"
                )
            await call.read()
            await self._run(scope, call, route, episode)
        except ParticipantError as error:
            if not call.has_started:
                await error_response(error)(scope, receive, send)
        except _ClientGoneError:
            # Nobody reads it; but middleware outside takes no reply for a defect.
            with contextlib.suppress(OSError):
                await error_response(_GONE)(scope, receive, send)

    def _route(self, scope: Scope) -> GatedRoute | None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        path = route_path(scope)
        if path.startswith(_CONTROL):
            return None
        return next((r for r in self._routes if path.endswith(r.suffix)), None)

    async def _run(
        self, scope: Scope, call: _GatedCall, route: GatedRoute, episode: EpisodeId | None
    ) -> None:
        key = f"{route.suffix} of {episode.capture_key}" if episode and route.is_single else None
        async with contextlib.AsyncExitStack() as stack:
            entering = stack.enter_async_context(self._participant.admission.enter(episode, key))
            watch = None if route.is_cleanup else call.watch()
            try:
                execution = await entering
            except asyncio.CancelledError:
                await call.end_if_gone()
                raise
            finally:
                await call.unwatch(watch)
            await call.end_if_gone()
            if route.is_cleanup:
                # Its caller sends it once; cut short by a retire it would be half done.
                stack.enter_context(execution.finishing())
            with _serving(ServedCall(route, episode, execution, scope)):
                await self._app(scope, call.receive, call.send)


@contextlib.contextmanager
def _serving(call: ServedCall | None) -> Iterator[None]:
    # Set for other requests too: one may be sent in the process while another is served.
    token = current_call.set(call)
    try:
        yield
    finally:
        current_call.reset(token)


class _ClientGoneError(Exception):
    """The client went away while its call waited."""


class _GatedCall:
    """The two ends of one call: its body read ahead, and whether its reply has started."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._messages: list[Message] = []
        self._task = asyncio.current_task()
        self._is_gone = False
        self.has_started = False

    async def read(self) -> None:
        """Read the whole body, so that nothing of it is lost while the call waits.

        Raises:
            RequestTooLargeError: it is over the limit.
            _ClientGoneError: the client went away before it was here.
        """
        size = 0
        more = True
        while more:
            message = await self._receive()
            self._messages.append(message)
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size > MAX_WAITING_BODY_BYTES:
                raise RequestTooLargeError(f"a call has at most {MAX_WAITING_BODY_BYTES:,} bytes")

    def watch(self) -> asyncio.Task[None]:
        """Drop the call if its client goes away before it runs."""
        return asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        message = await self._receive()
        self._messages.append(message)
        if message["type"] == "http.disconnect" and self._task is not None:
            self._is_gone = True
            self._task.cancel()

    async def unwatch(self, watch: asyncio.Task[None] | None) -> None:
        """The call runs, or was turned away: from here on the server sees its client itself."""
        if watch is not None and not watch.done():
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def end_if_gone(self) -> None:
        """Tell a dropped call from a server that shuts down.

        Raises:
            _ClientGoneError: the client went away.
        """
        if self._is_gone and self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # Where the cancellation was not delivered yet.
            self._task.uncancel()
            raise _ClientGoneError

    async def receive(self) -> Message:
        """The body again, then whatever comes."""
        return self._messages.pop(0) if self._messages else await self._receive()

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        self.has_started |= message["type"] == "http.response.start"
        await self._send(message)
