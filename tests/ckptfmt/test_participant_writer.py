"""Writing one participant: streamed, refused record by record, published last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ckptfmt.checkpoint import salvage
from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.commit import Committed, NotCommitted, Publication, PublicationState
from ckptfmt.errors import (
    CkptError,
    DeadlineError,
    DuplicateKeyError,
    FencedError,
    MissingError,
    RefusedError,
    StateError,
    TransientError,
    ValueRefusedError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.participant_writer import ParticipantWriter, write_participant
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record
from ckptfmt.schema import AgentRecord
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.testing.os_faults import forked
from tests.support.checkpoints import AGENT, agent_record

CK = Folder("ck-1")
CONTROLLER = ParticipantId("controller", "c")


def record(name: str, value: object = 1) -> Record:
    return Record(episode_id=EpisodeId(name, 0), members={"state": JsonPayload.from_value(value)})


def writer_of(store: Any, **options: Any) -> ParticipantWriter:
    return ParticipantWriter(store, CK, "ck-1", CONTROLLER, **options)


def keys(store: Any) -> list[str]:
    return [item.key for item in ParticipantReader.open(store, CK, CONTROLLER).load()]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_no_records_are_an_empty_stream_and_not_a_missing_one() -> None:
    """F3."""
    store = MemoryStore()
    body = write_participant(store, CK, "ck-1", CONTROLLER, []).require().body
    assert (body.record_count, body.episode_ids, len(body.objects)) == (0, [], 1)
    assert body.objects[0].size_bytes > 0
    assert keys(store) == []


def test_records_come_back_in_the_order_in_which_they_were_added() -> None:
    """F6."""
    store = MemoryStore()
    with writer_of(store) as writer:
        for name in ("b", "a", "c"):
            writer.add(record(name))
        writer.finish().require()
    assert keys(store) == ["b", "a", "c"]


def test_the_digest_does_not_depend_on_how_records_are_spread_over_objects() -> None:
    """F6."""
    digests = set()
    for options in ({}, {"object_target_bytes": 1}, {"object_target_bytes": 100}):
        with writer_of(MemoryStore(), **options) as writer:
            for number in range(6):
                writer.add(record(f"r{number}"))
            digests.add(writer.finish().require().body.content_digest)
    assert len(digests) == 1


def test_the_same_records_again_are_the_same_commit_and_leave_no_data(tmp_path: Path) -> None:
    """S14."""
    store = LocalStore(tmp_path)
    for target in (1 << 20, 1):
        with writer_of(store, object_target_bytes=target) as writer:
            for number in range(3):
                writer.add(record(f"r{number}"))
            outcome = writer.finish()
        assert isinstance(outcome, Committed)
        assert outcome.ours is (target != 1)
    assert len(files(tmp_path)) == 2
    assert keys(store) == ["r0", "r1", "r2"]


def test_other_records_are_fenced_and_leave_no_data(tmp_path: Path) -> None:
    """S14, S16."""
    store = LocalStore(tmp_path)
    write_participant(store, CK, "ck-1", CONTROLLER, [record("r1")]).require()
    before = files(tmp_path)
    outcome = write_participant(store, CK, "ck-1", CONTROLLER, [record("r1", 2)])
    assert isinstance(outcome, NotCommitted)
    assert isinstance(outcome.reason, FencedError)
    assert outcome.reason.location.participant == str(CONTROLLER)
    assert files(tmp_path) == before


@pytest.mark.parametrize("target", [1, 1 << 20])
def test_a_key_that_comes_twice_is_refused_and_named(target: int) -> None:
    """F8: also where the first is in another object."""
    with writer_of(MemoryStore(), object_target_bytes=target) as writer:
        writer.add(record("r1"))
        writer.add(record("r2"))
        with pytest.raises(DuplicateKeyError) as refused:
            writer.add(record("r1", 2))
    location = refused.value.location
    assert (location.key, location.participant, location.checkpoint) == (
        "r1",
        "controller/c",
        "ck-1",
    )


def test_after_a_refusal_the_writer_goes_on() -> None:
    store = MemoryStore()
    with writer_of(store, object_target_bytes=1) as writer:
        writer.add(record("r1"))
        with pytest.raises(RefusedError):
            writer.add(record("r1"))
        writer.add(record("r2"))
        body = writer.finish().require().body
    assert (body.record_count, body.episode_ids) == (2, ["r1", "r2"])
    assert keys(store) == ["r1", "r2"]


@pytest.mark.parametrize(
    ("kind", "strange"),
    [
        ("controller", agent_record("r2")),
        ("model", agent_record("r2")),
        ("agent", record("r2")),
        (
            "controller",
            Record(
                episode_id=EpisodeId("r2"),
                members={"name": JsonPayload.from_value("n")},
                sub_key_member="name",
            ),
        ),
        ("agent", {"episode_id": "r2"}),
    ],
    ids=["typed among plain", "of another role", "plain among typed", "another sub-key", "a dict"],
)
def test_a_record_of_another_schema_is_refused_and_the_writer_goes_on(
    kind: str, strange: Any
) -> None:
    """F22: what could be written can always be read."""
    store = MemoryStore()
    participant = ParticipantId(kind, "x")
    with ParticipantWriter(store, CK, "ck-1", participant) as writer:
        with pytest.raises(ValueRefusedError, match=kind):
            writer.add(strange)
        outcome = writer.finish()
    assert isinstance(outcome, Committed)
    assert ParticipantReader.open(store, CK, participant).load() == []


def test_a_key_that_is_too_long_is_refused_and_the_writer_goes_on() -> None:
    store = MemoryStore()
    with writer_of(store) as writer:
        writer.add(record("r1"))
        with pytest.raises(RefusedError):
            writer.add(
                Record(
                    episode_id=EpisodeId("r2", 0),
                    members={"sub_key": JsonPayload.from_value("k" * 1100)},
                )
            )
        writer.add(record("r3"))
        writer.finish().require()
    assert keys(store) == ["r1", "r3"]


@pytest.mark.parametrize(
    "value", [b"x", {1}, object(), 1 + 2j], ids=lambda value: type(value).__name__
)
def test_a_member_that_cannot_be_carried_names_the_episode(value: object) -> None:
    """F21: episode, pointer and Python type."""
    with pytest.raises(ValueRefusedError) as refused:
        Record(episode_id=EpisodeId("r-17", 2), members={"state": value})  # type: ignore[dict-item]
    told = str(refused.value)
    assert "r-17" in told
    assert "state" in told
    assert type(value).__name__ in told


def test_a_typed_member_that_cannot_be_carried_names_the_episode() -> None:
    """F21."""
    with pytest.raises(ValueRefusedError) as refused:
        AgentRecord(
            episode_id=EpisodeId("r-17", 0),
            session_key="s",
            session={"a": b"x"},  # type: ignore[arg-type]
            boundary=None,
            episode=None,
        )
    assert "r-17" in str(refused.value)
    assert "session" in str(refused.value)


def test_before_finish_nothing_is_visible(tmp_path: Path) -> None:
    """S1."""
    store = LocalStore(tmp_path)
    with writer_of(store, object_target_bytes=1) as writer:
        writer.add(record("r1"))
        writer.flush()
        with pytest.raises(MissingError):
            ParticipantReader.open(store, CK, CONTROLLER)


def test_leaving_without_finish_leaves_nothing(tmp_path: Path) -> None:
    """S11: complete objects of the attempt included."""
    with writer_of(LocalStore(tmp_path), object_target_bytes=1) as writer:
        for number in range(3):
            writer.add(record(f"r{number}"))
    assert files(tmp_path) == []


def _fail_in_the_middle(writer: ParticipantWriter) -> None:
    with writer:
        writer.add(record("r1"))
        writer.flush()
        raise ZeroDivisionError


def test_an_exception_of_the_caller_leaves_nothing(tmp_path: Path) -> None:
    """S21."""
    with pytest.raises(ZeroDivisionError):
        _fail_in_the_middle(writer_of(LocalStore(tmp_path)))
    assert files(tmp_path) == []


def test_records_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(DuplicateKeyError):
        write_participant(LocalStore(tmp_path), CK, "ck-1", CONTROLLER, [record("r1")] * 2)
    assert files(tmp_path) == []


def test_a_finished_writer_takes_nothing_more() -> None:
    with writer_of(MemoryStore()) as writer:
        writer.finish().require()
        with pytest.raises(StateError):
            writer.add(record("r1"))
        with pytest.raises(StateError):
            writer.finish()


def test_leaving_a_finished_writer_removes_nothing(tmp_path: Path) -> None:
    with writer_of(LocalStore(tmp_path)) as writer:
        writer.add(record("r1"))
        writer.finish().require()
        writer.abandon()
    assert keys(LocalStore(tmp_path)) == ["r1"]


def test_flush_after_the_end_is_refused() -> None:
    with writer_of(MemoryStore()) as writer:
        writer.abandon()
        with pytest.raises(CkptError):
            writer.flush()


def test_what_its_owner_abandoned_is_not_published(tmp_path: Path) -> None:
    """S7."""
    store, publication = LocalStore(tmp_path), Publication()
    with writer_of(store, publication=publication, object_target_bytes=1) as writer:
        writer.add(record("r1"))
        assert publication.abandon()
        with pytest.raises(StateError):
            writer.add(record("r2"))
        outcome = writer.finish()
    assert isinstance(outcome, NotCommitted)
    assert files(tmp_path) == []


def test_what_was_abandoned_before_the_writer_began_leaves_nothing(tmp_path: Path) -> None:
    """S7: not even the object that it would have begun with."""
    publication = Publication()
    assert publication.abandon()
    with pytest.raises(StateError):
        writer_of(LocalStore(tmp_path), publication=publication)
    assert files(tmp_path) == []


def test_members_of_an_older_manifest_are_kept_as_the_bytes_that_they_are() -> None:
    """F48."""
    store = MemoryStore()
    role, unknown = msgspec.Raw(b'{"b":1.50,"a":1E5}'), {"x_later": b"[1.0]"}
    with writer_of(store, role=role, unknown=unknown) as writer:
        writer.finish().require()
    sealed = ParticipantReader.open(store, CK, CONTROLLER).sealed
    assert bytes(sealed.body.role) == b'{"b":1.50,"a":1E5}'
    assert sealed.unknown == unknown


def test_a_check_that_fails_at_the_last_moment_publishes_nothing(tmp_path: Path) -> None:
    def late() -> None:
        raise DeadlineError("too late")

    publication = Publication()
    with writer_of(LocalStore(tmp_path), publication=publication) as writer:
        writer.add(record("r1"))
        outcome = writer.finish(late)
    assert isinstance(outcome, NotCommitted)
    assert isinstance(outcome.reason, DeadlineError)
    assert publication.state is PublicationState.ABANDONED
    assert files(tmp_path) == []


def test_role_and_provenance_are_kept() -> None:
    """F55."""
    store = MemoryStore()
    role = {"z": 1, "a": [1 << 70]}
    write_participant(store, CK, "ck-1", CONTROLLER, [], role=role, user={"who": "me"}).require()
    body = ParticipantReader.open(store, CK, CONTROLLER).manifest
    assert bytes(body.role) == b'{"a":[1180591620717411303424],"z":1}'
    assert body.provenance.user == {"who": "me"}


def test_records_written_here_are_read_by_their_schema() -> None:
    store = MemoryStore()
    write_participant(store, CK, "ck-1", AGENT, [agent_record("r1")]).require()
    reader = ParticipantReader.open(store, CK, AGENT)
    assert (reader.manifest.schema, reader.manifest.schema_version) == ("agent", 1)
    assert reader.load() == [agent_record("r1")]


_DIES = """
import os, sys
from ckptfmt.store.local import LocalStore
from tests.ckptfmt.test_participant_writer import record, writer_of
writer = writer_of(LocalStore(sys.argv[1]), object_target_bytes=int(sys.argv[2]))
for number in range(4):
    writer.add(record(f"r{number}"))
writer.flush()
writer.add(record("late"))
os._exit(9)
"""


@pytest.mark.parametrize("target", [1 << 20, 1])
def test_what_was_flushed_is_salvaged_after_the_process_died(tmp_path: Path, target: int) -> None:
    """F5, F26."""
    run = tmp_path / "run"
    died = subprocess.run(
        [sys.executable, "-c", _DIES, str(run), str(target)],
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert died.returncode == 9
    recovery = salvage(run / "ck-1", tmp_path / "new")
    assert isinstance(recovery.outcome, Committed)
    reader = Checkpoint.open(LocalStore(tmp_path / "new")).participant(CONTROLLER)
    found = [item.key for item in reader.load()]
    assert found[:4] == ["r0", "r1", "r2", "r3"]


def test_a_child_of_fork_neither_goes_on_with_an_attempt_nor_removes_it(tmp_path: Path) -> None:
    """S33: threads do not follow a fork, and what lies there is the parent's."""
    store = LocalStore(tmp_path)
    with writer_of(store, object_target_bytes=1) as writer:
        writer.add(record("r1"))
        writer.add(record("r2"))

        def goes_on() -> None:
            with pytest.raises(StateError, match="parent"):
                writer.flush()
            with pytest.raises(StateError, match="parent"):
                writer.finish().require()

        def leaves() -> None:
            with writer, pytest.raises(StateError, match="parent"):
                writer.add(record("r3"))

        assert forked(goes_on) == 0
        assert forked(leaves) == 0
        assert forked(writer.abandon) == 0
        writer.add(record("r3"))
        writer.finish().require()
    assert keys(store) == ["r1", "r2", "r3"]


class Interrupted(Record):
    """A record in whose writing the user loses patience."""

    def line(self) -> Any:
        raise KeyboardInterrupt


def test_an_interrupt_inside_add_gives_the_attempt_up(tmp_path: Path) -> None:
    """Whoever catches it must not publish what was half done."""
    store = LocalStore(tmp_path)
    with writer_of(store) as writer:
        writer.add(record("r1"))
        with pytest.raises(KeyboardInterrupt):
            writer.add(Interrupted(episode_id=EpisodeId("r2"), members={}))
        with pytest.raises(StateError):
            writer.finish()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_thread_that_cannot_be_started_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is where a process may have no more of them, and while the interpreter ends."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with writer_of(LocalStore(tmp_path)) as writer:
        monkeypatch.setattr("threading.Thread.start", refuse)
        outcome = writer.finish()
    assert isinstance(outcome, Committed)  # No block, and so no thread.
    with writer_of(LocalStore(tmp_path / "other")) as writer:
        writer.add(record("r1"))
        outcome = writer.finish()
    assert isinstance(outcome, NotCommitted)
    assert isinstance(outcome.reason, TransientError)
    assert [path for path in (tmp_path / "other").rglob("*") if path.is_file()] == []
