"""Control requests that are lost, delayed, doubled and reordered, and replies that get lost.

Whatever arrives when: the server ends idle and open, holds nothing, every manifest is
whole, and none appears for a checkpoint whose resume was answered.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

import participant
from ckptfmt.identity import EpisodeId
from participant.roles.generic import StateTable
from participant.runtime.shell import Components, Participant
from participant.settings import Settings
from participant.testing.clock import FakeClock
from participant.testing.cluster import Delivery, MemoryCluster
from participant.testing.storage import MemoryStorage
from participant.transport import TransportError
from tests.support.participants import R1, TOKEN, until

FENCED = {"stale_checkpoint", "checkpoint_conflict", "invalid_phase", "deadline_exceeded"}


class Sent(NamedTuple):
    """One command, what becomes of it on its way, and how long the next one is in coming."""

    command: str
    checkpoint_id: str
    delivery: Delivery
    then_s: float


SENT = st.builds(
    Sent,
    st.sampled_from(["prepare", "commit", "commit", "renew", "resume", "retire"]),
    st.sampled_from(["ck1", "ck2"]),
    st.builds(
        Delivery,
        st.sampled_from([0.0, 0.0, 1.0, 5.0, 40.0]),
        st.sampled_from([1, 1, 2, 0]),
        st.booleans(),
    ),
    st.sampled_from([0.0, 0.0, 2.0, 20.0]),
)


class World:
    """A server with an episode that steps on and on, behind a network that does as it likes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.storage = MemoryStorage()
        self.hooks = StateTable()
        self.cluster = MemoryCluster(self.clock, TOKEN)
        app = Starlette()
        installed = participant.install(
            app,
            self.hooks,
            Settings(enabled=True, control_auth_token=TOKEN),
            kind="counter",
            instance="c",
            components=Components(self.storage, self.clock),
        )
        assert installed is not None
        self.server: Participant = installed
        self.cluster.add("s", app)
        self.resumed: dict[str, bool] = {}
        self.episode = asyncio.ensure_future(self.work())

    async def work(self) -> None:
        """Step until retired."""
        async with self.server.admission.enter(R1) as execution:
            for number in range(1_000_000):
                async with execution.step():
                    await self.clock.sleep_until(self.clock.monotonic() + 7)
                self.hooks[R1] = number
                await execution.boundary(number)

    def is_published(self, checkpoint_id: str) -> bool:
        """Whether a manifest of this checkpoint stands somewhere."""
        stored = self.storage.stored.values()
        return any(s.checkpoint_id == checkpoint_id and s.records is not None for s in stored)

    async def send(self, sent: Sent) -> None:
        """Send one command, and note what its reply promises."""
        members: dict[str, Any] = {
            "checkpoint_id": sent.checkpoint_id,
            "deadline_ts": self.clock.wall() + 30,
        }
        if sent.command == "commit":
            members |= {"checkpoint_dir": sent.checkpoint_id, "episode_ids": None}
        if sent.command == "retire":
            members["episode_ids"] = [{"rollout_id": "r9", "attempt": 0}]
        self.cluster.deliver = lambda server, command: sent.delivery
        try:
            reply = await self.cluster.call("s", sent.command, members, 35)
        except TransportError:
            return
        if reply.status != 200:
            assert reply.members["error"]["code"] in FENCED
        elif sent.command == "resume" and self.server.status().publication is None:
            self.resumed.setdefault(sent.checkpoint_id, self.is_published(sent.checkpoint_id))


async def play(story: list[Sent]) -> None:
    """Send everything, wait for the last lease to run out, and look."""
    world = World()
    tasks = []
    for sent in story:
        tasks.append(asyncio.ensure_future(world.send(sent)))
        await world.clock.advance(sent.then_s)
    for _ in range(8):
        await world.clock.advance(100)
        await until(lambda: len(world.server._jobs._io) == 0)
    await asyncio.gather(*tasks)
    status = world.server.status()
    assert (status.phase, status.checkpoint_id, status.publication) == ("idle", None, None)
    assert not world.server.is_closed
    assert not world.episode.done()
    for checkpoint_id, was_published in world.resumed.items():
        assert world.is_published(checkpoint_id) == was_published
    world.episode.cancel()
    await asyncio.gather(world.episode, return_exceptions=True)
    await world.clock.advance(100)
    leftovers = {name: size for name, size in world.server.table_sizes.items() if size}
    assert leftovers == {}
    async with world.server.admission.enter(EpisodeId("probe")):
        pass
    await world.server.close()


@given(st.lists(SENT, min_size=1, max_size=10))
def test_the_server_ends_idle_whatever_the_network_does(story: list[Sent]) -> None:
    asyncio.run(play(story))


@pytest.mark.parametrize("copies", [2, 3])
def test_every_command_of_a_checkpoint_may_arrive_several_times(copies: int) -> None:
    doubled = Delivery(copies=copies)
    asyncio.run(
        play([Sent(c, "ck1", doubled, 2.0) for c in ("prepare", "commit", "renew", "resume")])
    )
