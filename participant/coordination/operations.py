"""The operations of a checkpoint, each over the whole fleet, in its order.

All may be repeated with the same checkpoint id after a failure or a lost reply.
``within_s`` is the time that all calls of an operation have together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ckptfmt.identity import EpisodeId
from participant.coordination.calls import Form, episode_refs, walk
from participant.coordination.discovery import check_roll
from participant.coordination.fleet import Control, Fleet
from participant.core.messages import PrepareReply, RenewReply, Report, ResumeReply, RetireReply
from participant.core.phases import Phase

__all__ = [
    "CommitReply",
    "Commits",
    "Prepared",
    "commit",
    "prepare",
    "renew",
    "resume",
    "retire",
    "retired_form",
]


@dataclass(frozen=True, slots=True)
class Prepared:
    """How far a prepare got.

    ``prepared``: everybody is.  ``replies`` are those of the servers that were asked;
    ``blockers`` the reports of those that were not ready.
    """

    prepared: bool
    replies: Mapping[str, PrepareReply]
    blockers: Mapping[str, Report]


class CommitReply(msgspec.Struct, frozen=True):
    """What a participant answered a commit with; ``manifest`` as it says that it is stored."""

    phase: Phase
    manifest: dict[str, Any]
    episode_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commits:
    """The commits of a checkpoint: its scope, and each server's reply, not yet judged."""

    checkpoint_id: str
    episodes: frozenset[EpisodeId]
    replies: Mapping[str, CommitReply] = field(repr=False)


def _is_prepared(reply: PrepareReply) -> bool:
    return reply.phase is Phase.PREPARED and reply.report.ready


async def prepare(control: Control, fleet: Fleet, checkpoint_id: str, within_s: float) -> Prepared:
    """Close admission and wait for boundaries, kind by kind; a kind that is not ready is the last.

    Not ready is no error: repeat to wait again, or resume.

    Raises:
        CoordinationError: a server refused or did not answer.  Resume.
    """
    members = {"checkpoint_id": checkpoint_id}
    form = Form(PrepareReply)
    answers = await walk(control, fleet, "prepare", members, within_s, form, succeeded=_is_prepared)
    replies = answers.require("prepare")
    blockers = {s: reply.report for s, reply in replies.items() if not _is_prepared(reply)}
    return Prepared(not blockers, replies, blockers)


async def commit(
    control: Control,
    fleet: Fleet,
    checkpoint_id: str,
    checkpoint_dir: str,
    episodes: Iterable[EpisodeId],
    within_s: float,
) -> Commits:
    """Have everybody store what it holds of ``episodes``, in ``checkpoint_dir``.

    ``episodes`` are all that the controller continues, a restored one whose replacement has
    not started included, under the attempt that it was restored as.  What is left out of
    them is not stored, and freed where it was restored and never started.

    Raises:
        CoordinationError: a participant has appeared or vanished since discovery, refused
            or did not answer.  Repeat under the same id, or resume.
    """
    scope = frozenset(episodes)
    ends_at = control.clock.monotonic() + within_s
    await check_roll(control, fleet, "commit", within_s)
    members = {
        "checkpoint_id": checkpoint_id,
        "checkpoint_dir": checkpoint_dir,
        "episode_ids": episode_refs(scope),
    }
    left_s = ends_at - control.clock.monotonic()
    answers = await walk(control, fleet, "commit", members, left_s, Form(CommitReply))
    return Commits(checkpoint_id, scope, answers.require("commit"))


async def renew(control: Control, fleet: Fleet, checkpoint_id: str, within_s: float) -> float:
    """Put every lease off, to the grace after ``within_s`` from now; the first one's end.

    The end is in Unix seconds.

    Raises:
        CoordinationError: somebody's lease was not put off.
    """
    members = {"checkpoint_id": checkpoint_id}
    answers = await walk(control, fleet, "renew", members, within_s, Form(RenewReply))
    replies = answers.require("renew")
    return min(reply.lease_expires_at for reply in replies.values())


async def resume(control: Control, fleet: Fleet, checkpoint_id: str, within_s: float) -> None:
    """End the checkpoint everywhere and open admission, whatever became of it.

    Nobody is left out, whether or not it was prepared, and a failure keeps nobody closed
    but the server that it is of.

    Raises:
        CoordinationError: all failures together, once everybody was asked.  Repeat.
    """
    members = {"checkpoint_id": checkpoint_id}
    form = Form(ResumeReply, lambda reply: _not_in(Phase.IDLE, reply.phase))
    (await walk(control, fleet, "resume", members, within_s, form)).require("resume")


def _not_in(expected: Phase, phase: Phase) -> str | None:
    return None if phase is expected else f"it is {phase}, not {expected}"


async def retire(
    control: Control,
    fleet: Fleet,
    checkpoint_id: str,
    episodes: Iterable[EpisodeId],
    within_s: float,
) -> None:
    """Stop these attempts, and every earlier one of their rollouts, and free their state.

    A kind that fails is the last one: what it still runs needs the servers that it calls.
    Without episodes nobody is called.

    Raises:
        CoordinationError: something could not be stopped or freed.  Repeat: nothing is
            cancelled twice.
    """
    named = frozenset(episodes)
    if not named:
        return
    members = {"checkpoint_id": checkpoint_id, "episode_ids": episode_refs(named)}
    answers = await walk(control, fleet, "retire", members, within_s, retired_form(named))
    answers.require("retire")


def retired_form(episodes: frozenset[EpisodeId]) -> Form[RetireReply]:
    """The reply of a participant that has retired exactly ``episodes``."""
    keys = {episode.capture_key for episode in episodes}

    def complaint(reply: RetireReply) -> str | None:
        return None if set(reply.retired) == keys else "it retired others than it was asked for"

    return Form(RetireReply, complaint)
