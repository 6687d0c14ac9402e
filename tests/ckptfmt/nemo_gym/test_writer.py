"""Writing one participant: create-only, own by its bytes, unknown until it is settled."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from ckptfmt.commit import Publication, PublicationState
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CommitUnknownError,
    DeadlineError,
    DuplicateKeyError,
    ExistsError,
    FencedError,
    StateError,
    StorageFailedError,
    ValueRefusedError,
)
from ckptfmt.layout import Folder
from ckptfmt.layouts import open_checkpoint
from ckptfmt.nemo_gym.layout import records_name
from ckptfmt.nemo_gym.writer import (
    abort_gym_participant,
    create_or_find,
    write_gym_participant,
)
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import BytesLike, Store
from ckptfmt.store.memory import MemoryStore
from tests.support.checkpoints import AGENT, agent_record, resources_record
from tests.support.gym import agent_line

GYM = Folder("gym")
MANIFEST = "gym/agent/a1/manifest.json"


def write(
    store: Store,
    *records: TypedRecord | Record,
    publication: Publication | None = None,
    check: object = None,
) -> bytes:
    """Write an agent's records."""
    return write_gym_participant(
        store,
        GYM,
        "ck-1",
        AGENT,
        records,
        publication=publication,
        check=check,  # type: ignore[arg-type]
    )


def names(store: Store) -> list[str]:
    """The files of the agent."""
    return [entry.name for entry in store.entries("gym/agent/a1")]


def test_what_is_written_is_what_json_dumps_gives() -> None:
    store, publication = MemoryStore(), Publication()
    manifest = json.loads(
        write(store, agent_record("r2"), agent_record("r1"), publication=publication)
    )
    data = "".join(json.dumps(agent_line(rollout)) + "\n" for rollout in ("r2", "r1")).encode()
    sha256 = hashlib.sha256(data).hexdigest()
    assert manifest == {
        "checkpoint_id": "ck-1",
        "instance": "a1",
        "kind": "agent",
        "record_count": 2,
        "records_file": records_name(sha256),
        "records_sha256": sha256,
        "schema_version": 1,
    }
    assert store.read_small(f"gym/agent/a1/{records_name(sha256)}", 10_000) == data
    assert publication.state is PublicationState.PUBLISHED
    assert len(open_checkpoint(store).participant(AGENT).load()) == 2


def test_the_same_again_is_the_same_manifest_and_other_content_names_the_winner() -> None:
    store = MemoryStore()
    first = write(store, agent_record("r1"))
    before = names(store)
    assert write(store, agent_record("r1")) == first
    publication = Publication()
    with pytest.raises(FencedError, match=json.loads(first)["records_sha256"]):
        write(store, agent_record("r2"), publication=publication)
    assert publication.state is PublicationState.NOT_PUBLISHED
    assert names(store) == before


def test_a_value_that_gym_cannot_spell_is_refused_before_anything_is_written() -> None:
    store = MemoryStore()
    beyond = replace(agent_record("r2"), session=JsonPayload.from_value((1,)))
    with pytest.raises(ValueRefusedError, match="tuple") as caught:
        write(store, agent_record("r1"), beyond)
    assert caught.value.location.key == "r2/s"
    assert names(store) == []


def test_a_record_of_another_schema_is_refused_before_anything_is_written() -> None:
    """F22: what could be written can always be read."""
    store = MemoryStore()
    with pytest.raises(ValueRefusedError, match="agent"):
        write(store, agent_record("r1"), resources_record("r1"))
    assert names(store) == []


def test_two_records_of_one_key_are_refused() -> None:
    store = MemoryStore()
    with pytest.raises(DuplicateKeyError):
        write(store, agent_record("r1"), agent_record("r1", text="x"))
    assert names(store) == []


def test_after_abandonment_nothing_is_published_and_nothing_left() -> None:
    store, publication = MemoryStore(), Publication()
    publication.abandon()
    with pytest.raises(StateError):
        write(store, agent_record("r1"), publication=publication)
    assert names(store) == []


def test_a_check_at_the_last_moment_can_refuse() -> None:
    def refuse() -> None:
        raise DeadlineError("too late")

    store, publication = MemoryStore(), Publication()
    with pytest.raises(DeadlineError):
        write(store, agent_record("r1"), publication=publication, check=refuse)
    assert names(store) == []
    assert publication.abandon()


class LosesReplies(MemoryStore):
    """A store whose create of manifests may be done, but is not acknowledged."""

    def __init__(self, *, is_done: bool, reads: bool) -> None:
        super().__init__()
        self.is_done = is_done
        self.reads = reads
        self.is_lost = True

    def create(self, name: str, data: BytesLike) -> None:
        if not self.is_lost or not name.endswith("manifest.json"):
            super().create(name, data)
            return
        if self.is_done:
            super().create(name, data)
        raise CommitUnknownError("the reply was lost")

    def read_small(self, name: str, max_bytes: int) -> bytes:
        if self.is_lost and not self.reads:
            raise StorageFailedError("the connection was lost")
        return super().read_small(name, max_bytes)


def test_a_lost_reply_is_settled_by_reading_back() -> None:
    store, publication = LosesReplies(is_done=True, reads=True), Publication()
    write(store, agent_record("r1"), publication=publication)
    assert publication.state is PublicationState.PUBLISHED


@pytest.mark.parametrize(("is_done", "reads"), [(True, False), (False, True), (False, False)])
def test_what_cannot_be_read_back_is_unknown_until_it_is_settled(
    is_done: bool, reads: bool
) -> None:
    store, publication = LosesReplies(is_done=is_done, reads=reads), Publication()
    with pytest.raises(CommitUnknownError):
        write(store, agent_record("r1"), publication=publication)
    assert publication.state is PublicationState.UNKNOWN
    assert any(name.startswith("records-") for name in names(store))
    store.is_lost = False
    assert abort_gym_participant(store, GYM, "ck-1", AGENT) is not is_done
    if is_done:
        write(store, agent_record("r1"))
    else:
        with pytest.raises(AbortedError):
            write(store, agent_record("r1"))


def test_a_closed_name_stays_closed() -> None:
    store = MemoryStore()
    assert abort_gym_participant(store, GYM, "ck-1", AGENT)
    assert abort_gym_participant(store, GYM, "ck-1", AGENT)
    publication = Publication()
    with pytest.raises(AbortedError):
        write(store, agent_record("r1"), publication=publication)
    assert publication.state is PublicationState.NOT_PUBLISHED
    assert names(store) == ["manifest.json"]


def test_something_unreadable_in_the_place_is_not_touched() -> None:
    store = MemoryStore()
    store.create(MANIFEST, b"{}")
    with pytest.raises(FencedError, match="cannot be read"):
        write(store, agent_record("r1"))
    assert store.read_small(MANIFEST, 10) == b"{}"


def test_a_store_that_fails_leaves_nothing_published() -> None:
    class Full(MemoryStore):
        def create(self, name: str, data: BytesLike) -> None:
            if name == MANIFEST:
                raise StorageFailedError("no space left on device")
            super().create(name, data)

    store, publication = Full(), Publication()
    with pytest.raises(StorageFailedError):
        write(store, agent_record("r1"), publication=publication)
    assert publication.state is PublicationState.NOT_PUBLISHED
    assert names(store) == []


def test_records_of_a_dead_writer_are_taken_over_and_foreign_ones_are_not() -> None:
    store = MemoryStore()
    assert create_or_find(store, "a/records.jsonl", b"one\n")
    assert not create_or_find(store, "a/records.jsonl", bytearray(b"one\n"))
    with pytest.raises(ExistsError):
        create_or_find(store, "a/records.jsonl", b"two\n")


def test_a_checkpoint_id_is_checked_first() -> None:
    with pytest.raises(CkptError, match="checkpoint id"):
        write_gym_participant(MemoryStore(), GYM, "../x", AGENT, [])
