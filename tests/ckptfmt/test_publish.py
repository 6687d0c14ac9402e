"""Publishing checkpoints: the controller reads everything back, and writes last."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.commit import Committed, NotCommitted, Outcome
from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CorruptError,
    FencedError,
    IncompleteError,
    MissingError,
    RefusedError,
    StateError,
    StorageFailedError,
    TornError,
    ValueRefusedError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.manifest import CheckpointManifest
from ckptfmt.participant_writer import write_participant
from ckptfmt.provenance import library
from ckptfmt.publish import (
    About,
    abort_checkpoint,
    abort_participant,
    publish_checkpoint,
    write_checkpoint,
)
from ckptfmt.run import latest
from ckptfmt.store.base import BytesLike, Store
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from tests.support.checkpoints import AGENT, RESOURCES, agent_record, small_records, write_small
from tests.support.damage import cut, data_file, flip

CK = Folder("ck-1")


def participants(store: Store, folder: Folder = CK, *, text: str = "hello") -> None:
    """What the two participants write before the controller comes."""
    for participant, records in small_records().items():
        write_participant(store, folder, "ck-1", participant, records, user={"t": text}).require()


def published(store: Store, about: About = About()) -> Outcome[CheckpointManifest]:
    return publish_checkpoint(store, CK, "ck-1", [AGENT, RESOURCES], about)


def reason(outcome: Outcome[Any]) -> CkptError:
    assert isinstance(outcome, NotCommitted)
    return outcome.reason


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_participants_wrote_is_published_with_their_manifests_digests() -> None:
    store = MemoryStore()
    participants(store)
    body = published(store).require().body
    assert [item.participant for item in body.participants] == [AGENT, RESOURCES]
    checkpoint = Checkpoint.open(store, CK)
    checkpoint.check()
    for item in body.participants:
        sealed = checkpoint.participant(item.participant).sealed
        assert (item.manifest_sha256, item.manifest_bytes) == (sealed.sha256, len(sealed.data))


def test_before_the_last_write_there_is_no_checkpoint() -> None:
    """S2, S10."""
    store = MemoryStore()
    write_small(store, "ck-0").require()
    participants(store)
    with pytest.raises(IncompleteError):
        Checkpoint.open(store, CK)
    found = latest(store)
    assert found.entry.checkpoint_id == "ck-0"


def test_a_participant_without_a_manifest_is_not_published() -> None:
    """S1, S6: the message names participant and store, and nothing is published."""
    store = MemoryStore()
    participants(store)
    store.delete(CK.manifest(RESOURCES))
    error = reason(published(store))
    assert isinstance(error, MissingError)
    assert str(RESOURCES) in str(error)
    assert store.label in str(error)
    with pytest.raises(IncompleteError):
        Checkpoint.open(store, CK)


def test_a_participant_on_another_disk_is_named_with_the_path(tmp_path: Path) -> None:
    """S6."""
    ours, other = LocalStore(tmp_path / "ours"), LocalStore(tmp_path / "other")
    records = small_records()
    write_participant(ours, CK, "ck-1", AGENT, records[AGENT]).require()
    write_participant(other, CK, "ck-1", RESOURCES, records[RESOURCES]).require()
    error = reason(published(ours))
    assert isinstance(error, MissingError)
    assert error.location.participant == str(RESOURCES)
    assert str(tmp_path / "ours") in str(error)
    assert not (tmp_path / "ours" / CK.aggregate).exists()


@pytest.mark.parametrize(("size", "kind"), [(-1, TornError), (0, TornError)])
def test_a_short_data_object_is_not_published(
    tmp_path: Path, size: int, kind: type[CkptError]
) -> None:
    """S6, F37."""
    store = LocalStore(tmp_path)
    participants(store)
    cut(data_file(tmp_path / "ck-1", str(AGENT)), size)
    error = reason(published(store))
    assert isinstance(error, kind)
    assert error.location.participant == str(AGENT)


def test_a_damaged_manifest_is_not_published(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    participants(store)
    flip(tmp_path / CK.manifest(AGENT), 40)
    assert isinstance(reason(published(store)), CorruptError)


def test_a_manifest_of_another_checkpoint_is_not_published() -> None:
    """F41, S7."""
    store = MemoryStore()
    write_participant(store, CK, "ck-0", AGENT, []).require()
    assert isinstance(reason(publish_checkpoint(store, CK, "ck-1", [AGENT])), CorruptError)


def test_a_participant_that_was_given_up_is_not_published() -> None:
    store = MemoryStore()
    write_participant(store, CK, "ck-1", AGENT, []).require()
    abort_participant(store, CK, "ck-1", RESOURCES)
    assert isinstance(reason(published(store)), AbortedError)


def test_a_participant_that_nobody_expected_is_refused_and_named() -> None:
    store = MemoryStore()
    participants(store)
    error = reason(publish_checkpoint(store, CK, "ck-1", [AGENT]))
    assert isinstance(error, StateError)
    assert str(RESOURCES) in error.message


def test_nobody_expected_is_refused() -> None:
    """S11."""
    with pytest.raises(StateError):
        publish_checkpoint(MemoryStore(), CK, "ck-1", [])
    with pytest.raises(StateError):
        write_checkpoint(MemoryStore(), "ck-1", {})


def test_an_expected_participant_that_wrote_nothing_is_not_an_empty_one() -> None:
    """S11, F3."""
    store = MemoryStore()
    assert isinstance(reason(publish_checkpoint(store, CK, "ck-1", [AGENT])), MissingError)
    write_participant(store, CK, "ck-1", AGENT, []).require()
    assert isinstance(publish_checkpoint(store, CK, "ck-1", [AGENT]), Committed)


@pytest.mark.parametrize(("one", "other"), [("Foo", "foo"), ("a.B", "A.b")], ids=["name", "inside"])
def test_participants_that_differ_in_case_are_refused_before_anything_is_written(
    tmp_path: Path, one: str, other: str
) -> None:
    """S60."""
    both = [ParticipantId("agent", one), ParticipantId("agent", other)]
    with pytest.raises(RefusedError, match="ignore case"):
        write_checkpoint(LocalStore(tmp_path), "ck-1", {participant: [] for participant in both})
    assert list(tmp_path.iterdir()) == []


def test_the_same_participant_listed_twice_is_refused() -> None:
    store = MemoryStore()
    write_participant(store, CK, "ck-1", AGENT, []).require()
    with pytest.raises(RefusedError):
        publish_checkpoint(store, CK, "ck-1", [AGENT, ParticipantId("agent", "a1")])


@pytest.mark.parametrize("name", ["", "a/b", "..", ".x", "a\n", "a:b", "a" * 129, "a\0"])
def test_a_malformed_id_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    """S59."""
    with pytest.raises(RefusedError):
        write_small(LocalStore(tmp_path), name)
    assert list(tmp_path.iterdir()) == []


def test_the_same_again_gives_the_stored_manifest_and_changes_no_byte(tmp_path: Path) -> None:
    """S14."""
    store = LocalStore(tmp_path)
    first = write_small(store).require()
    before = snapshot(tmp_path)
    second = write_small(store)
    assert isinstance(second, Committed)
    assert not second.ours
    assert second.stored.data == first.data
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("change", ["records", "metadata", "scope", "run_id"])
def test_other_content_is_fenced_and_changes_no_byte(tmp_path: Path, change: str) -> None:
    """S14, S16."""
    store = LocalStore(tmp_path)
    write_small(store).require()
    before = snapshot(tmp_path)
    about = {
        "records": About(),
        "metadata": About(metadata={"a": 1}),
        "scope": About(scope=[]),
        "run_id": About(run_id="r"),
    }[change]
    outcome = write_small(store, state="other" if change == "records" else None, about=about)
    assert isinstance(reason(outcome), FencedError)
    assert snapshot(tmp_path) == before


def test_after_a_tombstone_nothing_is_published_and_the_next_id_works() -> None:
    store = MemoryStore()
    abort_checkpoint(store, CK, "ck-1")
    assert isinstance(reason(write_small(store)), AbortedError)
    write_small(store, "ck-2").require()


class Full(MemoryStore):
    """A store in which the last file of a commit cannot be created while it is full."""

    full = True

    def create(self, name: str, data: BytesLike) -> None:
        if self.full and name == CK.aggregate:
            raise StorageFailedError("no space left")
        super().create(name, data)


def test_a_commit_that_failed_at_its_last_file_is_repeated() -> None:
    """S5."""
    store = Full()
    assert isinstance(reason(write_small(store)), StorageFailedError)
    store.full = False
    assert isinstance(write_small(store), Committed)
    Checkpoint.open(store, CK).check()


def test_sequences_ascend_and_each_names_the_one_before() -> None:
    store = MemoryStore()
    first = write_small(store, "b").require()
    second = write_small(store, "a").require()
    assert (first.body.sequence, second.body.sequence) == (1, 2)
    assert first.body.previous is None
    assert second.body.previous is not None
    assert second.body.previous.checkpoint_id == "b"
    assert second.body.previous.sha256 == first.sha256


def test_the_scope_is_kept_sorted_and_once() -> None:
    episodes = [EpisodeId("r2", 0), EpisodeId("r1", 3), EpisodeId("r2", 0), EpisodeId("r1", 0)]
    body = write_small(MemoryStore(), about=About(scope=iter(episodes))).require().body
    assert body.scope == sorted({item.capture_key for item in episodes})
    assert len(body.scope) == 3


def test_an_empty_scope_is_not_everything() -> None:
    store = MemoryStore()
    write_small(store, about=About(scope=[])).require()
    assert Checkpoint.open(store, CK).manifest.scope == []
    write_small(store, "ck-2").require()
    assert Checkpoint.open(store, Folder("ck-2")).manifest.scope is None


def test_metadata_is_kept_as_the_bytes_that_it_is_spelled_as() -> None:
    """F48, F11: big integers, floats, non-ASCII text."""
    store = MemoryStore()
    given = {"z": [1 << 80, 1e16, -0.0, "é\u2028"], "a": {"y": None, "b": True}}
    write_small(store, about=About(metadata=given)).require()
    kept = bytes(Checkpoint.open(store, CK).manifest.user_metadata)
    assert kept == json.dumps(given, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("value", [float("nan"), (1,), b"x", {1: 2}, {1, 2}, "\ud800"], ids=repr)
def test_metadata_that_is_not_plain_json_is_refused_or_not_committed(value: object) -> None:
    """F21."""
    store = MemoryStore()
    try:
        error = reason(write_small(store, about=About(metadata={"a": value})))
    except ValueRefusedError as refused:
        error = refused
    assert isinstance(error, ValueRefusedError)
    with pytest.raises(IncompleteError):
        Checkpoint.open(store, CK)


def test_a_malformed_metadata_is_refused_as_the_docstring_says() -> None:
    """``RefusedError`` for metadata that is not plain JSON, not an outcome."""
    store = MemoryStore()
    participants(store)
    with pytest.raises(RefusedError):
        published(store, About(metadata={"a": (1,)}))


def test_provenance_tells_who_wrote_it() -> None:
    """F55."""
    about = About(user={"commit": "c0ffee"}, run_id="run-7", config_digest="abc")
    body = write_small(MemoryStore(), about=about).require().body
    assert body.provenance.library == library()
    assert platform.python_version() in body.provenance.python
    assert body.provenance.host
    assert body.provenance.created_at.endswith("Z")
    assert body.provenance.user == {"commit": "c0ffee"}
    assert (body.run_id, body.config_digest) == ("run-7", "abc")


def test_a_link_in_the_place_of_the_folder_is_not_written_through(tmp_path: Path) -> None:
    """S62."""
    outside = tmp_path / "outside"
    outside.mkdir()
    run = tmp_path / "run"
    run.mkdir()
    (run / "ck-1").symlink_to(outside)
    with pytest.raises(CkptError):
        write_small(LocalStore(run)).require()
    assert list(outside.iterdir()) == []


def test_the_participants_of_a_repeat_need_not_come_as_lists() -> None:
    store = MemoryStore()
    for _ in range(2):
        records = (agent_record(name) for name in ("r2", "r1"))
        write_checkpoint(store, "ck-1", {AGENT: records}).require()
    assert [record.key for record in Checkpoint.open(store, CK).participant(AGENT).load()] == [
        "r1/s",
        "r2/s",
    ]


@pytest.mark.parametrize(
    "change",
    [{"run_id": 7}, {"run_id": "\ud800"}, {"config_digest": b"x"}, {"user": {"k": 1}},
     {"user": {1: "v"}}, {"user": {"k": "\udfff"}}, {"scope": [EpisodeId("r")], "run_id": ["r"]}],
    ids=ascii,
)  # fmt: skip
def test_what_could_not_be_read_again_is_not_published(
    change: dict[str, Any], tmp_path: Path
) -> None:
    """What could be written can always be read, whatever a caller without types passes."""
    store = LocalStore(tmp_path)
    participants(store)
    refused = reason(published(store, About(**change)))
    assert isinstance(refused, ValueRefusedError)
    assert not (tmp_path / CK.aggregate).exists()
    published(store).require()


def test_a_participant_whose_manifest_could_not_be_read_again_leaves_nothing(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    user: Any = {"k": 1}
    outcome = write_participant(store, CK, "ck-1", AGENT, [agent_record("r")], user=user)
    assert isinstance(reason(outcome), ValueRefusedError)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
