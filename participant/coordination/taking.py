"""A whole checkpoint in one call: every operation in its order, and resume in the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ckptfmt.identity import EpisodeId
from participant.coordination.calls import shown
from participant.coordination.fleet import Control, Fleet
from participant.coordination.operations import commit, prepare, resume
from participant.coordination.publish import Published, Run, abandon, prepare_store, publish
from participant.coordination.renewing import renewing
from participant.core.messages import Report
from participant.errors import (
    CoordinationError,
    CoordinationRetryError,
    CoordinationUnknownError,
)

__all__ = ["Patience", "checkpoint"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long each part of a checkpoint may take, in seconds.

    ``storage_s`` is for the probe, and for finding out what became of a publication.
    ``lease_grace_s`` is the servers' setting ``lease_grace_seconds``.
    """

    prepare_s: float = 120.0
    commit_s: float = 600.0
    publish_s: float = 300.0
    resume_s: float = 60.0
    storage_s: float = 30.0
    lease_grace_s: float = 600.0


async def checkpoint(
    control: Control,
    fleet: Fleet,
    run: Run,
    checkpoint_id: str,
    episodes: Callable[[], Iterable[EpisodeId]],
    patience: Patience = Patience(),
) -> Published:
    """Probe the storage, prepare, commit, publish, and resume whatever became of it.

    ``episodes`` is asked for the scope once everybody is prepared.  The caller dispatches
    nothing meanwhile.

    Raises:
        CoordinationError: with the ``operation`` that failed first.  Only if that is
            ``resume`` the checkpoint is published: then repeat the resume.
    """
    await prepare_store(control, run, patience.storage_s)
    try:
        published = await _take(control, fleet, run, checkpoint_id, episodes, patience)
    except BaseException:
        try:
            await resume(control, fleet, checkpoint_id, patience.resume_s)
        except CoordinationError as error:
            _logger.warning("after checkpoint %s had failed: %s", checkpoint_id, error)
        raise
    await resume(control, fleet, checkpoint_id, patience.resume_s)
    return published


async def _take(
    control: Control,
    fleet: Fleet,
    run: Run,
    checkpoint_id: str,
    episodes: Callable[[], Iterable[EpisodeId]],
    patience: Patience,
) -> Published:
    prepared = await prepare(control, fleet, checkpoint_id, patience.prepare_s)
    if not prepared.prepared:
        blocked = {server: _blocked(report) for server, report in prepared.blockers.items()}
        raise CoordinationRetryError("prepare", blocked)
    async with renewing(control, fleet, checkpoint_id, patience.lease_grace_s) as lease:
        place = run.checkpoint_dir(checkpoint_id)
        commits = await commit(control, fleet, checkpoint_id, place, episodes(), patience.commit_s)
        try:
            return await publish(control, fleet, commits, run, patience.publish_s, lease=lease)
        except CoordinationUnknownError:
            # Before anybody is resumed it has to be known, or be made sure of.
            published = await abandon(control, run, checkpoint_id, patience.storage_s)
            if published is None:
                raise
            return published


def _blocked(report: Report) -> str:
    named = shown(", ".join(report.blockers[:3]))
    return f"{report.blocker_count} are not at a boundary: {named}"
