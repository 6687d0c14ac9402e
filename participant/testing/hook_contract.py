"""What every implementation of the hooks has to do, as tests to derive from.

::

    class TestMyHooks(HookContract[MyHooks]):
        def make(self) -> MyHooks: ...
        def put(self, hooks: MyHooks, episode: EpisodeId, value: int) -> None: ...
        def look(self, hooks: MyHooks, episode: EpisodeId) -> object: ...
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from ckptfmt.identity import EpisodeId
from participant.hooks import Export, ParticipantHooks, RecordLike, Scope

__all__ = ["HookContract"]

_Hooks = TypeVar("_Hooks", bound=ParticipantHooks)

_R1, _R2, _R3 = EpisodeId("r1"), EpisodeId("r2", 1), EpisodeId("r1x")
_ALL = Scope.of([_R1, _R2, _R3])


class HookContract(ABC, Generic[_Hooks]):
    """Derive, name the class ``Test…``, and let pytest collect it."""

    @abstractmethod
    def make(self) -> _Hooks:
        """Hooks of a process that has just started."""

    @abstractmethod
    def put(self, hooks: _Hooks, episode: EpisodeId, value: int) -> None:
        """Let the hooks hold ``episode`` at a boundary, in a state that depends on ``value``."""

    @abstractmethod
    def look(self, hooks: _Hooks, episode: EpisodeId) -> object:
        """What the hooks hold of ``episode``, comparable; None for nothing."""

    def test_fresh_hooks_hold_and_block_nothing(self) -> None:
        """A restore may go ahead, and a checkpoint need not wait."""
        hooks = self.make()
        assert list(hooks.held()) == []
        assert (hooks.blocking(), list(hooks.blockers())) == (0, [])

    def test_what_is_held_is_named(self) -> None:
        """A restore into this process is refused by name."""
        hooks = self._filled()
        assert set(hooks.held()) <= {_R1.capture_key, _R2.capture_key, _R3.capture_key}
        assert list(hooks.held())

    def test_every_record_belongs_to_the_scope_and_has_its_own_key(self) -> None:
        """And those of an empty scope to nothing."""
        records = _run(self._filled(), lambda hooks: hooks.export(Scope.of([_R1, _R3]))).records
        assert {record.episode_id for record in records} == {_R1, _R3}
        every = _run(self._filled(), lambda hooks: hooks.export(_ALL)).records
        assert {record.episode_id for record in every} == {_R1, _R2, _R3}
        assert len({record.key for record in every}) == len(every)
        nothing = _run(self._filled(), lambda hooks: hooks.export(Scope.of([]))).records
        assert list(nothing) == []

    def test_without_a_scope_everything_is_exported(self) -> None:
        """A role that needs a scope overrides this."""
        every = _run(self._filled(), lambda hooks: hooks.export(Scope.of(None))).records
        assert {record.episode_id for record in every} == {_R1, _R2, _R3}

    def test_what_was_exported_is_what_is_installed_under_the_next_attempt(self) -> None:
        """The state is equal, and the old attempt holds nothing."""
        old, new = self._filled(), self.make()
        records = _run(old, lambda hooks: hooks.export(_ALL)).records
        attempts = frozenset(e.continuation for e in (_R1, _R2, _R3))
        self._install(new, list(records), attempts)
        for episode in (_R1, _R2, _R3):
            assert self.look(new, episode.continuation) == self.look(old, episode)
            assert self.look(new, episode) is None

    def test_an_export_does_not_change_when_the_server_goes_on(self) -> None:
        """Between export and resume the values belong to the checkpoint."""
        hooks, twin, new = self._filled(), self._filled(), self.make()
        records = _run(hooks, lambda hooks: hooks.export(_ALL)).records
        self.put(hooks, _R1, 99)
        self._install(new, list(records), frozenset({_R1.continuation}))
        assert self.look(new, _R1.continuation) == self.look(twin, _R1)

    def test_a_restored_episode_is_exported_under_its_new_attempt(self) -> None:
        """A second checkpoint before its replacement starts loses nothing."""
        old, new = self._filled(), self.make()
        records = _run(old, lambda hooks: hooks.export(Scope.of([_R2]))).records
        self._install(new, list(records), frozenset({_R2.continuation}))
        scope = Scope.of([_R1, _R2.continuation])
        again = _run(new, lambda hooks: hooks.export(scope)).records
        assert [record.episode_id for record in again] == [_R2.continuation]

    def test_an_episode_without_a_record_is_cleared(self) -> None:
        """What an earlier process left of it must not be taken for its state."""
        hooks = self.make()
        self.put(hooks, _R1, 5)
        self.put(hooks, _R1.continuation, 6)
        self._install(hooks, [], frozenset({_R1.continuation}))
        assert self.look(hooks, _R1) is None
        assert self.look(hooks, _R1.continuation) is None

    def test_freeing_covers_earlier_attempts_and_no_look_alike(self) -> None:
        """And may be repeated."""
        hooks = self.make()
        for attempt in (0, 1, 2):
            self.put(hooks, EpisodeId("r1", attempt), attempt)
        self.put(hooks, _R3, 7)
        for _ in range(2):
            _run(hooks, lambda hooks: hooks.stop(EpisodeId("r1", 1)))
            _run(hooks, lambda hooks: hooks.free(EpisodeId("r1", 1)))
        held = [self.look(hooks, EpisodeId("r1", attempt)) is not None for attempt in (0, 1, 2)]
        assert held == [False, False, True]
        assert self.look(hooks, _R3) is not None

    def test_releasing_frees_exactly_what_it_names(self) -> None:
        """And may be repeated; the attempt may be started over."""
        hooks = self._filled()
        for _ in range(2):
            _run(hooks, lambda hooks: hooks.release(frozenset({_R1})))
        assert self.look(hooks, _R1) is None
        assert self.look(hooks, _R2) is not None
        assert self.look(hooks, _R3) is not None
        self.put(hooks, _R1, 8)
        assert self.look(hooks, _R1) is not None

    def test_being_told_of_admission_twice_does_no_harm(self) -> None:
        """A checkpoint may follow another one at once."""
        hooks = self.make()
        hooks.closed("a", 1.0)
        hooks.closed("b", 1.0)
        hooks.opened()
        hooks.opened()

    def _filled(self) -> _Hooks:
        hooks = self.make()
        for value, episode in enumerate((_R1, _R2, _R3)):
            self.put(hooks, episode, value)
        return hooks

    def _install(
        self, hooks: _Hooks, records: list[RecordLike], attempts: frozenset[EpisodeId]
    ) -> None:
        wanted = [r for r in records if r.episode_id.continuation in attempts]
        _run(hooks, lambda hooks: hooks.install(wanted, attempts))


def _run(hooks: _Hooks, work: Callable[[_Hooks], object]) -> Export:
    """Run an asynchronous hook to its end."""

    async def main() -> object:
        result = work(hooks)
        assert asyncio.iscoroutine(result)
        return await result

    result = asyncio.run(main())
    return result if isinstance(result, Export) else Export(())
