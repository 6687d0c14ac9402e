"""Restoring a checkpoint into fresh servers: all of them, or none."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from ckptfmt.identity import EpisodeId
from participant.coordination.calls import Failure, Form, check_all, episode_refs, walk
from participant.coordination.fleet import Control, Fleet
from participant.coordination.operations import resume, retired_form
from participant.coordination.publish import Source
from participant.core.messages import RestoreReply
from participant.core.phases import Phase
from participant.errors import CoordinationError

__all__ = ["MIN_ROLL_BACK_S", "restore"]

MIN_ROLL_BACK_S: Final = 30.0
"""The least time that undoing a failed restore gets: it waits for installs that still run."""

_logger = logging.getLogger(__name__)


async def restore(
    control: Control,
    fleet: Fleet,
    checkpoint_id: str,
    source: Source,
    within_s: float,
    episodes: Iterable[EpisodeId] | None = None,
) -> tuple[EpisodeId, ...]:
    """Install ``episodes`` of a checkpoint everywhere; the attempts that continue them, sorted.

    ``checkpoint_id`` is the id of this restore, not of ``source``; ``episodes`` are by
    default all that the checkpoint continues.  Everybody stays closed until resume.

    If one server fails, the next attempts are retired everywhere and everything is
    resumed; then the id is spent, and those rollouts restart as later attempts.

    Raises:
        CoordinationError: of the restore, whatever undoing it came to.
    """
    _check_fleet(fleet, source)
    continued = frozenset(source.episodes if episodes is None else episodes)
    following = frozenset(episode.continuation for episode in continued)
    ends_at = control.clock.monotonic() + within_s
    members = {
        "checkpoint_id": checkpoint_id,
        "checkpoint_dir": source.checkpoint_dir,
        "episode_ids": episode_refs(continued),
    }
    form = _form(source, following)
    try:
        (await walk(control, fleet, "restore", members, within_s, form)).require("restore")
    except BaseException:
        left_s = max(ends_at - control.clock.monotonic(), MIN_ROLL_BACK_S)
        await _roll_back(control, fleet, checkpoint_id, following, left_s)
        raise
    return tuple(sorted(following))


def _check_fleet(fleet: Fleet, source: Source) -> None:
    """What a server stored that is not here would be lost, and the job go on without it."""
    here = {member.participant: member.server for member in fleet.members}
    stored = set(source.participants)
    failures = {
        server: Failure(f"{participant} has no part in checkpoint {source.checkpoint_id}")
        for participant, server in here.items()
        if participant not in stored
    }
    failures |= {
        str(participant): Failure(f"it has a part in checkpoint {source.checkpoint_id}, no server")
        for participant in stored - here.keys()
    }
    check_all("restore", failures)


def _form(source: Source, following: frozenset[EpisodeId]) -> Form[RestoreReply]:
    keys = {episode.capture_key for episode in following}

    def complaint(reply: RestoreReply) -> str | None:
        if reply.phase is not Phase.RESTORED:
            return f"it is {reply.phase}, not {Phase.RESTORED}"
        if reply.source_checkpoint_id != source.checkpoint_id:
            return f"it restored checkpoint {reply.source_checkpoint_id[:200]!a}"
        # Of an episode that it held nothing of, a server has nothing to restore.
        return None if keys.issuperset(reply.restored) else "it restored other episodes"

    return Form(RestoreReply, complaint)


async def _roll_back(
    control: Control,
    fleet: Fleet,
    checkpoint_id: str,
    following: frozenset[EpisodeId],
    within_s: float,
) -> None:
    """Free what was installed and open everybody; what fails is logged, never raised."""
    members: dict[str, Any] = {
        "checkpoint_id": checkpoint_id,
        "episode_ids": episode_refs(following),
    }
    try:
        if following:
            answers = await walk(
                control, fleet, "roll back", members, within_s, retired_form(following),
                command="retire",
            )  # fmt: skip
            answers.require("retire")
    except CoordinationError as error:
        _logger.warning("undoing the restore %s: %s", checkpoint_id, error)
    try:
        await resume(control, fleet, checkpoint_id, MIN_ROLL_BACK_S)
    except CoordinationError as error:
        _logger.warning("undoing the restore %s: %s", checkpoint_id, error)
