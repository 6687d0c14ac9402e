"""A controller whose network loses, doubles and delays, and whose servers die.

Whatever happens: what is published is whole and of one cut, what failed is never published,
and in the end everybody is idle and open.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ckptfmt.checkpoint import open_checkpoint, verify
from ckptfmt.identity import EpisodeId
from participant.coordination import (
    Patience,
    checkpoint,
    discover,
    find_source,
    restore,
    resume,
)
from participant.errors import CoordinationError, ParticipantError
from participant.testing.cluster import Delivery
from tests.support.jobs import Job, a_job
from tests.support.participants import until

EPISODES = [EpisodeId("r1"), EpisodeId("r2")]
PATIENCE = Patience(
    prepare_s=10, commit_s=10, publish_s=10, resume_s=10, storage_s=10, lease_grace_s=30
)
LEASE_S = 200.0
# Each of these is a job of five servers on a disk.
FEW = settings(max_examples=max(settings().max_examples // 4, 1))

NETWORK = st.lists(
    st.builds(
        Delivery,
        st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0, 8.0, 40.0]),
        st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2, 3, 0]),
        st.sampled_from([False] * 9 + [True]),
    ),
    min_size=1,
    max_size=25,
)


@dataclass(frozen=True)
class Attempt:
    """One checkpoint: what becomes of each of its calls, and who dies at which of them."""

    network: Sequence[Delivery]
    dies: tuple[str, int] | None


ATTEMPTS = st.builds(
    Attempt,
    NETWORK,
    st.none()
    | st.tuples(
        st.sampled_from(["environment-1", "model-1", "agent-1", "resources-2"]),
        st.integers(1, 20),
    ),
)


class World:
    """A job whose episodes step all the time, and its controller."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps = 0
        self.working = [asyncio.ensure_future(self.work(episode)) for episode in EPISODES]

    async def work(self, episode: EpisodeId) -> None:
        """Step and step: a step has to be admitted everywhere, and changes every server."""
        job = self.job
        while True:
            await job.clock.sleep_until(job.clock.monotonic() + 1)
            async with contextlib.AsyncExitStack() as stack:
                for name in ("environment-1", "agent-1", "model-1", "resources-1", "resources-2"):
                    await stack.enter_async_context(job.servers[name].admission.enter(episode))
                await job.clock.sleep_until(job.clock.monotonic() + 1)
                self.steps += 1
                for hooks in job.hooks.values():
                    hooks[episode] = f"{episode.capture_key} at step {self.steps}"

    def unreliable(self, attempt: Attempt) -> None:
        """From here on the network does as the attempt says."""
        deliveries: Iterator[Delivery] = cycle(attempt.network)
        calls = 0

        def deliver(server: str, command: str) -> Delivery:
            nonlocal calls
            calls += 1
            if attempt.dies is not None and attempt.dies[1] == calls:
                died = self.job.servers[attempt.dies[0]]
                self.job.start(died.participant)
            return next(deliveries)

        self.job.cluster.deliver = deliver

    async def stop(self) -> None:
        """End the work."""
        for task in self.working:
            task.cancel()
        await asyncio.gather(*self.working, return_exceptions=True)


def cut_of(place: str) -> dict[str, set[str]]:
    """By episode, the states that the participants stored of it."""
    cuts: dict[str, set[str]] = {}
    checkpoint = open_checkpoint(place)
    for participant in checkpoint.participants:
        for record in checkpoint.participant(participant).records():
            state = _state_of(record)
            cuts.setdefault(record.episode_id.capture_key, set()).add(state)
    return cuts


def _state_of(record: Any) -> str:
    for member in ("boundary", "session", "state"):
        payload = getattr(record, member, None)
        if payload is not None:
            return str(payload.value()["state"])
    return str(record.rows.value()[0]["staging_key"].removeprefix("key of "))


async def play(attempts: list[Attempt], folder: Path) -> None:
    """Take every checkpoint, wait for the last lease to run out, and look."""
    async with a_job(folder, lease_grace_seconds=30.0) as job:
        world = World(job)
        await job.clock.advance(5)
        fleet = await job.discover()
        succeeded: list[str] = []
        failed: list[str] = []
        for number, attempt in enumerate(attempts):
            ck = f"ck{number}"
            world.unreliable(attempt)
            work = checkpoint(job.control, fleet, job.run, ck, lambda: EPISODES, PATIENCE)
            try:
                await job.passing(work, step_s=2.0)
                succeeded.append(ck)
            except CoordinationError as error:
                (succeeded if error.operation == "resume" else failed).append(ck)
        job.deliver(lambda server, command: None)
        await job.clock.advance(LEASE_S)
        await until(lambda: len(job.control.io) == 0)
        await world.stop()
        await job.check_at_rest()
        event(f"{len(succeeded)} published")
        for ck in failed:
            assert not is_published(job, ck)
        for ck in succeeded:
            place = job.run.checkpoint_dir(ck)
            assert list(verify(place)) == []
            assert {len(states) for states in cut_of(place).values()} <= {1}


def is_published(job: Job, ck: str) -> bool:
    """Whether a reader would take it: a tombstone is none."""
    text = Path(job.run.checkpoint_dir(ck), "checkpoint.json")
    return text.exists() and b"tombstone" not in text.read_bytes()


@FEW
@given(st.lists(ATTEMPTS, min_size=1, max_size=3))
def test_what_is_published_is_whole_and_everybody_goes_on(attempts: list[Attempt]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(attempts, Path(folder)))


def test_a_checkpoint_on_a_good_network_succeeds() -> None:
    """The story above is one in which checkpoints can succeed."""

    async def main(folder: Path) -> None:
        async with a_job(folder) as job:
            world = World(job)
            await job.clock.advance(5)
            fleet = await job.discover()
            work = checkpoint(job.control, fleet, job.run, "ck", lambda: EPISODES, PATIENCE)
            await job.passing(work)
            await world.stop()
            cuts = cut_of(job.run.checkpoint_dir("ck"))
            assert set(cuts) == {"r1", "r2"}
            assert all(len(states) == 1 for states in cuts.values())

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


async def restore_story(network: list[Delivery], folder: Path) -> None:
    """Restore over a bad network; then everybody has all of it, or nobody anything."""
    async with a_job(folder, lease_grace_seconds=30.0) as job:
        job.hold(EPISODES)
        fleet = await job.discover()
        await job.passing(checkpoint(job.control, fleet, job.run, "ck", lambda: EPISODES, PATIENCE))
        await job.restart()
        source = await find_source(job.control, job.run, 10)
        assert source is not None
        deliveries = cycle(network)
        calls = [next(deliveries) for _ in range(5)]
        job.deliver(lambda server, command: calls.pop() if calls else None)
        try:
            following = await job.passing(restore(job.control, fleet, "re", source, 10))
        except CoordinationError:
            # A delayed request of the restore finds its id spent.
            await job.clock.advance(LEASE_S)
            for hooks in job.hooks.values():
                await until(lambda hooks=hooks: len(hooks) == 0)  # type: ignore[misc]
        else:
            assert [len(hooks) for hooks in job.hooks.values()] == [2] * 5
            await job.passing(resume(job.control, fleet, "re", 10))
            await job.clock.advance(LEASE_S)
            for name, hooks in job.hooks.items():
                assert [hooks[episode] for episode in following] == [
                    f"{episode.capture_key} at {name}" for episode in EPISODES
                ]
        for server in job.servers.values():
            assert server.status().phase == "idle"
            with contextlib.suppress(ParticipantError):
                async with asyncio.timeout(5), server.admission.enter(EpisodeId("probe")):
                    pass
        await discover(job.control, job.servers)


@FEW
@given(NETWORK)
def test_a_restore_is_all_or_nothing(network: list[Delivery]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(restore_story(network, Path(folder)))
