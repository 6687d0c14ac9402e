"""The role of an environment server, which owns episodes: ``POST /run`` runs one.

::

    environment = EnvironmentHooks()
    participant.install(app, environment, settings, kind="environment", instance="e1")

    async def run(request):                              # the handler of POST /run
        body = await request.json()
        gone = until_gone(request.receive)
        async with environment.begin(episode_of_run(body), body["task"], gone=gone) as run:
            state = run.restored or {"step": 0}          # None: begin from the input
            while state["step"] < 5:
                async with run.step():                   # a checkpoint waits for its end
                    state = await step(state)
                await run.boundary(state)                # a checkpoint may be taken here
        return JSONResponse(state)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import EnvironmentRecord
from participant.core.errors import InvalidCheckpointStateError, InvalidRequestError
from participant.hooks import DefaultHooks, Export, GateCounts, Scope
from participant.roles.generic import StateTable
from participant.roles.payloads import payload_of
from participant.roles.work import CLEAN_UP_TIMEOUT_S, Entrance, Work
from participant.runtime.admission import Admission, Gone
from participant.runtime.clean_ups import to_the_end
from participant.runtime.execution import Execution

__all__ = ["EnvironmentHooks", "EpisodeRun", "task_digest"]


def task_digest(task: Any) -> str:
    """The SHA-256, in hex, of a task's compact JSON with sorted keys.

    Raises:
        InvalidRequestError: the task is nothing that JSON can spell.
    """
    try:
        text = json.dumps(task, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"the task cannot be spelled as JSON: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


class EpisodeRun(Work):
    """One run of an episode, from its start to its reply.

    ``restored`` is the boundary that it continues from; None: it begins from its input.
    """

    def __init__(
        self, execution: Execution, clean_up_timeout_s: float, restored: JsonPayload | None
    ) -> None:
        super().__init__(execution, clean_up_timeout_s)
        self.restored: dict[str, Any] | None = None if restored is None else restored.value()
        # Until the first boundary of its own it is at the one that it was restored to.
        execution.boundary_state = restored

    async def boundary(self, state: Mapping[str, Any]) -> None:
        """Record the state after a completed step, and park here while a checkpoint is open.

        ``state`` must have all that is needed to go on, the result once there is one, and
        must not be changed afterwards.

        Raises:
            TypeError: the state is no dictionary.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"a boundary is a dictionary, not {type(state).__qualname__}")
        await self._execution.boundary(state)

    def _record(self, episode: EpisodeId, digest: str) -> EnvironmentRecord:
        state = self._execution.boundary_state
        if state is not None and not isinstance(state, JsonPayload):
            state = payload_of(state, episode.capture_key)
        return EnvironmentRecord(episode_id=episode, task_digest=digest, boundary=state)


class EnvironmentHooks(DefaultHooks):
    """The hooks of an environment server, and its way to begin an episode."""

    def __init__(self, *, clean_up_timeout_s: float = CLEAN_UP_TIMEOUT_S) -> None:
        self._clean_up_timeout_s = clean_up_timeout_s
        self._entrance = Entrance()
        self._running: dict[EpisodeId, tuple[EpisodeRun, str]] = {}
        self._restored = StateTable()

    def attach(self, admission: Admission) -> None:
        """As :meth:`ParticipantHooks.attach`."""
        self._entrance.attach(admission)

    @contextlib.asynccontextmanager
    async def begin(
        self, episode: EpisodeId | None, task: Any, *, gone: Gone | None = None
    ) -> AsyncIterator[EpisodeRun]:
        """Run a block as the episode; waits while a checkpoint or restore is open.

        ``task`` is the input, as JSON; a restored episode goes on with the same task only.
        ``gone`` drops the call if its client goes away while it waits.  The end of the
        block is held while a checkpoint is open; then the clean-ups run.

        Raises:
            RolloutIdRequiredError: checkpointing is on, and the run names no rollout.
            InvalidRequestError: the restored episode had another task; it is still there.
            CheckpointParkedError: this attempt waits or runs already.
            StaleAttemptError: it is or was retired, also while the block ran.
        """
        self._entrance.require(episode, "the run")
        if episode is None or not self._entrance.is_gated:
            async with self._entrance.admission.enter(episode) as execution:
                run = EpisodeRun(execution, self._clean_up_timeout_s, None)
                async with to_the_end(execution, run.clean_ups):
                    yield run
            return
        digest = task_digest(task)
        entering = self._entrance.admission.enter(
            episode,
            f"the run of {episode.capture_key}",
            check=lambda: self._check_task(episode, digest),
            gone=gone,
        )
        with contextlib.ExitStack() as kept:
            async with entering as execution:
                run = self._start(episode, digest, execution)
                kept.callback(self._running.pop, episode)
                async with to_the_end(execution, run.clean_ups):
                    yield run

    def _check_task(self, episode: EpisodeId, digest: str) -> None:
        record = self._restored.get(episode)
        if record is not None and record.task_digest != digest:
            raise InvalidRequestError(
                f"{episode.capture_key} was restored with the task {record.task_digest}, and "
                f"this is the task {digest}; send the task that it began with"
            )

    def _start(self, episode: EpisodeId, digest: str, execution: Execution) -> EpisodeRun:
        record = self._restored.get(episode)
        self._restored.discard(episode)
        boundary = None if record is None else record.boundary
        run = EpisodeRun(execution, self._clean_up_timeout_s, boundary)
        self._running[episode] = run, digest
        return run

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """As :meth:`ParticipantHooks.counts`: the episodes that run."""
        return {"episodes": gate.executions}

    def held(self) -> Iterable[str]:
        """As :meth:`ParticipantHooks.held`."""
        held = itertools.chain(self._running, self._restored.episodes())
        return (episode.capture_key for episode in itertools.islice(held, 3))

    async def export(self, scope: Scope) -> Export:
        """As :meth:`ParticipantHooks.export`.

        Raises:
            ValueRefusedError: a boundary holds what ``ckptfmt`` cannot carry; it is named.
        """
        records = [
            replace(self._restored[episode], episode_id=episode)
            for episode in self._restored.episodes()
            if episode in scope
        ]
        for episode, (run, digest) in list(self._running.items()):
            if episode in scope:
                records.append(run._record(episode, digest))
                await asyncio.sleep(0)  # Other requests, status among them, are served meanwhile.
        return Export(records)

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`."""
        restored = {}
        for record in records:
            if not isinstance(record, EnvironmentRecord):
                raise InvalidCheckpointStateError(f"{record.key} is no record of an environment")
            if record.boundary is not None:
                record.boundary.value()  # What cannot be decoded fails the restore, not the run.
            restored[record.episode_id.continuation] = record
            await asyncio.sleep(0)
        for episode in episodes:
            await self._restored.free(episode)
        for episode, record in restored.items():
            self._restored[episode] = record

    async def free(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.free`; of what ran nothing is left by then."""
        await self._restored.free(episode)

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.release`."""
        await self._restored.release(episodes)
