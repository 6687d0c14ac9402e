"""The storage side: real participants on a disk, judged and published by their controller."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.checkpoint import ParticipantReader, open_checkpoint, verify
from ckptfmt.errors import CommitUnknownError, StorageFailedError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.store.local import LocalStore
from participant.coordination import (
    Commits,
    Fleet,
    Lease,
    Run,
    abandon,
    commit,
    find_source,
    prepare,
    prepare_store,
    publish,
    renewing,
    resume,
)
from participant.errors import (
    CoordinationError,
    CoordinationFatalError,
    CoordinationRetryError,
    CoordinationUnknownError,
)
from participant.testing.cluster import Delivery
from tests.support.jobs import Job, a_job
from tests.support.participants import until

pytestmark = pytest.mark.anyio

R1, R2, R3 = EpisodeId("r1"), EpisodeId("r2", 1), EpisodeId("r3")


class Disk(LocalStore):
    """A local store with a place for a fault before each call that names an object."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.before: Callable[[str, str], None] = lambda call, name: None
        self.after: Callable[[str, str], None] = lambda call, name: None

    def create(self, name: str, data: Any) -> None:
        """As always, between the two places."""
        self.before("create", name)
        super().create(name, data)
        self.after("create", name)

    def read_small(self, name: str, max_bytes: int) -> bytes:
        """As always, after the fault."""
        self.before("read", name)
        return super().read_small(name, max_bytes)

    def delete(self, name: str) -> None:
        """As always, after the fault."""
        self.before("delete", name)
        super().delete(name)


async def committed(job: Job, *episodes: EpisodeId, ck: str = "ck") -> tuple[Fleet, Commits]:
    """A checkpoint of these episodes, committed by everybody."""
    fleet = await job.discover()
    assert (await prepare(job.control, fleet, ck, 30)).prepared
    place = job.run.checkpoint_dir(ck)
    return fleet, await commit(job.control, fleet, ck, place, episodes, 30)


async def test_what_was_committed_is_published_last_and_is_whole(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1, R2, R3])
        fleet, commits = await committed(job, R1, R2)
        assert not job.published("ck")
        published = await publish(job.control, fleet, commits, job.run, 30, metadata={"step": 7})
        place = job.run.checkpoint_dir("ck")
        checkpoint = open_checkpoint(place)
        assert (published.checkpoint_id, published.sequence) == ("ck", 1)
        assert published.sha256 == checkpoint.sealed.sha256
        assert checkpoint.participants == fleet.participants
        assert checkpoint.manifest.scope == ["r1", "r2-a1"]
        assert (checkpoint.manifest.run_id, checkpoint.manifest.config_digest) == (
            "run-1",
            "digest-1",
        )
        assert bytes(checkpoint.manifest.user_metadata) == b'{"step":7}'
        assert list(verify(place)) == []
        await resume(job.control, fleet, "ck", 30)


async def test_a_publication_may_be_repeated(tmp_path: Path) -> None:
    """Its reply, too, may be lost."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        first = await publish(job.control, fleet, commits, job.run, 30)
        again = await commit(
            job.control, fleet, "ck", job.run.checkpoint_dir("ck"), commits.episodes, 30
        )
        assert await publish(job.control, fleet, again, job.run, 30) == first


Spoil = Callable[[Job, Fleet, Commits], tuple[Fleet, Commits]]


def spoil_reply(server: str, **members: Any) -> Spoil:
    """Change members of a server's reply; None for all of it."""

    def spoil(job: Job, fleet: Fleet, commits: Commits) -> tuple[Fleet, Commits]:
        reply = commits.replies[server]
        changed = type(reply)(
            **{name: members.get(name, getattr(reply, name)) for name in reply.__struct_fields__}
        )
        return fleet, replace(commits, replies={**commits.replies, server: changed})

    return spoil


def drop_reply(job: Job, fleet: Fleet, commits: Commits) -> tuple[Fleet, Commits]:
    """One reply is missing."""
    replies = {s: reply for s, reply in commits.replies.items() if s != "model-1"}
    return fleet, replace(commits, replies=replies)


def lose_disk(job: Job, fleet: Fleet, commits: Commits) -> tuple[Fleet, Commits]:
    """One participant wrote to a disk that the controller does not see."""
    Path(job.run.checkpoint_dir("ck"), "model/model-1").rename(job.run.checkpoint_dir("away"))
    return fleet, commits


def cut_records(job: Job, fleet: Fleet, commits: Commits) -> tuple[Fleet, Commits]:
    """A data object is shorter than its manifest says."""
    (file,) = Path(job.run.checkpoint_dir("ck"), "agent/agent-1").glob("records-*")
    file.write_bytes(file.read_bytes()[:-1])
    return fleet, commits


def add_stranger(job: Job, fleet: Fleet, commits: Commits) -> tuple[Fleet, Commits]:
    """Somebody wrote there whom nobody expected."""
    place = Path(job.run.checkpoint_dir("ck"))
    place.joinpath("agent/other").mkdir()
    manifest = place.joinpath("agent/agent-1/manifest.json").read_bytes()
    place.joinpath("agent/other/manifest.json").write_bytes(manifest)
    return fleet, commits


SPOILED = [
    (drop_reply, "model-1: it has not replied"),
    (spoil_reply("agent-1", phase="prepared"), "agent-1: it is prepared"),
    (spoil_reply("agent-1", episode_ids=("r1", "r9")), "agent-1: it exported what is not in scope"),
    (spoil_reply("agent-1", episode_ids=()), "agent-1: the episodes replied are not those of"),
    (spoil_reply("model-1", manifest={"kind": "model"}), "model-1: the manifest in ck/model"),
    (lose_disk, "model-1: .*missing|model-1: .*there is no|model-1: .*not there"),
    (cut_records, "agent-1: .*bytes, the manifest says"),
    (add_stranger, "nobody expected wrote here: .*agent/other"),
]


@pytest.mark.parametrize(("spoil", "says"), SPOILED, ids=[says[:40] for _, says in SPOILED])
async def test_nothing_is_published_of_what_does_not_fit(
    tmp_path: Path, spoil: Spoil, says: str
) -> None:
    """P110, S6."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        fleet, commits = spoil(job, fleet, commits)
        with pytest.raises(CoordinationFatalError, match=says):
            await publish(job.control, fleet, commits, job.run, 30)
        assert not job.published("ck")


async def test_records_that_nobody_owns_are_refused_by_default(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        job.hold([R3], ["resources-2", "model-1", "agent-1"])
        fleet, commits = await committed(job, R1, R3)
        with pytest.raises(CoordinationFatalError, match=r"model-1: .*r3") as caught:
            await publish(job.control, fleet, commits, job.run, 30)
        assert set(caught.value.failures) == {"agent-1", "model-1", "resources-2"}
        assert not job.published("ck")
        await publish(job.control, fleet, commits, job.run, 30, allow_unowned=True)


async def test_an_agent_that_owns_whole_episodes_needs_no_environment(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.start(ParticipantId("agent", "agent-1"), owns_episodes=True)
        job.hold([R1], ["agent-1", "model-1", "resources-1"])
        fleet, commits = await committed(job, R1)
        await publish(job.control, fleet, commits, job.run, 30)


async def test_an_episode_of_two_agents_is_refused(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.start(ParticipantId("agent", "agent-1"), owns_episodes=True)
        job.start(ParticipantId("agent", "agent-2"), owns_episodes=True)
        job.hold([R1], ["agent-1", "agent-2"])
        fleet, commits = await committed(job, R1)
        with pytest.raises(CoordinationFatalError, match=r"agent-2: it exported r1, and so"):
            await publish(job.control, fleet, commits, job.run, 30)


async def test_records_of_agents_that_own_nothing_are_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be large, and everybody waits."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        read: list[str] = []
        records = ParticipantReader.records

        def noted(reader: ParticipantReader, **options: Any) -> Any:
            read.append(str(reader.participant))
            return records(reader, **options)

        monkeypatch.setattr(ParticipantReader, "records", noted)
        await publish(job.control, fleet, commits, job.run, 30)
        assert read == ["model/model-1"]


async def test_an_episode_of_two_environments_is_refused(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.start(ParticipantId("environment", "environment-2"))
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        with pytest.raises(CoordinationFatalError, match=r"environment-2: it exported r1, and so"):
            await publish(job.control, fleet, commits, job.run, 30)


async def test_a_staging_key_of_two_calls_is_refused(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1, R2])
        job.hooks["model-1"][R1] = job.hooks["model-1"][R2] = "the same"
        fleet, commits = await committed(job, R1, R2)
        with pytest.raises(CoordinationFatalError, match="model-1: two calls have one staging key"):
            await publish(job.control, fleet, commits, job.run, 30)
        assert not job.published("ck")


async def test_a_lease_lost_before_the_publication_stops_it(tmp_path: Path) -> None:
    """P52: unless the caller decides otherwise."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        job.lose(("renew", "agent-1"))
        async with renewing(job.control, fleet, "ck", 600) as lease:
            await job.clock.advance(1)
            with pytest.raises(CoordinationRetryError, match="renew failed: agent-1"):
                await publish(job.control, fleet, commits, job.run, 30, lease=lease)
            assert not job.published("ck")
            await publish(job.control, fleet, commits, job.run, 30)


async def test_a_lease_lost_while_the_controller_reads_back_stops_the_publication(
    tmp_path: Path,
) -> None:
    """P52: nothing appears when the disk goes on."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk, hang = _hanging(job, "read")
        async with renewing(job.control, fleet, "ck", 600) as lease:
            task = asyncio.ensure_future(
                publish(job.control, fleet, commits, replace(job.run, store=disk), 300, lease=lease)
            )
            await until(hang.reached.is_set)
            job.lose(("renew", "agent-1"))
            await job.clock.advance(11)
            with pytest.raises(CoordinationRetryError, match="renew failed"):
                await task
        hang.release.set()
        await until(lambda: len(job.control.io) == 0)
        assert not job.published("ck")


class SeenByThreads(asyncio.Future[None]):
    """A failure that the event loop has not come to yet."""

    def done(self) -> bool:
        """As a thread sees it, and as the loop does."""
        return threading.current_thread() is not threading.main_thread()


async def test_a_lease_lost_while_the_loop_is_late_stops_the_publication(tmp_path: Path) -> None:
    """The thread looks for itself when it claims the right to publish."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        with pytest.raises(CoordinationError, match="a lease was lost"):
            await publish(job.control, fleet, commits, job.run, 30, lease=Lease(SeenByThreads()))
        assert not job.published("ck")


class _Hang:
    def __init__(self) -> None:
        self.reached = threading.Event()
        self.release = threading.Event()


def _hanging(job: Job, call: str, name: str = "agent-1/manifest.json") -> tuple[Disk, _Hang]:
    hang = _Hang()
    disk = Disk(job.run.place)

    def before(called: str, of: str) -> None:
        if called == call and of.endswith(name):
            hang.reached.set()
            assert hang.release.wait(30), "the test forgot to release the disk"

    disk.before = before
    return disk, hang


async def test_a_disk_that_hangs_before_the_publication_is_given_up(tmp_path: Path) -> None:
    """And publishes nothing when it goes on; a repeat does."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk, hang = _hanging(job, "read")
        run = replace(job.run, store=disk)
        task = asyncio.ensure_future(publish(job.control, fleet, commits, run, 20))
        await until(hang.reached.is_set)
        await job.clock.advance(20)
        with pytest.raises(CoordinationRetryError, match="did not answer in time") as caught:
            await task
        assert not isinstance(caught.value, CoordinationUnknownError)
        hang.release.set()
        await until(lambda: len(job.control.io) == 0)
        assert not job.published("ck")
        await publish(job.control, fleet, commits, run, 20)


async def test_a_disk_that_hangs_in_the_publication_leaves_it_unknown(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk, hang = _hanging(job, "create", "checkpoint.json")
        run = replace(job.run, store=disk)
        task = asyncio.ensure_future(publish(job.control, fleet, commits, run, 20))
        await until(hang.reached.is_set)
        await job.clock.advance(20)
        with pytest.raises(CoordinationUnknownError):
            await task
        hang.release.set()
        await until(lambda: len(job.control.io) == 0)
        published = await abandon(job.control, job.run, "ck", 20)
        assert published is not None
        assert (published.checkpoint_id, published.sequence) == ("ck", 1)


async def test_an_abandoned_checkpoint_is_never_published(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk, hang = _hanging(job, "create", "checkpoint.json")
        run = replace(job.run, store=disk)
        task = asyncio.ensure_future(publish(job.control, fleet, commits, run, 20))
        await until(hang.reached.is_set)
        await job.clock.advance(20)
        with pytest.raises(CoordinationUnknownError):
            await task
        assert await abandon(job.control, job.run, "ck", 20) is None
        hang.release.set()
        await until(lambda: len(job.control.io) == 0)
        with pytest.raises(CoordinationFatalError, match="given up"):
            await publish(job.control, fleet, commits, job.run, 20)
        assert await find_source(job.control, job.run, 20) is None


async def test_a_store_that_cannot_tell_is_unknown_and_settled_by_abandon(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk = Disk(job.run.place)
        run = replace(job.run, store=disk)

        def doubt(call: str, name: str) -> None:
            if name.endswith("checkpoint.json"):
                raise CommitUnknownError("the reply was lost")

        disk.before = doubt
        with pytest.raises(CoordinationUnknownError, match="in doubt"):
            await publish(job.control, fleet, commits, run, 20)
        with pytest.raises(CoordinationUnknownError, match="abandon failed"):
            await abandon(job.control, run, "ck", 20)
        assert await abandon(job.control, job.run, "ck", 20) is None


async def test_a_full_disk_passes_and_the_publication_is_repeated(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk = Disk(job.run.place)
        run = replace(job.run, store=disk)

        def full(call: str, name: str) -> None:
            raise StorageFailedError("no space left on device")

        disk.before = full
        with pytest.raises(CoordinationRetryError, match="no space left"):
            await publish(job.control, fleet, commits, run, 20)
        disk.before = lambda call, name: None
        await publish(job.control, fleet, commits, run, 20)


async def test_a_controller_that_is_cancelled_publishes_nothing_later(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        disk, hang = _hanging(job, "read")
        run = replace(job.run, store=disk)
        task = asyncio.ensure_future(publish(job.control, fleet, commits, run, 20))
        await until(hang.reached.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hang.release.set()
        await until(lambda: len(job.control.io) == 0)
        assert not job.published("ck")


async def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    async with a_job(tmp_path / "new" / "run") as job:
        await prepare_store(job.control, job.run, 20)
        assert [path.name for path in (tmp_path / "new" / "run").iterdir()] == []


def overwrites(disk: Disk) -> None:
    """A store that ignores that the name is taken."""
    made: list[str] = []

    def create(name: str, data: Any) -> None:
        if name not in made:
            made.append(name)
            LocalStore.create(disk, name, data)

    disk.create = create  # type: ignore[method-assign]


def returns_other_bytes(disk: Disk) -> None:
    """A store that gives back something else."""
    disk.read_small = lambda name, max_bytes: b"else"  # type: ignore[method-assign]


def is_full(disk: Disk) -> None:
    """A store that takes nothing."""

    def before(call: str, name: str) -> None:
        raise StorageFailedError("no space left on device")

    disk.before = before


BAD_STORES = [
    (overwrites, CoordinationFatalError, "overwrites"),
    (returns_other_bytes, CoordinationFatalError, "other bytes"),
    (is_full, CoordinationRetryError, "no space left"),
]


@pytest.mark.parametrize(("spoil", "kind", "says"), BAD_STORES)
async def test_a_bad_store_stops_everything_before_anybody_is_closed(
    tmp_path: Path, spoil: Callable[[Disk], None], kind: type[Exception], says: str
) -> None:
    """S25."""
    async with a_job(tmp_path) as job:
        disk = Disk(job.run.place)
        spoil(disk)
        with pytest.raises(kind, match=says):
            await prepare_store(job.control, replace(job.run, store=disk), 20)
        assert [path.name for path in tmp_path.iterdir()] == []


async def test_the_latest_checkpoint_or_the_one_named_is_found(tmp_path: Path) -> None:
    async with a_job(tmp_path) as job:
        assert await find_source(job.control, job.run, 20) is None
        job.hold([R1, R2])
        for ck, scope in (("ck1", (R1, R2)), ("ck2", (R1,))):
            fleet, commits = await committed(job, *scope, ck=ck)
            await publish(job.control, fleet, commits, job.run, 20)
            await resume(job.control, fleet, ck, 20)
        latest = await find_source(job.control, job.run, 20)
        assert latest is not None
        assert (latest.checkpoint_id, latest.episodes) == ("ck2", (R1,))
        assert latest.checkpoint_dir == str(tmp_path / "ck2")
        assert latest.participants == fleet.participants
        named = await find_source(job.control, job.run, 20, "ck1")
        assert named is not None
        assert named.episodes == (R1, R2)
        with pytest.raises(CoordinationFatalError, match="no checkpoint in"):
            await find_source(job.control, job.run, 20, "ck3")
        with pytest.raises(CoordinationFatalError, match="checkpoint id"):
            await find_source(job.control, job.run, 20, "../ck1")


async def test_what_was_never_published_is_no_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_job(tmp_path) as job:
        job.hold([R1])
        await committed(job, R1)
        caplog.set_level(logging.WARNING)
        assert await find_source(job.control, job.run, 20) is None
        assert "never published" in caplog.text


@pytest.mark.parametrize(
    "other", [{"run_id": "run-2"}, {"config_digest": "digest-2"}, {"run_id": None}]
)
async def test_a_checkpoint_of_another_run_is_refused_with_both_identities(
    tmp_path: Path, other: dict[str, str | None]
) -> None:
    """P9."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet, commits = await committed(job, R1)
        await publish(job.control, fleet, commits, job.run, 20)
        elsewhere: Run = replace(job.run, **other)  # type: ignore[arg-type]
        with pytest.raises(CoordinationFatalError) as caught:
            await find_source(job.control, elsewhere, 20)
        text = str(caught.value)
        assert "run 'run-1' with configuration 'digest-1'" in text
        assert f"run {elsewhere.run_id!a} with configuration {elsewhere.config_digest!a}" in text


async def test_a_participant_that_was_lost_in_transit_is_committed_by_a_repeat(
    tmp_path: Path,
) -> None:
    """A lost reply of a commit: the repeat gives the same manifest."""
    async with a_job(tmp_path) as job:
        job.hold([R1])
        fleet = await job.discover()
        await prepare(job.control, fleet, "ck", 30)
        job.lose(("commit", "agent-1"))
        place = job.run.checkpoint_dir("ck")
        with pytest.raises(CoordinationRetryError, match="agent-1"):
            await commit(job.control, fleet, "ck", place, [R1], 30)
        job.deliver(lambda server, command: Delivery())
        commits = await commit(job.control, fleet, "ck", place, [R1], 30)
        await publish(job.control, fleet, commits, job.run, 30)


def test_a_run_says_where_its_checkpoints_lie() -> None:
    assert Run(place="/runs/1/").checkpoint_dir("ck") == "/runs/1/ck"
    assert Run(place="s3://bucket/run").checkpoint_dir("ck") == "s3://bucket/run/ck"
