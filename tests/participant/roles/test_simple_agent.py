"""The worked example of an agent: a loop of model calls and tools that can be interrupted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ckptfmt.identity import EpisodeId
from participant.roles.simple_agent import Message, SimpleAgent
from participant.testing.clock import settle
from participant.testing.one_server import OneServer
from tests.support.participants import R1

pytestmark = pytest.mark.anyio
REQUEST: list[Message] = [{"role": "user", "content": "add up"}]


class World:
    """A model that asks for tools three times and then answers; all calls are counted."""

    def __init__(self, storage: Any = None, max_turns: int = 32) -> None:
        self.agent = SimpleAgent(max_turns=max_turns)
        self.server = OneServer("agent", self.agent, storage)
        self.asked: list[int] = []
        self.used: list[str] = []
        self.hangs_at: int | None = None
        self.may_use = asyncio.Event()
        self.may_use.set()

    async def ask(self, messages: list[Message]) -> Message:
        """The next reply is known by the number of replies so far."""
        turn = sum(message["role"] == "assistant" for message in messages)
        self.asked.append(turn)
        if turn == self.hangs_at:
            await asyncio.sleep(1e6)
        if turn == 3:
            return {"role": "assistant", "content": "six"}
        calls = [
            {"id": f"{turn}.{n}", "function": {"name": "add", "arguments": f'{{"by": {n}}}'}}
            for n in range(turn)
        ]
        return {"role": "assistant", "tool_calls": calls or [self.call(turn)]}

    def call(self, turn: int) -> Any:
        """A call of another tool."""
        return {"id": f"{turn}", "function": {"name": "look", "arguments": "{}"}}

    async def use(self, name: str, arguments: str) -> str:
        """Answer with how often tools were used."""
        await self.may_use.wait()
        self.used.append(name)
        return f"{name} {arguments}"

    def respond(
        self, episode: EpisodeId = R1, request: list[Message] | None = None
    ) -> asyncio.Task[list[Message]]:
        """Begin an activation."""
        work = self.agent.respond(episode, "s", request or REQUEST, self.ask, self.use)
        return asyncio.create_task(work)

    async def seed(self, episode: EpisodeId = R1) -> None:
        """Seed the session."""
        async with self.agent.seed(episode, "s"):
            pass

    async def save(self) -> None:
        """Prepare and commit."""
        assert (await self.server.send("prepare")).phase == "prepared"
        await self.server.send("commit", episodes=[R1])


async def whole() -> tuple[World, list[Message]]:
    """An uninterrupted run."""
    world = World()
    await world.seed()
    return world, await world.respond()


async def restarted(world: World, max_turns: int = 32) -> World:
    """A fresh process with what was saved."""
    fresh = World(world.server.storage, max_turns)
    await fresh.server.send("restore", "back", episodes=[R1])
    await fresh.server.send("resume", "back")
    return fresh


async def test_it_asks_the_model_until_it_wants_no_more_tools() -> None:
    world, messages = await whole()
    roles = [message["role"] for message in messages]
    assert roles == ["user", *["assistant", "tool"] * 2, "assistant", "tool", "tool", "assistant"]
    assert (world.asked, world.used) == ([0, 1, 2, 3], ["look", "add", "add", "add"])
    assert messages[2] == {"role": "tool", "tool_call_id": "0", "content": "look {}"}


@pytest.mark.parametrize("turn", [0, 1, 2, 3])
async def test_killed_at_any_model_call_it_goes_on_there_and_uses_no_tool_twice(turn: int) -> None:
    """P61, P85: only the call in flight is asked again."""
    expected, messages = await whole()
    world = World()
    await world.seed()
    world.hangs_at = turn
    task = world.respond()
    await settle()
    await world.save()
    fresh = await restarted(world)
    assert await fresh.respond(R1.continuation) == messages
    assert world.used + fresh.used == expected.used
    assert fresh.asked == [0, 1, 2, 3][turn:]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_killed_after_a_round_of_tools_it_repeats_none_of_them() -> None:
    expected, messages = await whole()
    world = World()
    await world.seed()
    world.may_use.clear()
    task = world.respond()
    await settle()
    saving = asyncio.create_task(world.save())
    await settle()
    assert not saving.done()
    world.may_use.set()
    await saving
    assert (world.used, world.asked) == (["look"], [0])
    fresh = await restarted(world)
    assert await fresh.respond(R1.continuation) == messages
    assert world.used + fresh.used == expected.used
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_at_the_last_turn_that_is_permitted_it_neither_fails_nor_takes_another() -> None:
    """P81."""
    world = World(max_turns=2)
    await world.seed()
    messages = await world.respond()
    assert world.asked == [0, 1]
    await world.save()
    fresh = await restarted(world, max_turns=2)
    assert await fresh.respond(R1.continuation) == messages
    assert (fresh.asked, fresh.used) == ([], [])


async def test_another_request_than_the_restored_one_begins_from_its_input() -> None:
    world, messages = await whole()
    await world.save()
    fresh = await restarted(world)
    other = [*messages, {"role": "user", "content": "and now?"}]
    assert (await fresh.respond(R1.continuation, other))[: len(other)] == other


async def test_a_failure_of_model_or_tool_fails_the_activation_and_is_no_message() -> None:
    """P30, P36."""
    world = World()
    await world.seed()

    async def broken(name: str, arguments: str) -> str:
        raise ConnectionError("the resources server is gone")

    with pytest.raises(ConnectionError):
        await world.agent.respond(R1, "s", REQUEST, world.ask, broken)
    assert world.server.leftovers == {}
