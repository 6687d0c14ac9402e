"""The work that the machine asks for: hooks and storage, each in a task of its own.

A job ends by an event to the machine, whatever happens in it.  Records never pass
through the machine: they stay here, under the number of their job, until it is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.clock import Clock
from participant.core import effects as ef
from participant.core import events as ev
from participant.core.errors import (
    CheckpointFailedError,
    InternalError,
    InvalidCheckpointStateError,
    ParticipantError,
)
from participant.hooks import Export, ParticipantHooks, PinLike, RecordLike
from participant.runtime.bounded_io import BoundedIo
from participant.runtime.execution import Post
from participant.runtime.saving import (
    CheckpointStorage,
    Publication,
    PublicationState,
    SaveOrder,
    translating,
)

__all__ = ["SETTLE_RETRY_S", "Jobs"]

SETTLE_RETRY_S: Final = 5.0
"""How long after a failed attempt an unknown publication is settled again."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    records: tuple[RecordLike, ...]
    extras: dict[str, Any]
    ledger_pins: tuple[PinLike, ...]


@dataclass(slots=True)
class _Save:
    export: _Taken
    order: SaveOrder | None = None
    publication: Publication = field(default_factory=Publication)


class Jobs:
    """Carries out the effects that take time."""

    def __init__(
        self,
        participant: ParticipantId,
        hooks: ParticipantHooks,
        storage: CheckpointStorage,
        clock: Clock,
        post: Post,
        may_publish: Callable[[], bool],
    ) -> None:
        self._participant = participant
        self._hooks = hooks
        self._storage = storage
        self._clock = clock
        self._post = post
        self._may_publish = may_publish
        self._io = BoundedIo()
        self._saves: dict[int, _Save] = {}
        self._loads: dict[int, Sequence[RecordLike]] = {}
        self._exports: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def table_sizes(self) -> dict[str, int]:
        """How much is kept here; at rest nothing is."""
        return {"saves": len(self._saves), "loads": len(self._loads), "tasks": len(self._tasks)}

    def begin(self, effect: ef.Effect) -> None:
        """Start the job that an effect asks for; other effects are not for here."""
        match effect:
            case ef.Export(number):
                self._exports[number] = self._spawn(self._export(effect))
            case ef.Write(number):
                # Begun here, not in the task: it may be called off before that has a turn.
                order, publication = self._order(effect), Publication()
                self._saves[number].publication = publication
                self._spawn(self._guarded(number, self._write(number, order, publication)))
            case ef.Abandon(number):
                clear = self._saves[number].publication.abandon()
                self._post(ev.Abandoned(number, clear=clear))
            case ef.Settle(number):
                self._spawn(self._settle(number))
            case ef.Release(number):
                self._spawn(self._guarded(number, self._release(effect)))
            case ef.Load(number):
                self._loads[number] = ()
                self._spawn(self._guarded(number, self._load(effect)))
            case ef.Install(number):
                self._spawn(self._guarded(number, self._install(effect)))
            case ef.Stop(episode) | ef.Free(episode):
                self._spawn(self._retire(effect, episode))
            case ef.Forget(number):
                self._forget(number)
            case _:
                pass

    async def close(self) -> None:
        """Cancel what runs, and wait for its end; threads are left behind."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _forget(self, number: int) -> None:
        self._saves.pop(number, None)
        self._loads.pop(number, None)
        if export := self._exports.pop(number, None):
            export.cancel()

    async def _guarded(self, number: int, work: Coroutine[Any, Any, ev.Event]) -> None:
        try:
            with _translating():
                event = await work
        except ParticipantError as error:
            event = ev.Failed(number, error, unknown=self._is_unknown(number))
        self._post(event)

    def _is_unknown(self, number: int) -> bool:
        save = self._saves.get(number)
        if save is None:
            return False
        return save.publication.state in (PublicationState.CLAIMED, PublicationState.UNKNOWN)

    async def _export(self, effect: ef.Export) -> None:
        number = effect.number
        try:
            with _translating():
                export = _taken(await self._hooks.export(effect.scope))
        except ParticipantError as error:
            if self._exports.pop(number, None):
                self._post(ev.Failed(number, error))
            return
        if self._exports.pop(number, None):
            self._saves[number] = _Save(export)
            episodes = frozenset(record.episode_id for record in export.records)
            self._post(ev.Exported(number, episodes, export.extras))

    def _order(self, effect: ef.Write) -> SaveOrder:
        save = self._saves[effect.number]
        if save.order is None:
            save.order = SaveOrder(
                effect.checkpoint_id,
                effect.checkpoint_dir,
                self._participant,
                save.export.records,
                save.export.extras,
                save.export.ledger_pins,
            )
        return save.order

    async def _write(self, number: int, order: SaveOrder, publication: Publication) -> ev.Event:
        manifest = await self._io.run(
            ("write", number),
            lambda: self._storage.save(order, publication, self._may_publish),
        )
        return ev.Written(number, msgspec.Raw(manifest.strip()))

    async def _settle(self, number: int) -> None:
        order = self._saves[number].order
        assert order is not None
        while True:
            with contextlib.suppress(ParticipantError), _translating():
                await self._io.run(("settle", number), lambda: self._storage.settle(order))
                break
            await self._clock.sleep_until(self._clock.monotonic() + SETTLE_RETRY_S)
        self._post(ev.Settled(number))

    async def _release(self, effect: ef.Release) -> ev.Event:
        await self._hooks.release(effect.episodes)
        return ev.Released(effect.number)

    async def _load(self, effect: ef.Load) -> ev.Event:
        state = await self._io.run(
            ("load", effect.checkpoint_dir, effect.episodes),
            lambda: self._storage.load(effect.checkpoint_dir, self._participant, effect.episodes),
        )
        if effect.number in self._loads:  # Nobody wants it any more if it was forgotten.
            self._loads[effect.number] = state.records
        episodes = frozenset(record.episode_id for record in state.records)
        return ev.Loaded(effect.number, state.source_checkpoint_id, episodes)

    async def _install(self, effect: ef.Install) -> ev.Event:
        await self._hooks.install(self._loads[effect.number], effect.episodes)
        return ev.Installed(effect.number)

    async def _retire(self, effect: ef.Stop | ef.Free, episode: EpisodeId) -> None:
        event: ev.Event
        try:
            with _translating():
                if isinstance(effect, ef.Stop):
                    await self._hooks.stop(episode)
                    event = ev.Stopped(episode)
                else:
                    await self._hooks.free(episode)
                    event = ev.Freed(episode)
        except ParticipantError as error:
            event = ev.RetireFailed(episode, error)
        self._post(event)


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    """A refusal stays as it is; anything else is a defect: logged, and told without its text."""
    try:
        with translating():
            yield
    except ParticipantError:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The hook awaited something that was cancelled; nobody has cancelled the hook.
        raise InternalError("a hook was cancelled from within") from error
    except Exception as error:
        _logger.exception("a hook or the storage failed")
        kind = CheckpointFailedError if isinstance(error, OSError) else InternalError
        raise kind(f"the server met {type(error).__name__}; its log says more") from error


def _taken(export: Export) -> _Taken:
    """What a hook gave, read once and held against what it has to be.

    A hook of a stranger may give an iterator: looked at twice, it would be stored as nothing.
    """
    taken = _Taken(tuple(export.records), dict(export.extras), tuple(export.ledger_pins))
    _check_records(taken.records)
    try:
        msgspec.json.encode(taken.extras)
    except (TypeError, ValueError) as error:
        # It would be published, and then no reply could tell so.
        raise InvalidCheckpointStateError(f"the export's extras are no JSON: {error}") from error
    return taken


def _check_records(records: Sequence[RecordLike]) -> None:
    keys: set[str] = set()
    for record in records:
        episode, key = getattr(record, "episode_id", None), getattr(record, "key", None)
        if not isinstance(episode, EpisodeId) or not isinstance(key, str):
            raise InvalidCheckpointStateError(
                f"the export returned a {type(record).__name__}, which is no record"
            )
        if key in keys:
            raise InvalidCheckpointStateError(f"the export returned two records with key {key}")
        keys.add(key)
