"""What the hooks of a model server have to do beside what all hooks do, as tests to derive from.

::

    class TestMyModel(ModelContract[MyHooks]):
        def make(self) -> MyHooks: ...
        def put(self, hooks: MyHooks, episode: EpisodeId, value: int) -> None: ...
        def look(self, hooks: MyHooks, episode: EpisodeId) -> object: ...

``put`` records one more delivered call of the episode, as a root; ``look`` gives the calls
that its ledger holds, whatever key they were staged under, and None for none.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar, cast

from ckptfmt.identity import EpisodeId
from participant.hooks import ParticipantHooks, Scope
from participant.roles.ledger_cut import rows_of
from participant.testing.hook_contract import HookContract

__all__ = ["ModelContract"]

_Hooks = TypeVar("_Hooks", bound=ParticipantHooks)

_R1 = EpisodeId("r1")


class ModelContract(HookContract[_Hooks], Generic[_Hooks]):
    """Derive, name the class ``Test…``, and let pytest collect it."""

    def test_without_a_scope_everything_is_exported(self) -> None:
        """Not here: a directory of ledgers has those of runs long past."""
        assert self.make().needs_scope

    def test_what_is_held_is_named(self) -> None:
        """Ledgers that an earlier process left keep no restore out: it clears them."""
        assert list(self._filled().held()) == []

    def test_rows_say_under_which_key_they_were_staged(self) -> None:
        """Also those that a second checkpoint holds."""
        old, new = self._filled(), self.make()
        first = asyncio.run(old.export(Scope.of([_R1]))).records
        asyncio.run(new.install(list(first), frozenset({_R1.continuation})))
        again = asyncio.run(new.export(Scope.of([_R1.continuation]))).records
        for records in (first, again):
            (record,) = records
            keys = [row.get("capture_key") for row in rows_of(cast("Any", record))]
            assert keys == [_R1.capture_key]

    def test_an_episode_without_calls_has_no_record(self) -> None:
        """And is restored with an empty ledger, which takes new calls."""
        hooks = self.make()
        assert list(asyncio.run(hooks.export(Scope.of([_R1]))).records) == []
        asyncio.run(hooks.install([], frozenset({_R1.continuation})))
        assert self.look(hooks, _R1.continuation) is None
        self.put(hooks, _R1.continuation, 1)
        assert self.look(hooks, _R1.continuation) is not None

    def test_a_continued_attempt_takes_no_calls_any_more(self) -> None:
        """A late call must not start its ledger anew; one of a freed attempt neither."""
        old, hooks = self._filled(), self.make()
        records = asyncio.run(old.export(Scope.of([_R1]))).records
        asyncio.run(hooks.install(list(records), frozenset({_R1.continuation})))
        self.put(hooks, _R1, 9)
        assert self.look(hooks, _R1) is None
        asyncio.run(hooks.free(_R1.continuation))
        for episode in (_R1, _R1.continuation):
            self.put(hooks, episode, 9)
            assert self.look(hooks, episode) is None
