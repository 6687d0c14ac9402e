"""Servers of a job that are killed in each phase, stuck, or left alone by their controller.

One job serves the tests that do not need fresh processes: what is killed is replaced at its
address.  The episodes of each test have names of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

import aiohttp
import pytest

from ckptfmt.identity import EpisodeId
from examples.job.controller import PATIENCE, Controller, connected
from examples.job.processes import Processes, start
from examples.job.setup import KINDS, Journal
from participant import coordination
from participant.attribution import prefixed
from participant.coordination import Fleet
from participant.core.phases import Phase
from participant.errors import CoordinationError, CoordinationRetryError
from tests.support.job_lives import (
    eventually,
    in_play,
    phase_of,
    playing,
    small_tasks,
    status_of,
    stored,
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Servers for many tests; none of them is fresh after the first."""
    with start(tmp_path_factory.mktemp("servers")) as processes:
        yield processes


class Incident:
    """A server of a kind dies in a checkpoint of the id ``ck``."""

    def __init__(self, servers: Processes, kind: str, ck: str) -> None:
        self.servers = servers
        self.kind = kind
        self.ck = ck
        self.dead = servers.setup.addresses[kind]

    async def is_fatal(self, operation: Awaitable[object]) -> None:
        """The operation fails by the dead server, and by no other."""
        with pytest.raises(CoordinationError) as caught:
            await operation
        assert set(caught.value.failures) == {self.dead}

    async def others_go_on(self, controller: Controller) -> None:
        """Resume names the dead server, and everybody else is open."""
        await self.is_fatal(coordination.resume(controller.control, controller.fleet, self.ck, 10))
        for member in controller.fleet.members:
            if member.server != self.dead:
                assert await phase_of(controller, member.server) is Phase.IDLE

    async def is_over(self, controller: Controller, episodes: list[EpisodeId]) -> None:
        """With a fresh process in its place, nobody holds anything once it is retired."""
        self.servers.replace(self.kind)
        await coordination.retire(controller.control, controller.fleet, "away", episodes, 30)
        for member in controller.fleet.members:
            status = await status_of(controller, member.server)
            assert status["phase"] == Phase.IDLE
            assert not any(status["report"]["counts"].values()), (member, status)


def said(servers: Processes, journal: str, prefix: str) -> int:
    """How many lines of a journal are of rollouts that begin so."""
    lines = Journal.read(servers.setup.folder / f"{journal}.jsonl")
    return sum(line["rollout"].startswith(prefix) for line in lines)


async def dies_when_idle(incident: Incident, controller: Controller) -> None:
    incident.servers.kill(incident.kind)
    await incident.is_fatal(controller.checkpoint(incident.ck))


async def dies_when_preparing(incident: Incident, controller: Controller) -> None:
    """It is waited for; everybody before it is prepared, nobody after it is asked."""
    fleet = await _prepared_up_to(incident, controller)
    assert await phase_of(controller, incident.dead) is Phase.PREPARING
    incident.servers.kill(incident.kind)
    await incident.is_fatal(coordination.prepare(controller.control, fleet, incident.ck, 10))


async def _prepared_up_to(incident: Incident, controller: Controller) -> Fleet:
    fleet = controller.fleet
    if incident.kind == "resources":
        # What runs there blocks the agent, which comes before it: so it is asked alone.
        members = [m for m in fleet.members if m.server == incident.dead]
        fleet = replace(fleet, members=tuple(members))
    prepared = await coordination.prepare(controller.control, fleet, incident.ck, 1)
    assert not prepared.prepared
    assert set(prepared.blockers) == {incident.dead}
    return fleet


async def dies_when_prepared(incident: Incident, controller: Controller) -> None:
    with controller.paused():
        prepared = await coordination.prepare(controller.control, controller.fleet, incident.ck, 30)
        assert prepared.prepared
        incident.servers.kill(incident.kind)
        place = controller.store.checkpoint_dir(incident.ck)
        await incident.is_fatal(
            coordination.commit(
                controller.control, controller.fleet, incident.ck, place, controller.scope, 10
            )
        )


async def dies_when_committed(incident: Incident, controller: Controller) -> None:
    """What it stored is there, so the checkpoint is published without it."""
    commits = await controller.commit(incident.ck)
    incident.servers.kill(incident.kind)
    published = await controller.publish(commits)
    assert published.checkpoint_id == incident.ck


DEATHS: dict[str, Callable[[Incident, Controller], Awaitable[None]]] = {
    "idle": dies_when_idle,
    "prepared": dies_when_prepared,
    "committed": dies_when_committed,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", DEATHS)
def test_a_server_that_is_killed(kind: str, phase: str, servers: Processes) -> None:
    """The operation under way names it, everybody else goes on, and it can be replaced."""
    incident = Incident(servers, kind, f"{phase}-{kind}")
    tasks = small_tasks(2, prefix=f"{incident.ck}.", step_s=0.05)

    async def story() -> None:
        async with playing(servers, tasks) as controller:
            await eventually(lambda: said(servers, "steps", incident.ck) > 2)
            await DEATHS[phase](incident, controller)
            await incident.others_go_on(controller)
            await incident.is_over(controller, [EpisodeId(rollout_id) for rollout_id in tasks])

    asyncio.run(story())
    place = servers.setup.folder / "run" / incident.ck / "checkpoint.json"
    assert place.exists() == (phase == "committed")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that hangs meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def stream(servers: Processes, rollout_id: str, token_s: float) -> AsyncIterator[None]:
    """A call to the model whose reply has started."""
    address = servers.setup.addresses["model"]
    url = prefixed(f"{address}/v1/chat/completions", EpisodeId(rollout_id))
    messages = [{"role": "user", "content": "tell me"}]
    body = {"messages": messages, "token_s": token_s, "stream": True}
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        assert response.status == 200
        await response.content.readany()
        yield


@asynccontextmanager
async def busy(servers: Processes, kind: str, ck: str) -> AsyncIterator[Controller]:
    """Work of the rollout ``<ck>.0-0`` for which a checkpoint has to wait at this kind."""
    # Only the use of a tool takes long; the model is called from here.
    tasks = {} if kind == "model" else small_tasks(1, prefix=f"{ck}.", step_s=60.0)
    async with AsyncExitStack() as stack:
        controller = await stack.enter_async_context(connected(servers.setup, tasks))

        async def count(kind: str, name: str) -> bool:
            status = await status_of(controller, servers.setup.addresses[kind])
            return bool(status["report"]["counts"][name])

        if kind == "environment":
            # It seeds its sessions, and that does not end.
            stack.enter_context(stopped(servers["resources"]))
        await stack.enter_async_context(in_play(controller))
        if kind == "model":
            await stack.enter_async_context(stream(servers, f"{ck}.0-0", 0.4))
        elif kind == "environment":
            await eventually(lambda: count("environment", "episodes"))
        else:
            await eventually(lambda: said(servers, "calls", ck))
            await eventually(lambda: count("resources", "inflight"))
        yield controller


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_while_a_checkpoint_waits_for_it(
    kind: str, servers: Processes
) -> None:
    incident = Incident(servers, kind, f"preparing-{kind}")

    async def story() -> None:
        async with busy(servers, kind, incident.ck) as controller:
            await dies_when_preparing(incident, controller)
            if kind == "environment":
                os.kill(servers["resources"], signal.SIGCONT)
            await incident.others_go_on(controller)
            await incident.is_over(controller, [EpisodeId(f"{incident.ck}.0-0")])

    asyncio.run(story())


def test_a_straggler_is_retired_and_the_next_checkpoint_does_without(servers: Processes) -> None:
    """P69: resume, retire, checkpoint again."""
    others = small_tasks(2, prefix="quick.", step_s=0.02)
    straggler = small_tasks(1, prefix="slow.", step_s=60.0)

    async def story() -> None:
        async with playing(servers, {**straggler, **others}) as controller:
            await eventually(lambda: said(servers, "calls", "slow."))
            await eventually(lambda: said(servers, "steps", "quick.") > 2)
            with pytest.raises(CoordinationRetryError, match=r"slow\.0-0"):
                await controller.checkpoint("late", replace(PATIENCE, prepare_s=1))
            slow = [e for e in controller.scope if e.rollout_id in straggler]
            await coordination.retire(controller.control, controller.fleet, "late", slow, 30)
            await eventually(lambda: slow[0] not in controller.scope)
            await controller.checkpoint("without")

    asyncio.run(story())
    place = servers.setup.folder / "run" / "without"
    assert not {e for e in stored(place) if e.startswith("slow.")}


def test_control_calls_pass_though_every_data_connection_is_held(servers: Processes) -> None:
    """P113: the one connection for runs is held by a run that the checkpoint parks."""
    tasks = small_tasks(3, prefix="narrow.")

    async def story() -> None:
        async with playing(servers, tasks, connections=1) as controller:
            await eventually(lambda: said(servers, "steps", "narrow."))
            assert len(controller.scope) == 3
            await controller.checkpoint("narrow")
            await eventually(lambda: tasks.keys() <= controller.results.keys())

    asyncio.run(story())
