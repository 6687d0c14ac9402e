"""Servers that answer a controller as they are told, and a record of what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.coordination import Control, Fleet, Member
from participant.testing.clock import FakeClock
from participant.transport import ControlReply, MalformedReplyError, TransportError

__all__ = ["Asked", "ScriptedServers", "four", "in_time"]

_Result = TypeVar("_Result")

Asked = tuple[str, str]
"""A command, and the server that was asked."""


def four() -> list[ParticipantId]:
    """One participant of each kind, and a second resources server."""
    named = ("resources/t2", "agent/a", "resources/t1", "environment/e", "model/m")
    return [ParticipantId(*name.split("/")) for name in named]


class ScriptedServers:
    """A :class:`participant.transport.ControlTransport` to servers that do as they are told.

    A server's address is its instance.  All answers are good ones unless ``script`` has
    another for the server and command: words as in :meth:`_scripted`.
    """

    def __init__(self, participants: list[ParticipantId] | None = None) -> None:
        self.clock = FakeClock()
        self.participants = {
            p.instance: p for p in (four() if participants is None else participants)
        }
        self.bystanders: set[str] = set()
        self.script: dict[Asked, str] = {}
        self.asked: list[Asked] = []
        self.asked_at: list[float] = []
        self.bodies: list[Mapping[str, Any]] = []
        self.timeouts_s: list[float] = []

    @property
    def control(self) -> Control:
        """What a controller of these servers works with."""
        return Control(self, self.clock)

    @property
    def fleet(self) -> Fleet:
        """The fleet that discovery would find."""
        members = sorted(self.participants.values())
        return Fleet(tuple(Member(p.instance, p) for p in members), tuple(sorted(self.bystanders)))

    def take_asked(self) -> list[Asked]:
        """What was asked since the last look."""
        asked, self.asked = self.asked, []
        return asked

    async def call(
        self, server: str, command: str, members: Mapping[str, Any] | None, timeout_s: float
    ) -> ControlReply:
        """As :meth:`ControlTransport.call`."""
        self.asked.append((command, server))
        self.asked_at.append(self.clock.monotonic())
        self.bodies.append(members or {})
        self.timeouts_s.append(timeout_s)
        await asyncio.sleep(0)
        words = self.script.get((command, server), "").split()
        if words:
            return await self._scripted(server, command, members or {}, timeout_s, words)
        if server in self.bystanders:
            return ControlReply(404, {})
        return ControlReply(200, self.good(server, command, members or {}))

    async def _scripted(
        self,
        server: str,
        command: str,
        members: Mapping[str, Any],
        timeout_s: float,
        words: list[str],
    ) -> ControlReply:
        good = self.good(server, command, members)
        match words:
            case ["lost"]:
                raise TransportError(f"{command} of {server}: the connection was lost")
            case ["lost", times]:
                left = int(times) - 1
                self.script[command, server] = f"lost {left}" if left else ""
                raise TransportError(f"{command} of {server}: the connection was lost")
            case ["hangs"]:
                await self.clock.sleep_until(self.clock.monotonic() + timeout_s)
                raise TransportError(f"{command} of {server}: no reply within {timeout_s} s")
            case ["nonsense"]:
                raise MalformedReplyError("the reply is no JSON object")
            case ["explodes"]:
                raise ZeroDivisionError
            case ["answers", status]:
                return ControlReply(int(status), {})
            case ["refuses", code]:
                return ControlReply(409, {"error": {"code": code, "detail": "for a reason"}})
            case ["without", member]:
                return ControlReply(200, {k: v for k, v in good.items() if k != member})
            case ["blocked", keys]:
                report = _report(keys.split(","))
                return ControlReply(200, {"phase": "preparing", "report": report})
            case ["says", member, value]:
                return ControlReply(200, {**good, member: _value(value)})
        raise ValueError(f"no such script: {' '.join(words)}")

    def good(self, server: str, command: str, members: Mapping[str, Any]) -> dict[str, Any]:
        """The reply of a server on which all is well."""
        named = [EpisodeId(**ref) for ref in members.get("episode_ids") or []]
        keys = sorted(episode.capture_key for episode in named)
        match command:
            case "status":
                participant = self.participants.get(server, ParticipantId("judge", server))
                status = {"phase": "idle", "checkpoint_id": None, "report": _report([])}
                return {"kind": participant.kind, "instance": participant.instance, **status}
            case "prepare":
                return {"phase": "prepared", "report": _report([])}
            case "commit":
                return {"phase": "committed", "manifest": {}, "episode_ids": keys}
            case "renew":
                return {"lease_expires_at": members["deadline_ts"] + 600}
            case "retire":
                return {"retired": keys}
            case "restore":
                following = sorted(episode.continuation.capture_key for episode in named)
                return {"phase": "restored", "source_checkpoint_id": "ck", "restored": following}
            case "resume":
                return {"phase": "idle", "idempotent": False}
        raise ValueError(f"no such command: {command}")


def _report(keys: list[str]) -> dict[str, Any]:
    return {"ready": not keys, "blockers": keys, "blocker_count": len(keys), "counts": {}}


def _value(word: str) -> Any:
    """``list:a,b`` is a list, ``list:`` an empty one."""
    if not word.startswith("list:"):
        return word
    return [item for item in word.removeprefix("list:").split(",") if item]


async def in_time(clock: FakeClock, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of ``work``, for which time passes until it has one."""
    task = asyncio.ensure_future(work)
    for _ in range(1000):
        await clock.advance(0.5)
        if task.done():
            break
    return await task
