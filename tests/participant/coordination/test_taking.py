"""A whole checkpoint in one call: the order, and resume in every case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ckptfmt.checkpoint import open_checkpoint, verify
from ckptfmt.errors import CommitUnknownError
from ckptfmt.identity import EpisodeId
from ckptfmt.store.local import LocalStore
from participant.coordination import Patience, checkpoint, find_source, restore, resume, retire
from participant.core.phases import Phase
from participant.errors import CoordinationError, CoordinationRetryError, CoordinationUnknownError
from participant.testing.clock import settle
from participant.testing.cluster import Delivery
from tests.support.jobs import a_job

pytestmark = pytest.mark.anyio

R1, R2 = EpisodeId("r1"), EpisodeId("r2")


def scope() -> list[EpisodeId]:
    """What the controller continues."""
    return [R1, R2]


async def test_everything_in_order_and_resumed_in_the_end(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        commands: list[str] = []

        def note(server: str, command: str) -> Delivery | None:
            if command == "resume":
                assert job.published("ck"), "resumed before it was published"
            commands.append(command)
            return None

        job.deliver(note)
        published = await checkpoint(job.control, fleet, job.run, "ck", scope)
        assert published.sequence == 1
        told = [c for c in commands if c != "renew"]
        assert told == [c for c in ("prepare", "status", "commit", "resume") for _ in range(5)]
        assert "renew" in commands
        assert list(verify(job.run.checkpoint_dir("ck"))) == []
        await job.check_at_rest()


@pytest.mark.parametrize("command", ["prepare", "commit", "renew"])
@pytest.mark.parametrize("server", ["environment-1", "agent-1", "resources-2"])
async def test_whatever_fails_everybody_is_resumed_and_nothing_published(
    tmp_path: Path, command: str, server: str
) -> None:
    """P23, P52, P125: and the next one succeeds."""
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        job.lose((command, server))
        with pytest.raises(CoordinationRetryError) as caught:
            await checkpoint(job.control, fleet, job.run, "ck", scope)
        assert caught.value.operation == command
        assert set(caught.value.failures) == {server}
        assert not job.published("ck")
        await job.check_at_rest()
        job.lose()
        await checkpoint(job.control, fleet, job.run, "ck2", scope)
        assert job.published("ck2")


async def test_a_straggler_is_named_and_led_out_by_retire(tmp_path: Path) -> None:
    """P69: resume, retire, and a checkpoint of another id."""
    async with a_job(tmp_path) as job:
        fleet = await job.discover()
        job.hold(scope())

        async def straggle() -> None:
            async with job.servers["agent-1"].admission.enter(R1):
                await asyncio.sleep(1e6)

        straggler = asyncio.ensure_future(straggle())
        await settle()
        patience = Patience(prepare_s=10)
        work = checkpoint(job.control, fleet, job.run, "ck", scope, patience)
        with pytest.raises(CoordinationRetryError, match="agent-1: 1 are not at a boundary: r1"):
            await job.passing(work)
        await retire(job.control, fleet, "ck", [R1], 30)
        await asyncio.gather(straggler, return_exceptions=True)
        await checkpoint(job.control, fleet, job.run, "ck2", lambda: [R2])
        await job.check_at_rest()


async def test_nobody_holds_anything_of_a_retired_rollout(tmp_path: Path) -> None:
    """P73, P47: nor is it in a later checkpoint."""
    async with a_job(tmp_path) as job:
        job.hold([R1, EpisodeId("r1", 1), R2])
        fleet = await job.discover()
        await retire(job.control, fleet, "any", [EpisodeId("r1", 1)], 30)
        assert [list(hooks.episodes()) for hooks in job.hooks.values()] == [[R2]] * 5
        await checkpoint(job.control, fleet, job.run, "ck", lambda: [EpisodeId("r1", 1), R2])
        place = open_checkpoint(job.run.checkpoint_dir("ck"))
        stored = {key for p in place.participants for key in place.participant(p).episode_ids}
        assert stored == {"r2"}


async def test_a_bad_store_closes_nobody(tmp_path: Path) -> None:
    async with a_job(tmp_path / "file") as job:
        (tmp_path / "file").write_text("in the way")
        fleet = await job.discover()
        commands: list[str] = []
        job.deliver(lambda server, command: commands.append(command))
        with pytest.raises(CoordinationError, match="prepare_store"):
            await checkpoint(job.control, fleet, job.run, "ck", scope)
        assert commands == []


async def test_a_resume_that_fails_after_the_publication_says_so(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        job.deliver(
            lambda server, command: (
                Delivery(copies=0) if (command, server) == ("resume", "agent-1") else None
            )
        )
        with pytest.raises(CoordinationRetryError) as caught:
            await checkpoint(job.control, fleet, job.run, "ck", scope)
        assert caught.value.operation == "resume"
        assert job.published("ck")
        assert job.phases["agent-1"] is Phase.COMMITTED
        job.deliver(lambda server, command: None)
        await resume(job.control, fleet, "ck", 30)
        await job.check_at_rest()


async def test_a_scope_that_fails_resumes_everybody(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:

        def broken() -> list[EpisodeId]:
            raise ZeroDivisionError

        fleet = await job.discover()
        with pytest.raises(ZeroDivisionError):
            await checkpoint(job.control, fleet, job.run, "ck", broken)
        await job.check_at_rest()


async def test_a_failure_of_the_resume_does_not_hide_the_first_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_job(tmp_path) as job:
        fleet = await job.discover()
        job.lose(("commit", "agent-1"), ("resume", "model-1"))
        with pytest.raises(CoordinationRetryError, match="commit failed"):
            await checkpoint(job.control, fleet, job.run, "ck", scope)
        assert "resume failed: model-1" in caplog.text


class DoubtfulStore(LocalStore):
    """A store that does not know whether it created ``checkpoint.json``."""

    def __init__(self, root: str, creates: Callable[[int], bool]) -> None:
        super().__init__(root)
        self._creates = creates
        self._times = 0

    def create(self, name: str, data: bytes) -> None:  # type: ignore[override]
        """As always, but for that one."""
        if not name.endswith("checkpoint.json"):
            super().create(name, data)
            return
        self._times += 1
        if self._creates(self._times):
            super().create(name, data)
        if self._times == 1:
            # What stands there cannot be read at first, either.
            self.is_blind = True
            raise CommitUnknownError("the reply was lost").at(file=name)

    is_blind = False

    def read_small(self, name: str, max_bytes: int) -> bytes:
        """As always, but for that one."""
        if self.is_blind and name.endswith("ck/checkpoint.json"):
            self.is_blind = False
            raise CommitUnknownError("the store does not answer").at(file=name)
        return super().read_small(name, max_bytes)


@pytest.mark.parametrize("was_created", [True, False])
async def test_a_publication_in_doubt_is_settled_before_anybody_is_resumed(
    tmp_path: Path, was_created: bool
) -> None:
    """S13: either it was published, which is success, or it never will be."""
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        store = DoubtfulStore(job.run.place, lambda time: was_created or time > 1)
        run = replace(job.run, store=store)
        work = checkpoint(job.control, fleet, run, "ck", scope)
        if was_created:
            assert (await work).checkpoint_id == "ck"
        else:
            with pytest.raises(CoordinationUnknownError):
                await work
        source = await find_source(job.control, job.run, 20)
        assert (source is not None) == was_created
        await job.check_at_rest()


async def test_a_checkpoint_is_restored_in_fresh_processes_and_checkpointed_again(
    tmp_path: Path,
) -> None:
    """P44: what was not started is in the second one, and a restore from that is complete."""
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        await checkpoint(job.control, fleet, job.run, "ck", scope)
        await job.restart()
        source = await find_source(job.control, job.run, 20)
        assert source is not None
        following = await restore(job.control, fleet, "re", source, 30)
        assert following == (EpisodeId("r1", 1), EpisodeId("r2", 1))
        assert set(job.phases.values()) == {Phase.RESTORED}
        await resume(job.control, fleet, "re", 30)
        assert job.hooks["agent-1"][following[0]] == "r1 at agent-1"
        await checkpoint(job.control, fleet, job.run, "ck2", lambda: following)
        again = await find_source(job.control, job.run, 20)
        assert again is not None
        assert again.episodes == following
        await job.restart()
        third = await restore(job.control, fleet, "re2", again, 30)
        assert third == (EpisodeId("r1", 2), EpisodeId("r2", 2))
        for name, hooks in job.hooks.items():
            assert [hooks[episode] for episode in third] == [f"r1 at {name}", f"r2 at {name}"]


async def test_a_restore_that_one_server_fails_is_undone_everywhere(tmp_path: Path) -> None:
    """P54, P111: and a restore from a good checkpoint goes well without a restart."""
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        for ck in ("ck1", "ck2"):
            await checkpoint(job.control, fleet, job.run, ck, scope)
        await job.restart()
        (file,) = (tmp_path / "ck2" / "resources" / "resources-2").glob("records-*")
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        file.write_bytes(damaged)
        source = await find_source(job.control, job.run, 20)
        assert source is not None
        with pytest.raises(CoordinationError, match="restore failed: resources-2"):
            await restore(job.control, fleet, "re1", source, 30)
        assert set(job.phases.values()) == {Phase.IDLE}
        assert [len(hooks) for hooks in job.hooks.values()] == [0] * 5
        good = await find_source(job.control, job.run, 20, "ck1")
        assert good is not None
        await restore(job.control, fleet, "re2", good, 30)
        await resume(job.control, fleet, "re2", 30)
        assert [len(hooks) for hooks in job.hooks.values()] == [2] * 5


async def test_a_cancelled_controller_resumes_everybody(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold(scope())
        fleet = await job.discover()
        job.deliver(lambda server, command: Delivery(delay_s=60) if command == "commit" else None)
        task = asyncio.ensure_future(checkpoint(job.control, fleet, job.run, "ck", scope))
        while set(job.phases.values()) != {Phase.PREPARED}:
            await job.clock.advance(0.01)
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await job.check_at_rest()
        await job.clock.advance(60)
        await job.check_at_rest()
