"""An agent server's sessions: seeded, closed, exported, restored, retired."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ckptfmt.errors import CorruptError
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record
from ckptfmt.schema import AgentRecord
from participant.core.errors import (
    CheckpointParkedError,
    InvalidCheckpointStateError,
    InvalidPhaseError,
    InvalidRequestError,
    RolloutIdRequiredError,
    StaleAttemptError,
)
from participant.hooks import Scope
from participant.roles.agent import Activation, LoopOnlyHooks
from participant.testing.clock import settle
from tests.support.participants import R1, R2
from tests.support.role_worlds import AgentServer, Loop, Notes, Owner, ended

pytestmark = pytest.mark.anyio
R1_NEXT = R1.continuation


async def test_work_without_a_rollout_is_refused_before_any_side_effect() -> None:
    """P5."""
    server = AgentServer()
    for entrance in (server.hooks.seed(None, "s"), server.hooks.activate(None, "s")):
        with pytest.raises(RolloutIdRequiredError):
            async with entrance:
                pytest.fail("it ran")
    assert server.hooks.retired == []


async def test_where_checkpointing_is_off_sessions_go_through_and_nothing_is_kept() -> None:
    """P10."""
    hooks = Notes()
    async with hooks.seed(None, "s"):
        hooks.notes["s"] = []
    async with hooks.activate(None, "s") as loop, loop.model_call(lambda: pytest.fail("exported")):
        assert loop.restored is None
    assert list(hooks.held()) == []
    await hooks.close(None, "s")
    assert hooks.notes == {}


async def test_a_seed_that_arrives_while_closed_waits_and_one_in_progress_blocks() -> None:
    """P87: until it has registered."""
    server, go = AgentServer(), asyncio.Event()

    async def seed(key: str) -> None:
        async with server.hooks.seed(R1, key):
            await go.wait()
            server.hooks.notes[key] = []

    first = asyncio.create_task(seed("a"))
    await settle()
    prepare = asyncio.create_task(server.send("prepare"))
    await settle()
    second = asyncio.create_task(seed("b"))
    await settle()
    assert (prepare.done(), server.counts) == (False, {"sessions": 0, "at_boundary": 0})
    go.set()
    await prepare
    await first
    assert server.counts == {"sessions": 1, "at_boundary": 0}
    assert not second.done()
    await server.send("resume")
    await second
    assert server.counts == {"sessions": 2, "at_boundary": 0}
    assert server.leftovers == {}


async def test_a_seed_that_fails_or_is_retired_frees_what_it_built() -> None:
    """P88."""
    server = AgentServer()
    with contextlib.suppress(ConnectionError):
        async with server.hooks.seed(R1, "a"):
            server.hooks.notes["a"] = []
            raise ConnectionError
    assert (server.hooks.retired, server.hooks.notes, server.leftovers) == (["a"], {}, {})

    async def seed() -> None:
        async with server.hooks.seed(R1, "b"):
            server.hooks.notes["b"] = []
            await asyncio.sleep(1e6)

    task = asyncio.create_task(seed())
    await settle()
    await server.send("retire", "any", episodes=[R1])
    with pytest.raises(StaleAttemptError):
        await task
    await settle()
    assert (server.hooks.notes, list(server.hooks.held()), server.leftovers) == ({}, [], {})


async def test_a_session_of_another_attempt_is_not_seeded_activated_or_closed() -> None:
    """P88, P62."""
    server = AgentServer()
    await server.seeded("s")
    other = R1_NEXT
    with pytest.raises(StaleAttemptError, match="session s belongs to r1"):
        await server.seeded("s", episode=other)
    with pytest.raises(StaleAttemptError):
        await server.activate(Loop(), episode=other)
    with pytest.raises(StaleAttemptError):
        await server.hooks.close(other, "s")
    assert server.hooks.notes == {"s": ["of s"]}


async def test_the_same_attempt_may_seed_again_and_starts_its_session_over() -> None:
    server = AgentServer()
    await server.seeded("s")
    server.hooks.notes["s"].append("old")
    await server.seeded("s")
    assert (server.hooks.retired, server.hooks.notes) == (["s"], {"s": ["of s"]})
    assert server.counts["sessions"] == 1


async def test_a_second_activation_of_a_session_is_not_carried_out() -> None:
    """P33; nor is its session closed under it."""
    server, loop = AgentServer(), Loop()
    await server.seeded("s")
    task = server.activate(loop)
    await settle()
    with pytest.raises(CheckpointParkedError):
        await server.activate(Loop())
    with pytest.raises(CheckpointParkedError):
        await server.seeded("s")
    with pytest.raises(CheckpointParkedError):
        await server.hooks.close(R1, "s")
    assert server.hooks.retired == []
    await ended(task)


async def test_a_session_that_nobody_seeded_is_not_activated() -> None:
    server = AgentServer()
    with pytest.raises(InvalidRequestError, match="seed it first"):
        await server.activate(Loop())
    assert server.leftovers == {}


async def test_a_closed_session_is_gone() -> None:
    """P74."""
    server = AgentServer()
    await server.seeded("s")
    await server.hooks.close(R1, "s")
    await server.hooks.close(R1, "s")
    assert (server.hooks.notes, server.hooks.retired) == ({}, ["s", "s"])
    assert server.counts["sessions"] == 0
    assert await server.saved() == []


async def test_a_retire_ends_the_loop_and_then_retires_the_session() -> None:
    """P64, P71, P73: inner tasks too; look-alikes stay."""
    server, order, go = AgentServer(), list[str](), asyncio.Event()
    await server.seeded("s", "idle")
    await server.seeded("x", episode=EpisodeId("r1x"))

    async def inner() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1e6)
        await go.wait()
        order.append("inner ended")

    async def work(loop: Activation) -> None:
        loop.create_task(inner())
        await asyncio.sleep(1e6)

    task = server.activate(work)
    await settle()
    retire = asyncio.create_task(server.send("retire", "any", episodes=[R1]))
    await settle()
    assert (retire.done(), server.hooks.retired) == (False, [])
    go.set()
    await retire
    assert (order, server.hooks.retired) == (["inner ended"], ["idle", "s"])
    assert server.hooks.notes == {"x": ["of x"]}
    with pytest.raises(StaleAttemptError):
        await task
    assert server.leftovers == {}


async def test_a_retire_of_a_session_whose_hook_fails_is_tried_again() -> None:
    """P68, P107."""
    server = AgentServer()
    await server.seeded("s")
    good, server.hooks.retire_agent_session = server.hooks.retire_agent_session, _fails  # type: ignore[method-assign]
    with pytest.raises(Exception, match="RuntimeError"):
        await server.send("retire", "any", episodes=[R1])
    assert list(server.hooks.held()) == ["r1"]
    server.hooks.retire_agent_session = good  # type: ignore[method-assign]
    await server.send("retire", "any", episodes=[R1])
    assert (list(server.hooks.held()), server.hooks.notes) == ([], {})


async def _fails(key: str) -> None:
    raise RuntimeError("the sandbox does not answer")


async def test_a_scope_that_leaves_a_restored_session_out_releases_it() -> None:
    """P45."""
    server = AgentServer()
    await server.seeded("s")
    await server.seeded("t", episode=R2)
    await server.saved(R1, R2)
    fresh = await server.restarted(R1, R2)
    await fresh.send("prepare", "second")
    await fresh.send("commit", "second", episodes=[R2.continuation], checkpoint_dir="dir2")
    await fresh.send("resume", "second")
    assert fresh.hooks.notes == {"t": ["of t"]}
    await fresh.seeded("s", episode=R1_NEXT)


async def test_an_agent_that_cannot_continue_refuses_a_checkpoint_at_once_and_says_why() -> None:
    """P89."""

    class Bound(LoopOnlyHooks):
        cannot_continue = "its sandbox dies with the process"

    server = AgentServer(hooks=Bound())
    assert (await server.send("prepare", "empty")).phase == "prepared"
    await server.send("commit", "empty", episodes=[])
    await server.send("resume", "empty")
    async with server.hooks.seed(R1, "s"):
        pass
    with pytest.raises(InvalidPhaseError, match="its sandbox dies with the process"):
        await server.send("prepare")
    assert not server.participant.is_closed
    assert server.participant.status().extras == {"accepting": True}
    with pytest.raises(InvalidPhaseError):
        await server.hooks.export(Scope.of(None))


async def test_the_status_tells_whether_work_is_accepted() -> None:
    server = AgentServer()
    assert server.participant.status().extras == {"accepting": True}
    await server.send("prepare")
    assert server.participant.status().extras == {"accepting": False}
    await server.send("resume")
    assert server.participant.status().extras == {"accepting": True}


async def test_an_export_that_leaves_a_session_out_is_refused() -> None:
    server = AgentServer()
    await server.seeded("s")
    del server.hooks.notes["s"]
    with pytest.raises(InvalidCheckpointStateError, match="nothing of session s of r1"):
        await server.hooks.export(Scope.of(None))


def record(key: str = "s", of: EpisodeId = R1, **members: Any) -> AgentRecord:
    """A record."""
    given = {"session": [], "boundary": None, "episode": None, **members}
    payloads = {n: None if v is None else JsonPayload.from_value(v) for n, v in given.items()}
    return AgentRecord(episode_id=of, session_key=key, **payloads)  # type: ignore[arg-type]


async def test_all_sessions_are_restored_or_none() -> None:
    """P55, P60."""
    hooks = AgentServer().hooks
    attempts = frozenset({R1_NEXT, R2.continuation})
    broken = JsonPayload.stored(b'{"a":[1]}', b'[["/b","tuple"]]')
    cases: list[tuple[Any, type[Exception]]] = [
        (Record(episode_id=R2, members={}), InvalidCheckpointStateError),
        (record("s", R2), InvalidCheckpointStateError),
        (record("t", R2, episode={}), InvalidCheckpointStateError),
        (
            AgentRecord(
                episode_id=R2, session_key="t", session=broken, boundary=None, episode=None
            ),
            CorruptError,
        ),
        (
            AgentRecord(
                episode_id=R2,
                session_key="t",
                session=JsonPayload.from_value(1),
                boundary=broken,
                episode=None,
            ),
            CorruptError,
        ),
    ]
    for bad, error in cases:
        with pytest.raises(error):
            await hooks.install([record(), bad], attempts)
    hooks.refuses = True
    with pytest.raises(ValueError, match="no room"):
        await hooks.install([record(), record("t", R2)], attempts)
    assert (hooks.notes, list(hooks.held())) == ({}, [])
    with pytest.raises(InvalidCheckpointStateError, match="is no episode"):
        await Owner().install([record()], attempts)
