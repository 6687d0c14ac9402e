"""An agent's loop: at a boundary, held, continued."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ckptfmt.schema import AgentRecord
from participant.core.steps import StepMode
from participant.hooks import Scope
from participant.roles.agent import Activation
from participant.testing.clock import settle
from tests.support.participants import R1, R2
from tests.support.role_worlds import AgentServer, Loop, Owner, ended, value

pytestmark = pytest.mark.anyio
R1_NEXT = R1.continuation


async def test_waiting_for_the_model_right_after_a_boundary_is_being_at_it() -> None:
    """P85, P86: the snapshot is made only when it is exported."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    task = server.activate(loop)
    await settle()
    assert server.counts == {"sessions": 1, "at_boundary": 1}
    assert (await server.send("prepare")).phase == "prepared"
    assert loop.snapshots == 0
    await server.send("commit", episodes=[R1])
    assert loop.snapshots == 1
    await ended(task)


async def test_a_reply_that_arrives_while_a_checkpoint_is_open_is_held_until_resume() -> None:
    """P85: readiness cannot go back, and nothing of the reply is in the checkpoint."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    task = server.activate(loop)
    await settle()
    await server.send("prepare")
    loop.answers.release()
    await settle()
    assert server.participant.status().report.ready
    assert (loop.messages, server.counts["at_boundary"]) == (["question"], 1)
    (record,) = await server.saved(R1)
    assert value(record.boundary) == ["question"]
    await server.send("resume")
    await settle()
    assert loop.messages == ["question", "answer 1"]
    await ended(task)


async def test_a_failure_of_the_model_call_is_held_until_resume_too() -> None:
    """P30, P36."""
    server, go, seen = AgentServer(), asyncio.Event(), list[str]()
    await server.seeded("s")

    async def work(loop: Activation) -> None:
        try:
            async with loop.model_call(lambda: None):
                await go.wait()
                raise ConnectionError("lost")
        except ConnectionError:
            seen.append("failure")
            raise

    task = server.activate(work)
    await settle()
    await server.send("prepare")
    go.set()
    await settle()
    assert seen == []
    await server.send("resume")
    with pytest.raises(ConnectionError):
        await task
    assert (seen, server.leftovers) == (["failure"], {})


async def test_tools_are_waited_for_and_the_boundary_after_them_is_parked_at() -> None:
    server, go, later = AgentServer(), asyncio.Event(), list[str]()
    await server.seeded("s")

    async def work(loop: Activation) -> None:
        async with loop.model_call(lambda: "before"):
            pass
        await go.wait()
        await loop.boundary(lambda: "after the tools")
        later.append("on")

    task = server.activate(work)
    await settle()
    prepare = asyncio.create_task(server.send("prepare"))
    await settle()
    assert (prepare.done(), server.counts["at_boundary"]) == (False, 0)
    go.set()
    await prepare
    (record,) = await server.saved(R1)
    assert (value(record.boundary), later) == ("after the tools", [])
    await server.send("resume")
    await task


async def test_a_snapshot_describes_the_loop_as_of_its_boundary() -> None:
    """P86: whatever live lists hold by then, and whatever becomes of them later."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    task = server.activate(loop)
    await settle()
    await server.send("prepare")
    loop.messages.append("written by somebody else")
    (record,) = await server.saved(R1)
    loop.messages.insert(0, "later")
    server.hooks.notes["s"].append("later")
    assert (value(record.boundary), value(record.session)) == (["question"], ["of s"])
    await ended(task)


async def test_a_restored_session_goes_on_from_its_boundary_and_idle_ones_are_idle() -> None:
    """P61, P80."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s", "idle")
    await server.seeded("t", episode=R2)
    task = server.activate(loop)
    await settle()
    loop.answers.release()
    await settle()
    records = await server.saved(R1, R2)
    assert [r.key for r in records] == ["r1/s", "r1/idle", "r2/t"]
    assert [value(r.boundary) for r in records] == [["question", "answer 1"], None, None]
    assert [r.episode for r in records] == [None, None, None]
    await ended(task)
    fresh = await server.restarted(R1, R2)
    assert fresh.hooks.notes == {"s": ["of s"], "idle": ["of idle"], "t": ["of t"]}
    again = Loop()
    for _ in range(2):
        again.answers.release()
    whole = ["question", "answer 1", "answer 2", "answer 3"]
    assert await fresh.activate(again, episode=R1_NEXT) == whole
    assert again.asked == 2
    second = Loop()
    for _ in range(3):
        second.answers.release()
    assert await fresh.activate(second, "idle", R1_NEXT) == whole
    assert fresh.leftovers == {"pending": 1}  # That of r2, which nobody continued.


async def test_what_is_restored_is_told_to_one_activation_only() -> None:
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    task = server.activate(loop)
    await settle()
    await server.saved(R1)
    await ended(task)
    fresh = await server.restarted(R1)
    told: list[Any] = []

    async def work(loop: Activation) -> None:
        told.append(loop.restored)

    for _ in range(2):
        await fresh.activate(work, episode=R1_NEXT)
    assert told == [["question"], None]


async def test_a_second_checkpoint_has_a_restored_session_under_its_new_attempt() -> None:
    """P44: before it starts, and before its first boundary of its own."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    task = server.activate(loop)
    await settle()
    await server.saved(R1)
    await ended(task)
    fresh = await server.restarted(R1)
    go = asyncio.Event()

    async def slow(loop: Activation) -> None:
        async with loop.step(StepMode.REPLAY):
            await go.wait()

    for work in (None, slow):
        task = asyncio.create_task(asyncio.sleep(0))
        if work is not None:
            task = fresh.activate(work, episode=R1_NEXT)
            await settle()
        (record,) = (await fresh.hooks.export(Scope.of([R1_NEXT]))).records
        assert isinstance(record, AgentRecord)
        assert (record.key, value(record.boundary)) == ("r1-a1/s", ["question"])
        go.set()
        await task


async def test_a_session_whose_loop_has_ended_is_exported_at_its_last_boundary() -> None:
    """Its caller may be lost before it had the reply: nothing of the loop runs again."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    for _ in range(3):
        loop.answers.release()
    whole = await server.activate(loop)
    (record,) = await server.saved(R1)
    assert value(record.boundary) == whole
    fresh = await server.restarted(R1)
    again = Loop()
    assert await fresh.activate(again, episode=R1_NEXT) == whole
    assert again.asked == 0


async def test_an_agent_that_owns_episodes_parks_at_their_steps_and_goes_on_there() -> None:
    """Record member ``episode``: of one that has just begun too, so that it is known."""
    steps: list[str] = []
    reached = asyncio.Event()

    async def work(loop: Activation) -> Any:
        state = loop.restored_episode or {"stage": "new"}
        if state["stage"] == "new":
            async with loop.step(StepMode.REPLAY):
                reached.set()
                await asyncio.sleep(0)
                steps.append("seed")
            state = {"stage": "seeded", "cookie": "c"}
            await loop.episode_boundary(state)
        if state["stage"] == "seeded":
            async with loop.model_call(lambda: ["asked"]):
                steps.append("resumed" if loop.restored else "asked")
                await asyncio.sleep(0 if loop.restored else 1e6)
            state = {"stage": "done"}
            await loop.episode_boundary(state)
        return state

    server = AgentServer(hooks=Owner())
    task = server.activate(work)
    await reached.wait()
    (early,) = (await server.hooks.export(Scope.of(None))).records
    assert value(early.episode) == {}  # type: ignore[attr-defined]
    await settle()
    (late,) = await server.saved(R1)
    assert (value(late.episode), value(late.boundary)) == (
        {"stage": "seeded", "cookie": "c"},
        ["asked"],
    )
    await ended(task)
    fresh = await server.restarted(R1, hooks=Owner())
    ending = fresh.activate(work, episode=R1_NEXT)
    assert await ending == {"stage": "done"}
    assert steps == ["seed", "asked", "resumed"]
    assert (fresh.counts["sessions"], fresh.leftovers) == (0, {})


async def test_an_agent_that_does_not_own_episodes_has_no_boundary_of_one() -> None:
    server = AgentServer()
    await server.seeded("s")
    with pytest.raises(RuntimeError, match="does not own episodes"):
        await server.activate(lambda loop: loop.episode_boundary({}))


async def test_the_reply_of_a_whole_episode_is_held_with_its_session() -> None:
    """P32."""
    server, go = AgentServer(hooks=Owner()), asyncio.Event()

    async def work(loop: Activation) -> str:
        await loop.episode_boundary({"stage": "done"})
        async with loop.step(StepMode.REPLAY):
            await go.wait()
        return "reward"

    task = server.activate(work)
    await settle()
    await server.send("prepare")
    go.set()
    (kept,) = await server.saved(R1)
    assert (value(kept.episode), task.done()) == ({"stage": "done"}, False)
    await server.send("resume")
    assert await task == "reward"
    assert server.leftovers == {}
