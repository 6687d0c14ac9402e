"""What the long pieces of work of environments and agents have in common."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from ckptfmt.identity import EpisodeId
from participant.core.errors import RolloutIdRequiredError
from participant.core.steps import StepMode
from participant.runtime.admission import Admission
from participant.runtime.clean_ups import CleanUp, CleanUps
from participant.runtime.execution import Execution

__all__ = ["CLEAN_UP_TIMEOUT_S", "Entrance", "Work"]

CLEAN_UP_TIMEOUT_S: Final = 60.0
"""How long the clean-ups of one piece of work may take in all."""

_Result = TypeVar("_Result")


class Entrance:
    """The way in: admission, or an open door where checkpointing is off."""

    def __init__(self) -> None:
        self.admission = Admission.open()
        self.is_gated = False

    def attach(self, admission: Admission) -> None:
        """From here on work goes through ``admission``."""
        self.admission = admission
        self.is_gated = True

    def require(self, episode: EpisodeId | None, what: str) -> None:
        """Refuse work that belongs to no episode, where checkpointing is on.

        Raises:
            RolloutIdRequiredError: it names none.
        """
        if episode is None and self.is_gated:
            raise RolloutIdRequiredError(f"{what} names no rollout; nothing was done")


class Work:
    """One admitted piece of work of an episode, until its end."""

    def __init__(self, execution: Execution, clean_up_timeout_s: float) -> None:
        self.episode = execution.episode
        self._execution = execution
        self.clean_ups = CleanUps(execution.clock, clean_up_timeout_s)

    def step(self, mode: StepMode = StepMode.WAIT) -> contextlib.AbstractAsyncContextManager[None]:
        """A step: a checkpoint waits for it, or lets it be and has it run again after a crash."""
        return self._execution.step(mode)

    def clean_up(self, work: CleanUp) -> None:
        """Have ``work()`` awaited at the end, whatever that is.

        Clean-ups run last first, once, uninterrupted by retires and cancellations, all
        under one time-out; one that fails is logged.
        """
        self.clean_ups.add(work)

    def finishing(self) -> contextlib.AbstractContextManager[None]:
        """A part that a retire waits for instead of interrupting it."""
        return self._execution.finishing()

    def time_limit(self, seconds: float) -> contextlib.AbstractAsyncContextManager[None]:
        """A limit that does not count the time parked.

        Raises:
            TimeoutError: the block took longer.
        """
        return self._execution.time_limit(seconds)

    def create_task(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """An inner task that ends with the work, and that a retire stops too."""
        return self._execution.create_task(work)
