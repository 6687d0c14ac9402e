"""Finding out who takes part, and noticing that it is not the same any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from ckptfmt.identity import ParticipantId
from participant.coordination.calls import Failure, Form, ask, check_all, read
from participant.coordination.fleet import Control, Fleet, Member
from participant.coordination.orders import KINDS
from participant.errors import InvalidRequestError
from participant.transport import ControlReply

__all__ = ["check_roll", "discover"]

# At most 3 tries in 60 s.
_TRY_TIMEOUT_S: Final = 16.0
_PAUSES_S: Final = (2.0, 8.0)


class _Status(msgspec.Struct, frozen=True):
    kind: str
    instance: str
    checkpoint_id: str | None


class _Found(msgspec.Struct, frozen=True):
    participant: ParticipantId
    open_id: str | None


async def discover(control: Control, servers: Iterable[str]) -> Fleet:
    """Ask every server who it is; one that answers 404 takes no part.

    A server that cannot be reached is asked three times within a minute.

    Raises:
        CoordinationRetryError: a server is still not reached.
        CoordinationFatalError: a server refuses, answers nonsense or is of an unknown kind;
            two are of one name; or there is no model server.
    """
    asked = tuple(dict.fromkeys(servers))
    answers = dict(
        zip(asked, await asyncio.gather(*(_try(control, s) for s in asked)), strict=True)
    )
    failures = {server: a for server, a in answers.items() if isinstance(a, Failure)}
    found = {server: a for server, a in answers.items() if isinstance(a, _Found)}
    failures |= _clashes(found)
    if not failures and not any(a.participant.kind == "model" for a in found.values()):
        failures["the job"] = Failure("it has no participant of kind model")
    check_all("discover", failures)
    members = [Member(server, answer.participant) for server, answer in found.items()]
    return Fleet(
        members=tuple(sorted(members, key=lambda member: member.participant)),
        bystanders=tuple(server for server, answer in answers.items() if answer is None),
        open_ids=tuple(sorted({a.open_id for a in found.values() if a.open_id is not None})),
    )


async def _try(control: Control, server: str) -> _Found | Failure | None:
    for pause_s in (*_PAUSES_S, None):
        answer = await ask(control, server, "status", None, _TRY_TIMEOUT_S)
        is_lost = isinstance(answer, Failure) and answer.passes
        if pause_s is None or not is_lost:
            break
        await control.clock.sleep_until(control.clock.monotonic() + pause_s)
    return _identify(answer)


def _identify(answer: ControlReply | Failure) -> _Found | Failure | None:
    """Who answered; None where nobody takes part."""
    if isinstance(answer, ControlReply) and answer.status == 404:
        return None
    status = read(answer, Form(_Status))
    if isinstance(status, Failure):
        return status
    if status.kind not in KINDS:
        return Failure(f"it is of the unknown kind {status.kind[:40]!a}")
    try:
        return _Found(_participant(status), status.checkpoint_id)
    except InvalidRequestError as error:
        return Failure(error.detail)


def _participant(status: _Status) -> ParticipantId:
    # Names check themselves, with the errors of ckptfmt, whose base is not imported here.
    try:
        return ParticipantId(status.kind, status.instance)
    except Exception as error:
        raise InvalidRequestError(str(error)) from error


def _clashes(found: dict[str, _Found]) -> dict[str, Failure]:
    # Where disks ignore case, two names that differ in case only share a folder.
    first: dict[str, str] = {}
    clashes = {}
    for server, answer in found.items():
        twin = first.setdefault(answer.participant.folded, server)
        if twin != server:
            clashes[server] = Failure(f"it is {answer.participant}, and so is {twin}")
    return clashes


async def check_roll(control: Control, fleet: Fleet, operation: str, timeout_s: float) -> None:
    """Make sure that those discovered, and nobody else of those asked, take part.

    Raises:
        CoordinationError: one has appeared, vanished, become another, or is not reached.
    """
    expected = {member.server: member.participant for member in fleet.members}
    asked = (*fleet.servers, *fleet.bystanders)
    calls = (ask(control, server, "status", None, timeout_s) for server in asked)
    failures = {}
    for server, answer in zip(asked, await asyncio.gather(*calls), strict=True):
        failure = _changed(expected.get(server), _identify(answer))
        if failure is not None:
            failures[server] = failure
    check_all(operation, failures)


def _changed(expected: ParticipantId | None, now: _Found | Failure | None) -> Failure | None:
    if expected is None:
        if isinstance(now, _Found):
            return Failure(f"{now.participant} has appeared since discovery")
        # What cannot be reached, and took no part, holds nothing that would be missed.
        return None if now is None or now.passes else now
    if isinstance(now, Failure):
        return now
    if now is None:
        return Failure(f"{expected} has vanished since discovery")
    if now.participant != expected:
        return Failure(f"it was {expected} at discovery and is {now.participant}")
    return None
