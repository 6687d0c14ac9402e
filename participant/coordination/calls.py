"""One control call and its reply, and a walk over all servers in an operation's order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from ckptfmt.identity import EpisodeId
from participant.coordination.fleet import Control, Fleet
from participant.coordination.orders import ORDERS
from participant.core import errors
from participant.core.messages import EpisodeRef
from participant.errors import CoordinationError, CoordinationFatalError, CoordinationRetryError
from participant.transport import ControlReply, MalformedReplyError, TransportError

__all__ = [
    "REPLY_GRACE_S",
    "Answers",
    "Failure",
    "Form",
    "ask",
    "ask_all",
    "check_all",
    "episode_refs",
    "read",
    "shown",
    "walk",
]

REPLY_GRACE_S: Final = 5.0
"""How long after its deadline a call's reply is awaited."""

_MAX_SHOWN: Final = 1000

# What a participant refuses or fails with for now; every other code is there to stay.
_PASSING: Final = frozenset(
    kind.code
    for kind in (
        errors.AdmissionClosedError,
        errors.CheckpointConflictError,
        errors.CheckpointFailedError,
        errors.CheckpointParkedError,
        errors.CoordinatorUnavailableError,
        errors.DeadlineExceededError,
        errors.InternalError,
        errors.InvalidPhaseError,
        errors.StaleAttemptError,
        errors.StaleCheckpointError,
    )
)

_logger = logging.getLogger(__name__)

_Reply = TypeVar("_Reply")


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong with one server; ``passes`` if it may be otherwise later."""

    text: str
    passes: bool = False


@dataclass(frozen=True, slots=True)
class Form(Generic[_Reply]):
    """What a reply has to be: a type, and what that cannot say.

    ``complaint`` tells what is wrong with a reply of that type, None for nothing.
    """

    type: type[_Reply]
    complaint: Callable[[_Reply], str | None] = lambda reply: None


@dataclass(frozen=True, slots=True)
class Answers(Generic[_Reply]):
    """The replies and failures of an operation, by server."""

    replies: dict[str, _Reply] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)

    def add(self, server: str, answer: _Reply | Failure) -> None:
        """Note the answer of a server."""
        if isinstance(answer, Failure):
            self.failures[server] = answer
        else:
            self.replies[server] = answer

    def require(self, operation: str) -> dict[str, _Reply]:
        """The replies, if there are no failures.

        Raises:
            CoordinationError: there are.
        """
        check_all(operation, self.failures)
        return self.replies


def check_all(operation: str, failures: Mapping[str, Failure]) -> None:
    """Raise what the failures come to, if there are any.

    Raises:
        CoordinationRetryError: all of them may pass.
        CoordinationFatalError: one of them does not.
    """
    if not failures:
        return
    kind: type[CoordinationError] = CoordinationFatalError
    if all(failure.passes for failure in failures.values()):
        kind = CoordinationRetryError
    raise kind(operation, {server: failure.text for server, failure in failures.items()})


def shown(text: object) -> str:
    """Text of a server, fit for a log or a terminal."""
    whole = str(text)
    short = whole if len(whole) <= _MAX_SHOWN else f"{whole[:_MAX_SHOWN]}…"
    return short if short.isprintable() else ascii(short)


def episode_refs(episodes: Iterable[EpisodeId]) -> list[dict[str, Any]]:
    """Episodes as they travel, sorted, each once."""
    return [msgspec.to_builtins(EpisodeRef.of(episode)) for episode in sorted(set(episodes))]


async def ask(
    control: Control,
    server: str,
    command: str,
    members: Mapping[str, Any] | None,
    timeout_s: float,
) -> ControlReply | Failure:
    """Send one call; whatever becomes of it is the answer."""
    try:
        return await control.transport.call(server, command, members, timeout_s)
    except MalformedReplyError as error:
        return Failure(shown(error))
    except TransportError as error:
        return Failure(shown(error), passes=True)
    except Exception as error:
        # One server with an address that nobody can call must not keep others closed.
        _logger.exception("the transport failed on %s of %s", command, server)
        return Failure(f"the transport failed with {type(error).__name__}")


def read(answer: ControlReply | Failure, form: Form[_Reply]) -> _Reply | Failure:
    """The reply in its form, or what is wrong with it."""
    if isinstance(answer, Failure):
        return answer
    if answer.status != 200:
        return _refusal(answer)
    try:
        reply = msgspec.convert(answer.members, type=form.type)
    except msgspec.ValidationError as error:
        return Failure(f"the reply is malformed: {shown(error)}")
    complaint = form.complaint(reply)
    return reply if complaint is None else Failure(complaint)


def _refusal(answer: ControlReply) -> Failure:
    error = answer.members.get("error")
    if not isinstance(error, Mapping):
        text = f"it answers {answer.status}, and not as a participant does"
        return Failure(text, passes=answer.status >= 500)
    code = str(error.get("code"))
    return Failure(shown(f"{code}: {error.get('detail')}"), passes=code in _PASSING)


async def ask_all(
    control: Control,
    servers: Iterable[str],
    command: str,
    members: Mapping[str, Any],
    ends_at: float,
    form: Form[_Reply],
) -> Answers[_Reply]:
    """Send a command to all servers at once and await every answer.

    ``ends_at`` is the deadline on the controller's monotonic clock.  On the wire it is a
    wall time, told anew for each call: a clock that was set meanwhile moves no deadline.
    """

    async def one(server: str) -> tuple[str, _Reply | Failure]:
        left_s = ends_at - control.clock.monotonic()
        body = {**members, "deadline_ts": control.clock.wall() + left_s}
        answer = await ask(control, server, command, body, max(left_s, 0.0) + REPLY_GRACE_S)
        return server, read(answer, form)

    answers: Answers[_Reply] = Answers()
    for server, answer in await asyncio.gather(*map(one, servers)):
        answers.add(server, answer)
    return answers


async def walk(
    control: Control,
    fleet: Fleet,
    operation: str,
    members: Mapping[str, Any],
    within_s: float,
    form: Form[_Reply],
    *,
    command: str | None = None,
    succeeded: Callable[[_Reply], bool] = lambda reply: True,
) -> Answers[_Reply]:
    """Ask the fleet stage by stage, as the operation's order says; one deadline for all.

    ``succeeded`` tells whether a good reply is a success that the next stage can build on.
    """
    ends_at = control.clock.monotonic() + within_s
    order = ORDERS[operation]
    answers: Answers[_Reply] = Answers()
    for kinds in order.stages:
        stage = await ask_all(
            control, fleet.of(kinds), command or operation, members, ends_at, form
        )
        answers.replies.update(stage.replies)
        answers.failures.update(stage.failures)
        is_through = not stage.failures and all(map(succeeded, stage.replies.values()))
        if order.stops and not is_through:
            break
    return answers
