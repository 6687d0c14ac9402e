"""Keeping every lease alive while something takes long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from participant.coordination.fleet import Control, Fleet
from participant.coordination.operations import renew
from participant.errors import CoordinationError

__all__ = ["MAX_INTERVAL_S", "Lease", "renewing"]

MAX_INTERVAL_S: Final = 10.0
"""The longest pause between renewals; a third of the grace where that is shorter."""

_logger = logging.getLogger(__name__)


class Lease:
    """The leases of a checkpoint, as long as they are renewed."""

    def __init__(self, renewals: asyncio.Future[None]) -> None:
        self.lost = renewals
        """Done once a renewal has failed."""

    def check(self) -> None:
        """Return if every renewal so far has succeeded.

        Raises:
            CoordinationError: one has failed, and none was tried since.
        """
        if self.lost.done():
            self.lost.result()


@contextlib.asynccontextmanager
async def renewing(
    control: Control, fleet: Fleet, checkpoint_id: str, lease_grace_s: float
) -> AsyncIterator[Lease]:
    """Renew every lease, at once and again and again, until the block ends.

    ``lease_grace_s`` is the servers' setting ``lease_grace_seconds``, the shortest of them.
    A renewal that fails is the last one; it is logged, and told by the :class:`Lease`.
    """
    interval_s = min(lease_grace_s / 3, MAX_INTERVAL_S)
    task = asyncio.create_task(_renew_for_ever(control, fleet, checkpoint_id, interval_s))
    try:
        yield Lease(task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _renew_for_ever(
    control: Control, fleet: Fleet, checkpoint_id: str, interval_s: float
) -> None:
    try:
        while True:
            due = control.clock.monotonic() + interval_s
            await renew(control, fleet, checkpoint_id, interval_s)
            await control.clock.sleep_until(due)
    except CoordinationError as error:
        _logger.warning("the leases of checkpoint %s are not held: %s", checkpoint_id, error)
        raise
