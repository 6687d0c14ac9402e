"""Plain-text scenarios of the machine: a command, a line of dashes, what comes of it.

::

    # A comment.
    enter r1
    ----
    t1 runs

    prepare ck within=30
    ----
    close ck
    wait 30
    ----
    c1 preparing: 1 blocks (r1)

Several commands may stand above one line of dashes.  Commands of the controller are
numbered ``c1``, ``c2`` …, calls of clients ``t1``, ``t2`` …, jobs as the machine does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ckptfmt.identity import EpisodeId
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.errors import CheckpointFailedError, InvalidCheckpointStateError
from participant.core.messages import (
    CommitReply,
    PrepareReply,
    RenewReply,
    Reply,
    Report,
    RestoreReply,
    ResumeReply,
    RetireReply,
    StatusReply,
)
from participant.core.steps import StepMode
from participant.testing.machine_world import MachineWorld, episodes_of

__all__ = ["Scenario", "run_scenario"]

_CONTROLS = ("prepare", "renew", "resume", "commit", "restore", "retire")


def run_scenario(text: str) -> str:
    """Play a scenario; the same text with the outputs that the machine gave."""
    scenario = Scenario()
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
            output += scenario.run(line)
    return "\n".join(lines) + "\n"


class Scenario:
    """One story: a machine, and the names that its events got."""

    def __init__(self) -> None:
        self.world = MachineWorld()
        self._calls = 0
        self._tickets = 0

    def run(self, line: str) -> list[str]:
        """Play one command; its output, a line an effect."""
        name, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if name in _CONTROLS:
            return self._control(name, plain[0], options)
        if name in _SETTINGS:
            _SETTINGS[name](self, plain)
            return []
        if name == "wait":
            return list(_shown(self.world.wait(float(plain[0]))))
        if name == "status":
            return [_status(self.world.machine.status(self.world.now, self.world.now))]
        if name == "tables":
            sizes = self.world.machine.table_sizes
            return [" ".join(f"{k}={v}" for k, v in sizes.items() if v) or "all empty"]
        return list(_shown(self.world.step(self._event(name, plain, options))))

    def _control(self, command: str, checkpoint_id: str, options: dict[str, str]) -> list[str]:
        self._calls += 1
        named = options.get("scope", options.get("episodes", ""))
        request = self.world.request(
            command,
            checkpoint_id,
            float(options.get("within", "30")),
            None if named == "all" else episodes_of(named),
            options.get("dir", "dir"),
        )
        return list(_shown(self.world.call(request, self._calls)))

    def _event(self, name: str, plain: list[str], options: dict[str, str]) -> ev.Event:
        if name == "enter":
            self._tickets += 1
            episode = None if plain[0] == "-" else EpisodeId.from_capture_key(plain[0])
            return ev.Enter(self._tickets, episode, options.get("key"))
        if name in _OF_TICKET:
            return _OF_TICKET[name](int(plain[0].removeprefix("t")))
        if name in _OF_JOB:
            return _OF_JOB[name](int(plain[0]), plain[1:], options)
        if name in _OF_EPISODE:
            return _OF_EPISODE[name](EpisodeId.from_capture_key(plain[0]))
        if name == "hang-up":
            return ev.HangUp(int(plain[0].removeprefix("c")))
        return _OTHERS[name]


def _census(scenario: Scenario, words: list[str]) -> None:
    scenario.world.census.keys = words


def _held(scenario: Scenario, words: list[str]) -> None:
    scenario.world.census.held_keys = words


def _fails(scenario: Scenario, words: list[str]) -> None:
    scenario.world.census.fails = words == ["yes"]


def _closes(scenario: Scenario, words: list[str]) -> None:
    scenario.world.answers_closed = words == ["yes"]


_SETTINGS: dict[str, Callable[[Scenario, list[str]], None]] = {
    "hooks-block": _census,
    "hooks-hold": _held,
    "hooks-fail": _fails,
    "hooks-answer-close": _closes,
}

_OF_TICKET: dict[str, Callable[[int], ev.Event]] = {
    "leave": ev.Leave,
    "retry": ev.Retry,
    "boundary": ev.Boundary,
    "step-ends": ev.StepEnds,
    "wait-step": lambda ticket: ev.StepBegins(ticket, StepMode.WAIT),
    "replay-step": lambda ticket: ev.StepBegins(ticket, StepMode.REPLAY),
}

_STORAGE_ERROR = CheckpointFailedError("no space left")
_DATA_ERROR = InvalidCheckpointStateError("corrupt")

_OF_JOB: dict[str, Callable[[int, list[str], dict[str, str]], ev.Event]] = {
    "exported": lambda n, _, o: ev.Exported(n, frozenset(episodes_of(o.get("episodes", ""))), {}),
    "written": lambda n, *_: ev.Written(n, msgspec.Raw(b'{"token":"t"}')),
    "abandoned": lambda n, words, _: ev.Abandoned(n, clear=words == ["clear"]),
    "settled": lambda n, *_: ev.Settled(n),
    "loaded": lambda n, _, o: ev.Loaded(
        n, o["source"], frozenset(episodes_of(o.get("episodes", "")))
    ),
    "installed": lambda n, *_: ev.Installed(n),
    "released": lambda n, *_: ev.Released(n),
    "failed": lambda n, words, _: ev.Failed(n, _STORAGE_ERROR, unknown=words == ["unknown"]),
    "corrupt": lambda n, *_: ev.Failed(n, _DATA_ERROR),
}

_OF_EPISODE: dict[str, Callable[[EpisodeId], ev.Event]] = {
    "stopped": ev.Stopped,
    "freed": ev.Freed,
    "retire-fails": lambda episode: ev.RetireFailed(episode, _STORAGE_ERROR),
}

_OTHERS: dict[str, ev.Event] = {
    "closed": ev.Closed(),
    "close-fails": ev.CloseFailed(_STORAGE_ERROR),
    "notify": ev.Notify(),
    "tick": ev.Tick(),
}


def _shown(effects: list[ef.Effect]) -> Iterator[str]:
    for effect in effects:
        text = _effect(effect)
        if text is not None:
            yield text


def _keys(episodes: frozenset[EpisodeId] | None) -> str:
    if episodes is None:
        return "all"
    return ",".join(sorted(e.capture_key for e in episodes)) or "none"


def _effect(effect: ef.Effect) -> str | None:
    match effect:
        case ef.Answer(call, reply):
            return f"c{call} {_reply(reply)}"
        case ef.Refuse(call, error):
            return f"c{call} {error.code}: {error.detail}"
        case ef.CloseAdmission(checkpoint_id, _):
            return f"close {checkpoint_id}"
        case ef.OpenAdmission():
            return "open"
        case ef.Go(ticket) | ef.Wait(ticket) | ef.Cancel(ticket):
            return f"t{ticket} {_TICKET_WORDS[type(effect)]}"
        case ef.Wake(tickets):
            return "wake " + " ".join(f"t{ticket}" for ticket in tickets)
        case ef.TurnAway(ticket, error):
            return f"t{ticket} {error.code}: {error.detail}"
        case ef.Stop(episode) | ef.Free(episode):
            return f"{type(effect).__name__.lower()} {episode.capture_key}"
        case ef.Note(name, _):
            return None if name == "refused" else f"note {name}"
        case _:
            return _job(effect)


_TICKET_WORDS: dict[type[Any], str] = {ef.Go: "runs", ef.Wait: "waits", ef.Cancel: "is cancelled"}


def _job(effect: ef.Effect) -> str | None:
    match effect:
        case ef.Export(number, scope):
            return f"export {number} {_keys(scope.episodes)}"
        case ef.Write(number, _, checkpoint_dir):
            return f"write {number} to {checkpoint_dir}"
        case ef.Release(number, episodes):
            return f"release {number} {_keys(episodes)}"
        case ef.Load(number, checkpoint_dir, episodes):
            return f"load {number} from {checkpoint_dir} {_keys(episodes)}"
        case ef.Install(number, episodes):
            return f"install {number} {_keys(episodes)}"
        case ef.Abandon(number) | ef.Settle(number):
            return f"{type(effect).__name__.lower()} {number}"
        case _:
            return None


def _report(report: Report) -> str:
    listed = f" ({', '.join(report.blockers)})" if report.blockers else ""
    counts = "".join(f" {name}={count}" for name, count in report.counts.items())
    return f"{report.blocker_count} block{listed}{counts}"


def _reply(reply: Reply) -> str:
    match reply:
        case PrepareReply(phase=phase, report=report):
            return f"{phase}: {_report(report)}"
        case RenewReply(lease_expires_at=expires_at):
            return f"leased until {expires_at:.0f}"
        case RetireReply(retired=retired):
            return f"retired {','.join(retired)}"
        case CommitReply(phase=phase, episode_ids=keys):
            return f"{phase} {','.join(keys) or 'none'}"
        case RestoreReply(phase=phase, source_checkpoint_id=source, restored=keys):
            return f"{phase} from {source}: {','.join(keys) or 'none'}"
        case ResumeReply(phase=phase, idempotent=idempotent):
            return f"{phase}{' already' if idempotent else ''}"
        case _:
            raise TypeError(f"a command is not answered with {type(reply).__name__}")


def _status(status: StatusReply) -> str:
    parts = [f"{status.phase} {status.checkpoint_id or '-'}"]
    if status.lease_expires_at is not None:
        parts.append(f"lease {status.lease_expires_at:.0f}")
    if status.retiring:
        parts.append(f"retiring {status.retiring}")
    if status.publication:
        parts.append(f"publication {status.publication}")
    if status.extras["restored_pending"]:
        parts.append(f"pending {status.extras['restored_pending']}")
    return ", ".join([*parts, _report(status.report)])
