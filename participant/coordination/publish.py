"""The storage side of a controller: the probe before, the judgement and publication after.

The controller reads with its own eyes what the participants say that they stored, and
writes ``checkpoint.json`` last.  Nothing else of coordination touches storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from ckptfmt.checkpoint import Checkpoint, ParticipantReader, store_at
from ckptfmt.commit import Committed, NotCommitted, Outcome, Publication, Unknown
from ckptfmt.errors import (
    CkptError,
    CommitUnknownError,
    CorruptError,
    ExistsError,
    MissingError,
    StateError,
    StorageError,
)
from ckptfmt.identity import EpisodeId, ParticipantId, check_name
from ckptfmt.layout import LATEST_NAME, Folder
from ckptfmt.manifest import CheckpointManifest
from ckptfmt.publish import About, abort_checkpoint, publish_checkpoint
from ckptfmt.run import latest
from ckptfmt.schema import AgentRecord, ModelRecord
from ckptfmt.store.base import Store
from ckptfmt.store.names import temp_name
from participant.coordination.calls import Failure, check_all
from participant.coordination.fleet import Control, Fleet
from participant.coordination.judging import Stored, ownership_faults, reply_faults, twin_faults
from participant.coordination.operations import CommitReply, Commits
from participant.coordination.renewing import Lease
from participant.errors import (
    CheckpointFailedError,
    CoordinationFatalError,
    CoordinationRetryError,
    CoordinationUnknownError,
)

__all__ = ["Published", "Run", "Source", "abandon", "find_source", "prepare_store", "publish"]

_PROBE: Final = b'{"probe":"of a controller, to be deleted"}'

_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: where its checkpoints lie, and which run it is.

    ``place`` is the directory or URL as the participants are told it; ``store`` is where
    the controller finds the same, by default the directory itself.  ``run_id`` and
    ``config_digest`` go into every checkpoint, and one that has others is not restored.
    """

    place: str
    run_id: str | None = None
    config_digest: str | None = None
    store: Store | None = field(default=None, repr=False)

    def checkpoint_dir(self, checkpoint_id: str) -> str:
        """Where a checkpoint lies, as the participants are told."""
        return f"{self.place.rstrip('/')}/{checkpoint_id}"

    def open_store(self) -> Store:
        """The controller's own way to the run."""
        return store_at(self.place) if self.store is None else self.store

    @property
    def label(self) -> str:
        """The storage's name in messages."""
        return self.place if self.store is None else self.store.label


@dataclass(frozen=True, slots=True)
class Published:
    """A published checkpoint: its place in the run, and the SHA-256 of ``checkpoint.json``."""

    checkpoint_id: str
    sequence: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint to restore from: who has a part in it, and which episodes it continues."""

    checkpoint_id: str
    checkpoint_dir: str
    participants: tuple[ParticipantId, ...]
    episodes: tuple[EpisodeId, ...] = field(repr=False)


async def prepare_store(control: Control, run: Run, within_s: float) -> None:
    """Create, read back and delete a probe, before anybody is closed for a checkpoint.

    Raises:
        CoordinationError: the storage cannot be written, read, or trusted to create only.
    """
    with _storage(run, "prepare_store"):
        await _in_time(control, lambda: _probe(run.open_store()), within_s)


def _probe(store: Store) -> None:
    # Named like what an interrupted write leaves behind, so that garbage collection knows it.
    name = temp_name(LATEST_NAME)
    store.create(name, _PROBE)
    try:
        if store.read_small(name, len(_PROBE)) != _PROBE:
            raise CorruptError("the store gives back other bytes than were written").at(file=name)
        with contextlib.suppress(ExistsError):
            store.create(name, _PROBE)
            raise StateError("the store overwrites what it was asked to create").at(file=name)
    finally:
        store.delete(name)


async def publish(
    control: Control,
    fleet: Fleet,
    commits: Commits,
    run: Run,
    within_s: float,
    *,
    lease: Lease | None = None,
    metadata: Mapping[str, Any] | None = None,
    allow_unowned: bool = False,
) -> Published:
    """Judge every commit from the controller's side, then write ``checkpoint.json``.

    ``lease``: a renewal that fails before it is written stops the publication; without
    one, leases are not looked at.  ``metadata`` is any finite JSON object.  With
    ``allow_unowned`` records may belong to episodes that nobody owns.

    May be repeated until resume, and never comes after it.

    Raises:
        CoordinationFatalError: a reply is missing or wrong, what is stored is not what was
            replied, or the parts do not fit together.  Nothing was published.
        CoordinationUnknownError: it may be published or not.
        CoordinationRetryError: the storage failed, the time was up, or a lease was lost.
            Nothing was published.
    """
    check_all("publish", reply_faults(fleet, commits))
    about = About(
        scope=commits.episodes,
        run_id=run.run_id,
        config_digest=run.config_digest,
        metadata=metadata or {},
    )
    publication = Publication()

    def work() -> Outcome[CheckpointManifest]:
        _judge(fleet, commits, run, allow_unowned=allow_unowned)
        return publish_checkpoint(
            run.open_store(), Folder(commits.checkpoint_id), commits.checkpoint_id,
            fleet.participants, about, lambda: publication.claim(lambda: _check_held(lease)),
        )  # fmt: skip

    with _storage(run, "publish"):
        outcome = await _unless_lost(control, work, within_s, lease, publication)
    return _published(fleet, run, outcome, lease)


def _check_held(lease: Lease | None) -> None:
    # Asked in a thread, under the lock of the publication: the loop may be late.
    if lease is not None and lease.lost.done():
        raise StateError("a lease was lost")


async def _unless_lost(
    control: Control,
    work: Callable[[], Outcome[CheckpointManifest]],
    within_s: float,
    lease: Lease | None,
    publication: Publication,
) -> Outcome[CheckpointManifest]:
    """The outcome, unless time is up or a lease lost before the right to publish was claimed."""
    working = asyncio.ensure_future(_in_time(control, work, within_s))
    ends: set[asyncio.Future[Any]] = {working} if lease is None else {working, lease.lost}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if lease is not None and not working.done() and publication.abandon():
            lease.check()
        return await working
    except TimeoutError:
        if publication.abandon():
            raise
        return Unknown(CommitUnknownError("the storage did not answer in time"))
    finally:
        # Also where the caller is cancelled: what was not claimed is never published.
        publication.abandon()
        working.cancel()


def _published(
    fleet: Fleet, run: Run, outcome: Outcome[CheckpointManifest], lease: Lease | None
) -> Published:
    if isinstance(outcome, Committed):
        sealed = outcome.stored
        return Published(sealed.body.checkpoint_id, sealed.body.sequence, sealed.sha256)
    if isinstance(outcome, NotCommitted):
        if lease is not None:
            lease.check()
        named = outcome.reason.location.participant
        culprits = [m.server for m in fleet.members if str(m.participant) == named]
        check_all("publish", dict.fromkeys(culprits or [run.label], _failure(outcome.reason)))
    raise CoordinationUnknownError("publish", {run.label: str(outcome.reason)})


def _judge(fleet: Fleet, commits: Commits, run: Run, *, allow_unowned: bool) -> None:
    store = run.open_store()
    folder = Folder(check_name(commits.checkpoint_id, "checkpoint id"))
    failures: dict[str, Failure] = {}
    readers: dict[str, ParticipantReader] = {}
    staging_keys: dict[str, list[str]] = {}
    for member in fleet.members:
        server, participant = member.server, member.participant
        try:
            reader = ParticipantReader.open(store, folder, participant, commits.checkpoint_id)
            if fault := _fault(reader, commits.replies[server]):
                failures[server] = Failure(fault)
            readers[server] = reader
            staging_keys[server] = _staging_keys(reader)
        except CkptError as error:
            failures[server] = _failure(error)
    check_all("publish", failures)
    stored = _stored(readers)
    check_all("publish", ownership_faults(stored, allow_unowned=allow_unowned))
    check_all("publish", twin_faults(staging_keys))


def _fault(reader: ParticipantReader, reply: CommitReply) -> str | None:
    if msgspec.json.decode(reader.sealed.data) != reply.manifest:
        return f"the manifest in {reader.folder.manifest(reader.participant)} is not that replied"
    if reader.episode_ids != list(reply.episode_ids):
        return "the episodes replied are not those of the manifest"
    return None


def _stored(readers: Mapping[str, ParticipantReader]) -> dict[str, Stored]:
    """What everybody stored: environments own all of it, agents what their records say."""
    every = {server: tuple(reader.episode_ids) for server, reader in readers.items()}
    owned = {s: every[s] for s, r in readers.items() if r.participant.kind == "environment"}
    of_environments = {key for keys in owned.values() for key in keys}
    for server, reader in readers.items():
        # Records are read only where there is a question, since they may be large.
        in_question = set(every[server]) - of_environments
        if in_question and reader.participant.kind == "agent":
            owned[server] = _owned_by_agent(reader, in_question)
    return {server: Stored(keys, owned.get(server, ())) for server, keys in every.items()}


def _owned_by_agent(reader: ParticipantReader, keys: set[str]) -> tuple[str, ...]:
    records = reader.records(episodes=[EpisodeId.from_capture_key(key) for key in keys])
    owned = {
        record.episode_id.capture_key
        for record in records
        if isinstance(record, AgentRecord) and record.episode is not None
    }
    return tuple(sorted(owned))


def _staging_keys(reader: ParticipantReader) -> list[str]:
    if reader.participant.kind != "model":
        return []
    keys = []
    for record in reader.records():
        assert isinstance(record, ModelRecord)
        rows = record.rows.value()
        keys += [row["staging_key"] for row in rows if "staging_key" in row]
    return keys


async def abandon(
    control: Control, run: Run, checkpoint_id: str, within_s: float
) -> Published | None:
    """Close a checkpoint for good, after a publication whose outcome is unknown.

    None says that it is not published and never will be; otherwise it was published.

    Raises:
        CoordinationUnknownError: it still cannot be told.  Repeat.
    """
    folder = Folder(check_name(checkpoint_id, "checkpoint id"))

    def work() -> Outcome[CheckpointManifest]:
        return abort_checkpoint(run.open_store(), folder, checkpoint_id)

    with _storage(run, "abandon"):
        outcome = await _in_time(control, work, within_s)
    if isinstance(outcome, Committed):
        sealed = outcome.stored
        return Published(sealed.body.checkpoint_id, sealed.body.sequence, sealed.sha256)
    if isinstance(outcome, NotCommitted):
        return None
    raise CoordinationUnknownError("abandon", {run.label: str(outcome.reason)})


async def find_source(
    control: Control, run: Run, within_s: float, checkpoint_id: str | None = None
) -> Source | None:
    """The checkpoint to restore from: the one named, or the latest complete one of the run.

    None if none is named and the run has no complete one.

    Raises:
        CoordinationFatalError: it is unusable, or of another run or configuration.
        CoordinationRetryError: the storage failed.
    """
    with _storage(run, "find_source"):
        return await _in_time(control, lambda: _find(run, checkpoint_id), within_s)


def _find(run: Run, checkpoint_id: str | None) -> Source | None:
    store = run.open_store()
    if checkpoint_id is None:
        try:
            folder = latest(store).entry.folder
        except MissingError as error:
            _logger.warning("nothing to restore from: %s", error)
            return None
    else:
        folder = Folder(check_name(checkpoint_id, "checkpoint id"))
    checkpoint = Checkpoint.open(store, folder)
    manifest = checkpoint.manifest
    _check_identity(run, manifest)
    if manifest.scope is not None:
        keys = set(manifest.scope)
    else:
        readers = [checkpoint.participant(item) for item in checkpoint.participants]
        keys = {key for reader in readers for key in reader.episode_ids}
    return Source(
        manifest.checkpoint_id,
        run.checkpoint_dir(folder.prefix),
        checkpoint.participants,
        tuple(sorted(map(EpisodeId.from_capture_key, keys))),
    )


def _check_identity(run: Run, manifest: CheckpointManifest) -> None:
    theirs, ours = (manifest.run_id, manifest.config_digest), (run.run_id, run.config_digest)
    if theirs != ours:
        raise CoordinationFatalError(
            "find_source",
            {
                run.label: f"checkpoint {manifest.checkpoint_id} is of {_identity(*theirs)}, "
                f"and this is {_identity(*ours)}"
            },
        )


def _identity(run_id: str | None, config_digest: str | None) -> str:
    return f"run {run_id!a} with configuration {config_digest!a}"


async def _in_time(control: Control, work: Callable[[], _Result], within_s: float) -> _Result:
    """Run ``work`` in a thread; the thread goes on if it is not awaited to its end.

    Raises:
        TimeoutError: it did not end in time.
    """
    working = asyncio.ensure_future(control.io.run(object(), work))
    clock = control.clock
    limit = asyncio.ensure_future(clock.sleep_until(clock.monotonic() + within_s))
    try:
        await asyncio.wait({working, limit}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise TimeoutError
        return working.result()
    finally:
        limit.cancel()
        working.cancel()


@contextlib.contextmanager
def _storage(run: Run, operation: str) -> Iterator[None]:
    """Errors of the storage become errors of the operation."""
    try:
        yield
    except CkptError as error:
        check_all(operation, {run.label: _failure(error)})
    except (CheckpointFailedError, TimeoutError) as error:
        text = str(error) or "the storage did not answer in time"
        raise CoordinationRetryError(operation, {run.label: text}) from error


def _failure(error: CkptError) -> Failure:
    return Failure(str(error), passes=isinstance(error, StorageError | CommitUnknownError))
