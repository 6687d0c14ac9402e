"""The contract of session hooks passes a good server, and finds what is wrong with each bad one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from participant.roles.resources import ResourcesHooks
from participant.testing.session_contract import SessionContract


class Dice(ResourcesHooks):
    """Rolls of a die, from a live generator, and their sum."""

    checkpoint_mode = "exported"

    def __init__(self) -> None:
        super().__init__()
        self.dice: dict[str, tuple[random.Random, list[int]]] = {}

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """Generators and rolls."""
        return {s: self.state(s) for s in session_ids if s in self.dice}

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """All of them are built before one is kept."""
        self.dice.update({s: self.built(state) for s, state in states.items()})

    async def retire_session_state(self, session_id: str) -> None:
        """Nothing is left."""
        self.dice.pop(session_id, None)

    def state(self, session_id: str) -> Any:
        """The state of one session."""
        die, rolls = self.dice[session_id]
        return {"die": die.getstate(), "rolls": list(rolls)}

    def built(self, state: Any) -> tuple[random.Random, list[int]]:
        """The session of a state."""
        die = random.Random()
        die.setstate(state["die"])
        return die, list(state["rolls"])


class DiceContract(SessionContract[Dice]):
    """How the contract drives dice."""

    def make(self) -> Dice:
        """A table."""
        return Dice()

    async def seed(self, hooks: Dice, session_id: str, value: int) -> None:
        """A die."""
        hooks.dice[session_id] = (random.Random(value), [])

    async def act(self, hooks: Dice, session_id: str) -> object:
        """A roll."""
        die, rolls = hooks.dice[session_id]
        rolls.append(die.randrange(6))
        return (*rolls,)

    def holds(self, hooks: Dice, session_id: str) -> bool:
        """Whether there is a die."""
        return session_id in hooks.dice


class TestDice(DiceContract):
    """Passes."""


class Undeclared(Dice):
    """Inherits a declaration that is not its own."""


class SeedOnly(Dice):
    """Saves what the die began with."""

    checkpoint_mode = "exported"

    def state(self, session_id: str) -> Any:
        """Too little."""
        return {"rolls": list(self.dice[session_id][1])}

    def built(self, state: Any) -> tuple[random.Random, list[int]]:
        """The first rolls again."""
        return random.Random(0), list(state["rolls"])


class Everything(Dice):
    """Exports whatever there is."""

    checkpoint_mode = "exported"

    async def export_session_states(self, session_ids: Sequence[str]) -> Mapping[str, Any]:
        """More than was asked for."""
        return {s: self.state(s) for s in self.dice}


class Destructive(Dice):
    """Rolls when it is exported."""

    checkpoint_mode = "exported"

    def state(self, session_id: str) -> Any:
        """Not the state any more."""
        state = super().state(session_id)
        self.dice[session_id][0].random()
        return state


class OneByOne(Dice):
    """Keeps what it restored before the damage."""

    checkpoint_mode = "exported"

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """One after the other."""
        for session_id, state in states.items():
            self.dice[session_id] = self.built(state)


class Lenient(Dice):
    """Takes anything for a state."""

    checkpoint_mode = "exported"

    async def restore_session_states(self, states: Mapping[str, Any]) -> None:
        """What cannot be read is left out."""
        good = {s: state for s, state in states.items() if isinstance(state, dict)}
        await super().restore_session_states(good)


class Fussy(Dice):
    """Cannot retire twice."""

    checkpoint_mode = "exported"

    async def retire_session_state(self, session_id: str) -> None:
        """Only what is there."""
        del self.dice[session_id]


class Leaky(Dice):
    """Retires nothing."""

    checkpoint_mode = "exported"

    async def retire_session_state(self, session_id: str) -> None:
        """Forgets to forget."""


class Longer(Dice):
    """Adds a roll of its own when it restores."""

    checkpoint_mode = "exported"

    def built(self, state: Any) -> tuple[random.Random, list[int]]:
        """One roll more."""
        die, rolls = super().built(state)
        return die, [*rolls, 0]


@pytest.mark.parametrize(
    ("server", "test"),
    [
        (Undeclared, "test_the_state_is_exported"),
        (SeedOnly, "test_operations_after_a_restore_are_those_of_an_uninterrupted_run"),
        (Everything, "test_exactly_the_sessions_that_were_asked_for_are_exported"),
        (Destructive, "test_an_export_changes_nothing"),
        (Longer, "test_a_restored_session_is_exported_as_it_came"),
        (OneByOne, "test_all_sessions_are_restored_or_none"),
        (Lenient, "test_all_sessions_are_restored_or_none"),
        (Fussy, "test_a_retired_session_is_gone_and_the_others_are_not"),
        (Leaky, "test_a_retired_session_is_gone_and_the_others_are_not"),
    ],
)
def test_a_broken_server_is_found(server: type[Dice], test: str) -> None:
    contract = DiceContract()
    contract.make = server  # type: ignore[method-assign]
    with pytest.raises((AssertionError, KeyError)):
        getattr(contract, test)()
