"""The contract of episodes passes good servers, and finds what is wrong with each bad one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ckptfmt.identity import EpisodeId
from participant.core.steps import StepMode
from participant.roles.agent import Activation, AgentHooks, LoopOnlyHooks
from participant.roles.environment import EnvironmentHooks, EpisodeRun
from participant.roles.simple_agent import Message, SimpleAgent
from participant.testing.clock import settle
from participant.testing.episode_contract import AgentLoopContract, EnvironmentContract, Tell

REQUEST: list[Message] = [{"role": "user", "content": "add up"}]


class Game(EnvironmentContract):
    """Two moves, a verification that may be repeated, a result, and a clean-up."""

    repeatable = frozenset({"verify", "close"})

    async def run(self, hooks: EnvironmentHooks, episode: EpisodeId | None, tell: Tell) -> object:
        """POST /run."""
        async with hooks.begin(episode, self.task) as run:
            state: dict[str, Any] = run.restored or {"moves": [], "reward": None}
            run.clean_up(lambda: tell("close"))
            return await self.play(run, state, tell)

    async def play(self, run: EpisodeRun, state: dict[str, Any], tell: Tell) -> object:
        """All of it."""
        while len(state["moves"]) < 2:
            async with run.step():
                move = f"move {len(state['moves'])}"
                await tell(move)
                state = {**state, "moves": [*state["moves"], move]}
            await run.boundary(state)
        if state["reward"] is None:
            async with run.step(StepMode.REPLAY):
                await tell("verify")
                state = {**state, "reward": len(state["moves"])}
            await run.boundary(state)
        return state["reward"]


class TestGame(Game):
    """The good one."""


class Calculator(AgentLoopContract):
    """The Simple Agent with a model that asks for two rounds of tools."""

    repeatable = frozenset({"ask 0", "ask 1", "ask 2"})

    def make(self) -> AgentHooks:
        """An agent."""
        return SimpleAgent()

    async def seed(self, hooks: AgentHooks, episode: EpisodeId) -> None:
        """The session of the episode."""
        async with hooks.seed(episode, "s"):
            pass

    async def close(self, hooks: AgentHooks, episode: EpisodeId) -> None:
        """Its end."""
        await hooks.close(episode, "s")

    async def run(self, hooks: AgentHooks, episode: EpisodeId | None, tell: Tell) -> object:
        """An activation."""
        assert isinstance(hooks, SimpleAgent)

        async def ask(messages: list[Message]) -> Message:
            turn = sum(message["role"] == "assistant" for message in messages)
            await tell(f"ask {turn}")
            call = {"id": f"c{turn}", "function": {"name": "add", "arguments": f"{turn}"}}
            return {"role": "assistant"} | ({"tool_calls": [call]} if turn < 2 else {})

        async def use(name: str, arguments: str) -> str:
            await tell(f"{name} {arguments}")
            return arguments

        return await hooks.respond(episode, "s", REQUEST, ask, use)


class TestSimpleAgent(Calculator):
    """The worked example."""


class Forgetful(Game):
    """Begins from its input, whatever was restored."""

    async def play(self, run: EpisodeRun, state: dict[str, Any], tell: Tell) -> object:
        """All of it, from the start."""
        return await super().play(run, {"moves": [], "reward": None}, tell)


class Careless(Game):
    """Makes a step that must not be repeated as one that may be."""

    async def play(self, run: EpisodeRun, state: dict[str, Any], tell: Tell) -> object:
        """One move in the wrong mode."""
        if not state["moves"]:
            async with run.step(StepMode.REPLAY):
                await tell("move 0")
            state = {**state, "moves": ["move 0"]}
            await run.boundary(state)
        return await super().play(run, state, tell)


class Late(Game):
    """Records no boundary with the result, and verifies as a step that is waited for."""

    repeatable = frozenset({"close"})

    async def play(self, run: EpisodeRun, state: dict[str, Any], tell: Tell) -> object:
        """Two moves, and a verification that is not recorded."""
        result = await super().play(run, {**state, "reward": 2}, tell)
        async with run.step():
            await tell("verify")
        return result


class Ajar(Game):
    """Lets runs in past the role."""

    async def run(self, hooks: EnvironmentHooks, episode: EpisodeId | None, tell: Tell) -> object:
        """Whatever its rollout."""
        return await super().run(EnvironmentHooks(), episode, tell)


class Detached(Game):
    """Takes any task for the one that it began with."""

    async def run(self, hooks: EnvironmentHooks, episode: EpisodeId | None, tell: Tell) -> object:
        """The task is not told to the role."""
        task, self.task = self.task, "always the same"
        try:
            return await super().run(hooks, episode, tell)
        finally:
            self.task = task


class Restless(Calculator):
    """A loop that goes on with the reply while the checkpoint is open."""

    repeatable = frozenset({"ask"})

    def make(self) -> AgentHooks:
        """An agent."""
        return LoopOnlyHooks()

    async def run(self, hooks: AgentHooks, episode: EpisodeId | None, tell: Tell) -> object:
        """One model call that is made as a step, and one tool."""
        async with hooks.activate(episode, "s") as loop:
            return await self.turn(loop, tell)

    async def turn(self, loop: Activation, tell: Tell) -> str:
        """The reply is not held."""
        await loop.boundary(lambda: "asking")
        async with loop.step(StepMode.REPLAY):
            await tell("ask")
        await tell("use a tool")
        await settle()
        await loop.boundary(lambda: "done")
        return "done"


class Aliased(Restless):
    """Snapshots that show the loop as it is when they are taken, not when it was."""

    async def turn(self, loop: Activation, tell: Tell) -> str:
        """A list that is written to ahead of the step that it belongs to."""
        seen: list[str] = list(loop.restored or [])
        if "ask" not in seen:
            async with loop.model_call(lambda: seen):
                seen.append("ask")
                await tell("ask")
        await tell("use a tool")
        await loop.boundary(lambda: seen)
        return "+".join(seen)


KILLED = "test_killed_in_any_step_it_goes_on_as_if_nothing_had_been"
FLIGHT = "test_killed_while_a_repeatable_step_is_in_flight_it_makes_that_again"
TWICE = "test_a_second_checkpoint_before_the_replacement_starts_loses_nothing"
CASES: Sequence[tuple[type[Any], str]] = [
    (Forgetful, KILLED),
    (Forgetful, TWICE),
    (Careless, FLIGHT),
    (Late, KILLED),
    (Ajar, "test_a_run_of_no_rollout_is_refused_before_its_first_step"),
    (Ajar, KILLED),
    (Detached, "test_a_restored_episode_goes_on_with_its_own_task_only"),
    (Restless, KILLED),
    (Aliased, FLIGHT),
]


@pytest.mark.parametrize(("server", "test"), CASES)
def test_the_contract_finds(server: type[Any], test: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - of whatever kind, it has to be seen
        getattr(server(), test)()
