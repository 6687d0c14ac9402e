"""Participants in the format: what is stored, what is refused, who wins, what is settled."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ckptfmt.commit import Committed
from ckptfmt.errors import CommitUnknownError, StorageFailedError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.schema import ResourcesRecord
from ckptfmt.store import LocalStore, MemoryStore
from ckptfmt.store.base import BytesLike, Store
from participant.core.errors import (
    CheckpointFailedError,
    DeadlineExceededError,
    InvalidCheckpointStateError,
    ParticipantError,
    StaleCheckpointError,
)
from participant.hooks import RecordLike
from participant.runtime.saving import (
    FormatStorage,
    NemoGymStorage,
    Publication,
    PublicationState,
    SaveOrder,
    storage_of,
)

COUNTER = ParticipantId("counter", "c1")
R1, R2 = EpisodeId("r1"), EpisodeId("r2", 3)


def yes() -> bool:
    """The lease holds."""
    return True


def record(episode: EpisodeId, value: object) -> Record:
    """A plain record."""
    return Record(episode_id=episode, members={"state": JsonPayload.from_value(value)})


def order(
    place: str,
    *records: RecordLike,
    checkpoint_id: str = "ck",
    participant: ParticipantId = COUNTER,
) -> SaveOrder:
    """An order to store ``records``."""
    return SaveOrder(checkpoint_id, place, participant, records, {"kept": [1]})


def publish(place: Path, *participants: ParticipantId) -> None:
    """Publish the checkpoint, as its controller does."""
    store = LocalStore(place.parent)
    outcome = publish_checkpoint(store, Folder(place.name), "ck", participants or [COUNTER])
    assert isinstance(outcome, Committed)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of a checkpoint in a run."""
    return tmp_path / "run" / "ck"


def test_what_is_saved_is_loaded_within_its_scope(place: Path) -> None:
    """P57."""
    storage = FormatStorage()
    records = [record(R2, (1, float("inf"))), record(R1, {"n": 1}), record(EpisodeId("r1x"), 0)]
    manifest = msgspec.json.decode(storage.save(order(str(place), *records), Publication(), yes))
    assert manifest["checkpoint_id"] == "ck"
    assert manifest["episode_ids"] == ["r1", "r1x", "r2-a3"]
    assert manifest["role"] == {"kept": [1]}
    publish(place)
    state = storage.load(str(place), COUNTER, frozenset({R1, R2, EpisodeId("r9")}))
    assert state.source_checkpoint_id == "ck"
    values = {r.episode_id: r.members["state"].value() for r in state.records}  # type: ignore[attr-defined]
    assert values == {R1: {"n": 1}, R2: (1, float("inf"))}


PINS = tuple(
    LedgerPin(name=f"{key}.lineage.jsonl", size_bytes=5, sha256="ab" * 32) for key in ("r2", "r1")
)


def test_pins_stand_in_the_manifest_and_a_repeat_has_to_have_the_same(place: Path) -> None:
    job = dataclasses.replace(order(str(place), record(R1, 1)), ledger_pins=PINS)
    data = FormatStorage().save(job, Publication(), yes)
    manifest = msgspec.json.decode(data)
    assert [pin["name"] for pin in manifest["ledger_pins"]] == [
        "r1.lineage.jsonl",
        "r2.lineage.jsonl",
    ]
    assert FormatStorage().save(job, Publication(), yes) == data
    with pytest.raises(InvalidCheckpointStateError, match=manifest["token"]):
        FormatStorage().save(dataclasses.replace(job, ledger_pins=PINS[:1]), Publication(), yes)


def test_a_ledger_that_is_pinned_twice_is_refused(place: Path) -> None:
    job = dataclasses.replace(order(str(place), record(R1, 1)), ledger_pins=PINS[:1] * 2)
    with pytest.raises(InvalidCheckpointStateError, match="twice"):
        FormatStorage().save(job, Publication(), yes)
    assert [path for path in place.rglob("*") if path.is_file()] == []


def test_records_of_a_role_come_back_typed_by_their_sessions(place: Path) -> None:
    storage, participant = FormatStorage(), ParticipantId("resources", "res")
    sessions = [
        ResourcesRecord(episode_id=R1, session_id=f"s/{n}", state=None, owner=None)
        for n in range(3)
    ]
    storage.save(order(str(place), *sessions, participant=participant), Publication(), yes)
    publish(place, participant)
    state = storage.load(str(place), participant, frozenset({R1}))
    assert [r.session_id for r in state.records] == ["s/0", "s/1", "s/2"]  # type: ignore[attr-defined]


def test_a_checkpoint_that_was_not_published_is_not_restored(place: Path) -> None:
    storage = FormatStorage()
    with pytest.raises(InvalidCheckpointStateError, match="missing"):
        storage.load(str(place), COUNTER, frozenset({R1}))
    storage.save(order(str(place), record(R1, 1)), Publication(), yes)
    with pytest.raises(InvalidCheckpointStateError, match="incomplete"):
        storage.load(str(place), COUNTER, frozenset({R1}))
    publish(place)
    with pytest.raises(InvalidCheckpointStateError, match="no participant"):
        storage.load(str(place), ParticipantId("counter", "other"), frozenset({R1}))


def test_damage_outside_the_scope_fails_the_restore_too(place: Path) -> None:
    """P56: digests cover whole objects."""
    storage = FormatStorage()
    storage.save(order(str(place), record(R1, 1), record(R2, 2)), Publication(), yes)
    publish(place)
    (data,) = place.rglob("*.jsonl.zst")
    whole = data.read_bytes()
    for offset in (40, len(whole) // 2, len(whole) - 3):
        data.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with pytest.raises(InvalidCheckpointStateError):
            storage.load(str(place), COUNTER, frozenset({R1}))
    data.write_bytes(whole[:-1])
    with pytest.raises(InvalidCheckpointStateError, match="torn"):
        storage.load(str(place), COUNTER, frozenset({R1}))


def test_a_repeat_finds_its_own_manifest_and_another_content_names_the_winner(place: Path) -> None:
    """P41, P43."""
    storage = FormatStorage()
    first = storage.save(order(str(place), record(R1, 1)), Publication(), yes)
    again = storage.save(order(str(place), record(R1, 1)), Publication(), yes)
    assert again == first
    token = msgspec.json.decode(first)["token"]
    publication = Publication()
    with pytest.raises(InvalidCheckpointStateError, match=token):
        storage.save(order(str(place), record(R1, 2)), publication, yes)
    assert publication.state is PublicationState.NOT_PUBLISHED
    assert len(list(place.rglob("*.zst"))) == 1


def test_after_abandonment_nothing_is_published_and_nothing_left(place: Path) -> None:
    publication = Publication()
    publication.abandon()
    with pytest.raises(StaleCheckpointError):
        FormatStorage().save(order(str(place), record(R1, 1)), publication, yes)
    assert [path for path in place.rglob("*") if path.is_file()] == []


def test_nothing_is_published_once_the_lease_has_run_out(place: Path) -> None:
    with pytest.raises(DeadlineExceededError):
        FormatStorage().save(order(str(place), record(R1, 1)), Publication(), lambda: False)
    assert [path for path in place.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("twin", [record(R1, 2), record(R1, 1)])
def test_two_records_of_one_key_are_refused(place: Path, twin: Record) -> None:
    with pytest.raises(InvalidCheckpointStateError, match="duplicate_key"):
        FormatStorage().save(order(str(place), record(R1, 1), twin), Publication(), yes)


class LosesReplies(MemoryStore):
    """A store whose create of a manifest may be done, but is not acknowledged."""

    def __init__(self, is_done: bool) -> None:
        super().__init__()
        self.is_done = is_done
        self.is_lost = True

    def create(self, name: str, data: BytesLike) -> None:
        """As always, while replies get through."""
        if not self.is_lost or not name.endswith("manifest.json"):
            super().create(name, data)
            return
        if self.is_done:
            super().create(name, data)
        raise CommitUnknownError("the reply was lost")

    def read_small(self, name: str, max_bytes: int) -> bytes:
        """Nothing gets through while replies are lost."""
        if self.is_lost:
            raise StorageFailedError("the connection was lost")
        return super().read_small(name, max_bytes)


def at(store: Store) -> Callable[[str], Store]:
    """Always this store."""
    return lambda place: store


@pytest.mark.parametrize("is_done", [True, False])
def test_a_lost_reply_leaves_the_publication_unknown_until_it_is_settled(is_done: bool) -> None:
    """P40, P43: read back, or closed by a tombstone; a repeat then finds what stands there."""
    store = LosesReplies(is_done)
    storage = FormatStorage(at(store))
    job, publication = order("/anywhere", record(R1, 1)), Publication()
    with pytest.raises(CheckpointFailedError, match="commit_unknown"):
        storage.save(job, publication, yes)
    assert publication.state is PublicationState.UNKNOWN
    with pytest.raises(CheckpointFailedError):
        storage.settle(job)
    store.is_lost = False
    storage.settle(job)
    if is_done:
        assert storage.save(job, Publication(), yes)
    else:
        with pytest.raises(InvalidCheckpointStateError, match="aborted"):
            storage.save(job, Publication(), yes)


def test_a_store_that_fails_is_no_fault_of_the_data() -> None:
    class Full(MemoryStore):
        def create(self, name: str, data: BytesLike) -> None:
            raise StorageFailedError("no space left on device")

    with pytest.raises(ParticipantError) as caught:
        FormatStorage(at(Full())).save(order("/x", record(R1, 1)), Publication(), yes)
    assert caught.value.code == "checkpoint_error"


def test_a_layout_that_is_not_written_is_refused_at_start_up() -> None:
    assert type(storage_of("ckptfmt")) is FormatStorage
    with pytest.raises(ValueError, match="unheard-of"):
        storage_of("unheard-of")


def gym_storage() -> NemoGymStorage:
    """The storage of the layout that the settings name."""
    storage = storage_of("nemo-gym")
    assert isinstance(storage, NemoGymStorage)
    return storage


def test_in_gyms_layout_the_manifest_is_gyms_and_the_records_are_lines_of_json(place: Path) -> None:
    storage, records = gym_storage(), [record(R2, [1, float("inf")]), record(R1, {"n": None})]
    manifest = msgspec.json.decode(storage.save(order(str(place), *records), Publication(), yes))
    folder = place / "gym" / "counter" / "c1"
    data = (folder / manifest["records_file"]).read_bytes()
    assert [json.loads(line) for line in data.splitlines()] == [
        {"episode_id": {"rollout_id": "r1", "attempt": 0}, "state": {"n": None}},
        {"episode_id": {"rollout_id": "r2", "attempt": 3}, "state": [1, float("inf")]},
    ]
    sha256 = hashlib.sha256(data).hexdigest()
    assert manifest == {
        "checkpoint_id": "ck",
        "instance": "c1",
        "kind": "counter",
        "record_count": 2,
        "records_file": f"records-{sha256}.jsonl",
        "records_sha256": sha256,
        "schema_version": 1,
    }
    assert json.loads((folder / "manifest.json").read_bytes()) == manifest


def test_in_gyms_layout_pins_are_dropped(place: Path) -> None:
    job = order(str(place), record(R1, 1))
    plain = gym_storage().save(job, Publication(), yes)
    pinned = dataclasses.replace(job, ledger_pins=PINS)
    assert gym_storage().save(pinned, Publication(), yes) == plain


@pytest.mark.parametrize("reads", ["ckptfmt", "nemo-gym"])
def test_either_layout_is_restored_by_looking(place: Path, reads: str) -> None:
    gym_storage().save(order(str(place), record(R1, {"n": 1}), record(R2, 2)), Publication(), yes)
    state = storage_of(reads).load(str(place), COUNTER, frozenset({R1}))
    assert state.source_checkpoint_id == "ck"
    assert [r.episode_id for r in state.records] == [R1]
    ours = place.with_name("ours")
    FormatStorage().save(order(str(ours), record(R1, (1,))), Publication(), yes)
    publish(ours)
    (found,) = storage_of(reads).load(str(ours), COUNTER, frozenset({R1})).records
    assert found.members["state"].value() == (1,)  # type: ignore[attr-defined]


def test_what_gym_cannot_spell_is_refused_and_nothing_written(place: Path) -> None:
    with pytest.raises(InvalidCheckpointStateError, match="tuple"):
        gym_storage().save(order(str(place), record(R1, (1,))), Publication(), yes)
    assert not place.exists()


def test_damage_in_gyms_layout_fails_the_restore(place: Path) -> None:
    storage = gym_storage()
    storage.save(order(str(place), record(R1, 1), record(R2, 2)), Publication(), yes)
    (data,) = place.rglob("records*")
    whole = data.read_bytes()
    for damaged in (whole.replace(b"2}", b"3}"), whole[:-3], whole + b"{}\n", b""):
        data.write_bytes(damaged)
        with pytest.raises(InvalidCheckpointStateError):
            storage.load(str(place), COUNTER, frozenset({R1}))
    with pytest.raises(InvalidCheckpointStateError, match="no participant"):
        storage.load(str(place), ParticipantId("counter", "other"), frozenset({R1}))


def test_in_gyms_layout_too_the_first_content_wins(place: Path) -> None:
    storage = gym_storage()
    first = storage.save(order(str(place), record(R1, 1)), Publication(), yes)
    assert storage.save(order(str(place), record(R1, 1)), Publication(), yes) == first
    publication = Publication()
    with pytest.raises(InvalidCheckpointStateError, match="published here first"):
        storage.save(order(str(place), record(R1, 2)), publication, yes)
    assert publication.state is PublicationState.NOT_PUBLISHED
    abandoned = Publication()
    abandoned.abandon()
    with pytest.raises(StaleCheckpointError):
        storage.save(order(str(place), record(R1, 1)), abandoned, yes)
    with pytest.raises(DeadlineExceededError):
        storage.save(order(str(place), record(R1, 1)), Publication(), lambda: False)


@pytest.mark.parametrize("is_done", [True, False])
def test_in_gyms_layout_too_a_lost_reply_is_settled(is_done: bool) -> None:
    store = LosesReplies(is_done)
    storage = NemoGymStorage(at(store))
    job, publication = order("/anywhere", record(R1, 1)), Publication()
    with pytest.raises(CheckpointFailedError, match="commit_unknown"):
        storage.save(job, publication, yes)
    assert publication.state is PublicationState.UNKNOWN
    with pytest.raises(CheckpointFailedError):
        storage.settle(job)
    store.is_lost = False
    storage.settle(job)
    if is_done:
        assert storage.save(job, Publication(), yes)
    else:
        with pytest.raises(InvalidCheckpointStateError, match="aborted"):
            storage.save(job, Publication(), yes)
