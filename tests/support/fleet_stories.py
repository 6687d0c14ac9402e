"""Plain-text stories of a controller: a command, then who was asked what, and the outcome.

::

    servers environment/e model/m agent/a resources/t -/judge
    when a prepare blocked r1,r2
    prepare ck
    ----
    e prepare
    m prepare
    a prepare
    not prepared: a is blocked by r1 r2

A time in front of a call is what had passed since the command was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ckptfmt.identity import EpisodeId, ParticipantId
from participant import coordination
from participant.coordination import Fleet, Source
from participant.errors import CoordinationError
from tests.support.fleets import ScriptedServers, in_time

__all__ = ["run_fleet_story"]

WITHIN_S = 20.0


def run_fleet_story(text: str) -> str:
    """Play a story; the same text with what really came of it."""
    story = _Story()
    lines: list[str] = []
    output: list[str] = []
    is_output = False
    for line in text.splitlines():
        if line == "----":
            is_output = True
            lines += [line, *output]
            output = []
        elif not line or line.startswith("#"):
            is_output = False
            lines.append(line)
        elif not is_output:
            lines.append(line)
            output += asyncio.run(story.run(line))
    return "\n".join(lines) + "\n"


class _Story:
    def __init__(self) -> None:
        self._servers = ScriptedServers([])
        self._fleet = Fleet(())

    async def run(self, line: str) -> list[str]:
        """Play one command."""
        name, *words = line.split()
        if name == "servers":
            self._make(words)
            return []
        if name == "when":
            server, command, *script = words
            self._servers.script[command, server] = " ".join(script)
            return []
        start = self._servers.clock.monotonic()
        first = len(self._servers.asked)
        try:
            outcome = await in_time(self._servers.clock, self._operation(name, words))
        except CoordinationError as error:
            outcome = f"{type(error).__name__}: {error}"
        calls = zip(self._servers.asked[first:], self._servers.asked_at[first:], strict=True)
        told = [f"{_since(at - start)}{server} {command}" for (command, server), at in calls]
        return [*told, outcome]

    def _make(self, words: list[str]) -> None:
        named = [word.split("/") for word in words]
        participants = [ParticipantId(kind, instance) for kind, instance in named if kind != "-"]
        self._servers = ScriptedServers(participants)
        self._servers.bystanders = {instance for kind, instance in named if kind == "-"}
        self._fleet = self._servers.fleet

    async def _operation(self, name: str, words: list[str]) -> str:
        if name == "discover":
            addresses = [*self._servers.participants, *sorted(self._servers.bystanders)]
            self._fleet = await coordination.discover(self._servers.control, addresses)
            return "found " + " ".join(map(str, self._fleet.participants))
        checkpoint_id, *named = words
        episodes = [EpisodeId.from_capture_key(key) for word in named for key in word.split(",")]
        return await _OPERATIONS[name](self._servers, self._fleet, checkpoint_id, episodes)


def _since(seconds: float) -> str:
    return f"+{seconds:g}s " if seconds else ""


_Operation = Callable[[ScriptedServers, Fleet, str, list[EpisodeId]], Awaitable[str]]


async def _prepare(s: ScriptedServers, fleet: Fleet, id_: str, _: list[EpisodeId]) -> str:
    prepared = await coordination.prepare(s.control, fleet, id_, WITHIN_S)
    blocked = [
        f"{server} is blocked by {' '.join(report.blockers) or 'nothing'}"
        for server, report in prepared.blockers.items()
    ]
    return "prepared" if prepared.prepared else "not prepared: " + ", ".join(blocked)


async def _commit(s: ScriptedServers, fleet: Fleet, id_: str, episodes: list[EpisodeId]) -> str:
    commits = await coordination.commit(s.control, fleet, id_, "run/ck", episodes, WITHIN_S)
    return "committed at " + " ".join(commits.replies)


async def _renew(s: ScriptedServers, fleet: Fleet, id_: str, _: list[EpisodeId]) -> str:
    ends_at = await coordination.renew(s.control, fleet, id_, WITHIN_S)
    return f"held for {ends_at - s.clock.wall():g} s"


async def _resume(s: ScriptedServers, fleet: Fleet, id_: str, _: list[EpisodeId]) -> str:
    await coordination.resume(s.control, fleet, id_, WITHIN_S)
    return "resumed"


async def _retire(s: ScriptedServers, fleet: Fleet, id_: str, episodes: list[EpisodeId]) -> str:
    await coordination.retire(s.control, fleet, id_, episodes, WITHIN_S)
    return "retired"


async def _restore(s: ScriptedServers, fleet: Fleet, id_: str, episodes: list[EpisodeId]) -> str:
    source = Source("ck", "run/ck", s.fleet.participants, tuple(episodes))
    following = await coordination.restore(s.control, fleet, id_, source, WITHIN_S)
    return "restored as " + " ".join(episode.capture_key for episode in following)


_OPERATIONS: dict[str, _Operation] = {
    "prepare": _prepare,
    "commit": _commit,
    "renew": _renew,
    "resume": _resume,
    "retire": _retire,
    "restore": _restore,
}
