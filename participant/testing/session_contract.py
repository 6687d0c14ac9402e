"""What the three hooks of a resources server have to do, as tests to derive from.

::

    class TestMySessions(SessionContract[MyServer]):
        def make(self) -> MyServer: ...
        async def seed(self, hooks: MyServer, session_id: str, value: int) -> None: ...
        async def act(self, hooks: MyServer, session_id: str) -> object: ...
        def holds(self, hooks: MyServer, session_id: str) -> bool: ...
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, Generic, TypeVar

from participant.roles.payloads import payload_of
from participant.roles.resources import ResourcesHooks

__all__ = ["SessionContract"]

_Hooks = TypeVar("_Hooks", bound=ResourcesHooks)
_Result = TypeVar("_Result")

_ACTIONS = 3


class SessionContract(ABC, Generic[_Hooks]):
    """Derive, name the class ``Test…``, and let pytest collect it."""

    damaged_state: object = "no state of this server"
    """A value that the server cannot take for a state."""

    @abstractmethod
    def make(self) -> _Hooks:
        """A server that has just started."""

    @abstractmethod
    async def seed(self, hooks: _Hooks, session_id: str, value: int) -> None:
        """Begin a session that depends on ``value``."""

    @abstractmethod
    async def act(self, hooks: _Hooks, session_id: str) -> object:
        """An operation that changes the session; what it answers, comparable."""

    @abstractmethod
    def holds(self, hooks: _Hooks, session_id: str) -> bool:
        """Whether the server holds anything of the session."""

    def test_the_state_is_exported(self) -> None:
        """The mode is declared by the class itself, since a subclass may hold more."""
        assert type(self.make()).__dict__.get("checkpoint_mode") == "exported"

    def test_operations_after_a_restore_are_those_of_an_uninterrupted_run(self) -> None:
        """Through the bytes that a checkpoint holds: what JSON loses is found here."""
        old, new, whole = self._filled(), self.make(), self._filled()
        states = _stored(_run(old.export_session_states(("a", "b"))))
        _run(new.restore_session_states(states))
        for session_id in ("a", "b"):
            for _ in range(_ACTIONS):
                assert _run(self.act(new, session_id)) == _run(self.act(whole, session_id))

    def test_exactly_the_sessions_that_were_asked_for_are_exported(self) -> None:
        """One that is not there is left out; the answer holds no stranger."""
        hooks = self._filled()
        assert set(_run(hooks.export_session_states(("a", "gone")))) == {"a"}
        assert set(_run(hooks.export_session_states(()))) == set()

    def test_an_export_changes_nothing(self) -> None:
        """A checkpoint may be given up, and the run goes on."""
        hooks, twin = self._filled(), self._filled()
        _stored(_run(hooks.export_session_states(("a", "b"))))
        for session_id in ("a", "b"):
            assert _run(self.act(hooks, session_id)) == _run(self.act(twin, session_id))

    def test_a_restored_session_is_exported_as_it_came(self) -> None:
        """A second checkpoint before anything happened holds the same."""
        old, new = self._filled(), self.make()
        states = _stored(_run(old.export_session_states(("a", "b"))))
        _run(new.restore_session_states(states))
        again = _stored(_run(new.export_session_states(("a", "b"))))
        assert _payloads(again) == _payloads(states)

    def test_all_sessions_are_restored_or_none(self) -> None:
        """Whichever of them is damaged, and though the others are good."""
        states = _stored(_run(self._filled().export_session_states(("a", "b"))))
        for order in (("a", "b", "bad"), ("bad", "a", "b")):
            hooks = self.make()
            mixed = {s: states.get(s, self.damaged_state) for s in order}
            assert _refuses(hooks, mixed), "a damaged state was restored"
            held = [session_id for session_id in order if self.holds(hooks, session_id)]
            assert held == []
            _run(hooks.restore_session_states(states))

    def test_a_retired_session_is_gone_and_the_others_are_not(self) -> None:
        """Also when it is retired again, and where it never was."""
        hooks, twin = self._filled(), self._filled()
        for _ in range(2):
            _run(hooks.retire_session_state("a"))
            _run(hooks.retire_session_state("never"))
        assert [self.holds(hooks, session_id) for session_id in ("a", "b")] == [False, True]
        assert set(_run(hooks.export_session_states(("a", "b")))) == {"b"}
        assert _run(self.act(hooks, "b")) == _run(self.act(twin, "b"))

    def _filled(self) -> _Hooks:
        hooks = self.make()
        for value, session_id in enumerate(("a", "b")):
            _run(self.seed(hooks, session_id, value))
            for _ in range(_ACTIONS):
                _run(self.act(hooks, session_id))
        return hooks


def _refuses(hooks: ResourcesHooks, states: Mapping[str, Any]) -> bool:
    try:
        _run(hooks.restore_session_states(states))
    except Exception:  # noqa: BLE001 - any exception is a refusal
        return True
    return False


def _stored(states: Mapping[str, Any]) -> dict[str, Any]:
    """What a fresh process reads of these states."""
    return {
        session_id: None if state is None else payload_of(state, session_id).value()
        for session_id, state in states.items()
    }


def _payloads(states: Mapping[str, Any]) -> dict[str, object]:
    return {session_id: payload_of(state, session_id) for session_id, state in states.items()}


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run(work)
