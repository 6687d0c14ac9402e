"""The role of a policy model server: replies held while a checkpoint is open, and ledgers.

A call of an episode is *undelivered* until its reply starts.  A checkpoint does not wait
for it; in the checkpoint it has not happened, and the restored agent sends it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ckptfmt.errors import RetiredError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.fingerprint import Item
from ckptfmt.ledger.limits import MAX_BATCH_KEYS
from ckptfmt.ledger.parents import Parent
from ckptfmt.ledger.row import FailureRow, Row, RowMembers
from ckptfmt.ledger.staging_ledger import StagingLedger
from participant.core.errors import StaleAttemptError
from participant.hooks import DefaultHooks, Export, GateCounts, GatedRoute, Scope, ServedCall
from participant.roles.ledger_cut import read_cut, rows_of
from participant.roles.ledger_threads import in_thread
from participant.runtime.calls import current_call

__all__ = ["MODEL_PATHS", "ModelHooks"]

MODEL_PATHS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


class ModelHooks(DefaultHooks):
    """Hooks of a model server that records its calls in ``ledger``.

    A handler calls :meth:`admit` and :meth:`record` before it replies; both know the
    episode of the call being served.  Calls of no episode (judges, probes) pass, are not
    held, and are not recorded.
    """

    gated_routes = tuple(
        GatedRoute(path, requires_rollout=False, replays=True) for path in MODEL_PATHS
    )
    needs_scope = True  # Every ledger that ever was is nobody's wish.

    def __init__(self, ledger: StagingLedger) -> None:
        self._ledger = ledger
        self._undelivered: dict[ServedCall, set[str]] = {}

    async def admit(self, model_call_id: str, items: Sequence[Item]) -> Parent | None:
        """As :meth:`StagingLedger.admit`, for the call being served; None if it has no episode.

        Raises:
            StaleAttemptError: the rollout's ledger is retired.
            Otherwise as :meth:`StagingLedger.admit`.
        """
        episode = self._note(model_call_id)
        if episode is None:
            return None
        key = episode.capture_key
        try:
            return await in_thread(self._ledger.admit, key, model_call_id, items)
        except RetiredError as error:
            # What was retired just now is kept out by its fence, with that for a reason.
            raise StaleAttemptError(
                f"{key} was used before, by an earlier run or attempt, and its ledger is retired; "
                "give each run a capture directory of its own, or delete the ledger"
            ) from error

    async def record(self, row: Row | FailureRow) -> bool:
        """Record the call being served; False if it has no episode, or that was retired.

        Raises:
            As :meth:`StagingLedger.record`.
        """
        episode = self._note(row.model_call_id)
        if episode is None:
            return False
        if isinstance(row, Row):
            return await in_thread(self._ledger.record, episode.capture_key, row)
        return await in_thread(self._ledger.record_failure, episode.capture_key, row)

    def _note(self, model_call_id: str) -> EpisodeId | None:
        """Whose call this is.  Noted before anything is written, see :mod:`.ledger_cut`."""
        call = current_call.get()
        if call is None:
            return None
        if call in self._undelivered:
            self._undelivered[call].add(model_call_id)
        return call.episode

    async def call_begins(self, call: ServedCall) -> None:
        """As :meth:`ParticipantHooks.call_begins`: it is undelivered."""
        if call.episode is not None:
            self._undelivered[call] = set()

    async def call_replies(self, call: ServedCall, status: int) -> Mapping[str, str]:
        """As :meth:`ParticipantHooks.call_replies`: it is delivered."""
        self._undelivered.pop(call, None)
        return {}

    async def call_ends(self, call: ServedCall) -> None:
        """As :meth:`ParticipantHooks.call_ends`."""
        self._undelivered.pop(call, None)

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """Calls of episodes that run, those whose reply is held, and calls of no episode."""
        running = gate.executions - gate.parked
        return {"inflight": running, "held": gate.parked, "untagged": gate.untagged}

    def status(self, pending: int) -> Mapping[str, Any]:
        """As :meth:`ParticipantHooks.status`; generations are not cut yet."""
        return {"restored_generation_cuts": 0}

    async def export(self, scope: Scope) -> Export:
        """A record an episode in scope that has rows of delivered calls, its ledger pinned.

        Raises:
            RetiredError: an episode in scope is retired.
        """
        assert scope.episodes is not None
        cut = await in_thread(read_cut, self._ledger, sorted(scope.episodes))
        undelivered: dict[EpisodeId, set[str]] = {}
        for call, ids in self._undelivered.items():
            if call.episode is not None:
                undelivered.setdefault(call.episode, set()).update(ids)
        records = await in_thread(cut.records, undelivered)
        return Export(records, ledger_pins=cut.pins_of(records))

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.install`: ledgers of the next attempts, then the old retired.

        An episode without a record gets an empty ledger.
        """
        await in_thread(self._install, records, episodes)

    def _install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        rows: dict[str, Sequence[RowMembers]] = {e.capture_key: () for e in sorted(episodes)}
        rows |= {record.episode_id.continuation.capture_key: rows_of(record) for record in records}
        continued = [EpisodeId(e.rollout_id, e.attempt - 1).capture_key for e in episodes]
        try:
            for keys in _batches(rows):
                self._ledger.import_rows_many({key: rows[key] for key in keys})
            for keys in _batches(continued):
                self._ledger.retire(keys)
        except BaseException:
            for keys in _batches(rows):
                self._ledger.delete(keys)
            raise

    async def free(self, episode: EpisodeId) -> None:
        """As :meth:`ParticipantHooks.free`: the ledgers of all attempts are retired in one batch.

        Of more attempts than a batch takes, these are the last; the others were retired when
        they were continued.
        """
        first = max(0, episode.attempt + 1 - MAX_BATCH_KEYS)
        attempts = range(first, episode.attempt + 1)
        keys = [EpisodeId(episode.rollout_id, attempt).capture_key for attempt in attempts]
        await in_thread(self._ledger.retire, keys)

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """As :meth:`ParticipantHooks.release`: deleted, so that no fence refuses a fresh start."""
        for keys in _batches([episode.capture_key for episode in sorted(episodes)]):
            await in_thread(self._ledger.delete, keys)


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    every = list(keys)
    for start in range(0, len(every), MAX_BATCH_KEYS):
        yield every[start : start + MAX_BATCH_KEYS]
