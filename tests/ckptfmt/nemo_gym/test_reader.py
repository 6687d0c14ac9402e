"""A checkpoint in Gym's layout behind the façade of every other one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ckptfmt import layouts
from ckptfmt.checkpoint import diff, latest, list_checkpoints, open_checkpoint, plan_gc, salvage
from ckptfmt.checkpoint import verify as verify_all
from ckptfmt.diff import ChangeKind
from ckptfmt.errors import (
    AmbiguousLatestError,
    CkptError,
    CorruptError,
    DataError,
    MissingError,
    TornError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.nemo_gym.reader import GymCheckpoint, GymReader
from ckptfmt.record import join_line
from ckptfmt.run import CheckpointState
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.verify import Level
from tests.support.checkpoints import AGENT, RESOURCES, agent_record, write_small
from tests.support.damage import cut, flip
from tests.support.gym import agent_line, gym_small, tree, write_gym

LEVELS = list(Level)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A small checkpoint in a run."""
    return write_gym(tmp_path / "run" / "g")


def records_file(checkpoint: Path, participant: str = "agent/a1") -> Path:
    """The file of a participant's records."""
    (found,) = checkpoint.joinpath("gym", participant).glob("records*")
    return found


def rules(checkpoint: Path, level: Level = Level.FULL) -> list[str]:
    """The rules that do not hold, sorted."""
    return sorted(finding.rule.rule_id for finding in verify_all(checkpoint, level=level))


def aged(checkpoint: Path, checkpoint_id: str, created_at: str | None) -> Path:
    """A checkpoint whose collection has a time."""
    write_gym(checkpoint, checkpoint_id=checkpoint_id, aggregate=False)
    if created_at is not None:
        told = {"checkpoint_id": checkpoint_id, "created_at": created_at}
        (checkpoint / "collection.json").write_text(json.dumps(told))
    return checkpoint


@pytest.mark.parametrize("below", ["", "gym"])
@pytest.mark.parametrize("by_digest", [True, False])
@pytest.mark.parametrize("aggregate", [True, False])
def test_every_form_of_the_layout_is_opened_by_looking(
    tmp_path: Path, below: str, by_digest: bool, aggregate: bool
) -> None:
    write_gym(tmp_path, by_digest=by_digest, aggregate=aggregate)
    opened = open_checkpoint(tmp_path / below)
    assert isinstance(opened, GymCheckpoint)
    assert opened.participants == (AGENT, RESOURCES)
    assert opened.manifest.checkpoint_id == "ck-1"
    assert (opened.sequence, opened.format_version) == (None, "nemo-gym 1")
    opened.check()
    for level in LEVELS:
        assert rules(tmp_path / below, level) == []


def test_records_are_those_of_the_same_checkpoint_in_this_format(checkpoint: Path) -> None:
    """I12."""
    reader = open_checkpoint(checkpoint).participant(AGENT)
    wanted = [agent_record(rollout) for rollout in ("r1", "r2", "r3")]
    assert [join_line(record.line()) for record in reader.load()] == [
        join_line(record.line()) for record in wanted
    ]
    assert reader.get("r2/s") == wanted[1]
    assert reader.load(episodes=[EpisodeId("r3")]) == [wanted[2]]
    assert reader.episode_ids == ["r1", "r2", "r3"]
    with pytest.raises(MissingError):
        reader.get("r9/s")
    with pytest.raises(MissingError):
        open_checkpoint(checkpoint).participant(ParticipantId("agent", "none"))


def test_equal_records_have_equal_digests_in_both_layouts(checkpoint: Path) -> None:
    store = MemoryStore()
    write_small(store).require()
    ours = layouts.open_checkpoint(store, Folder("ck-1")).participant(AGENT)
    gym = open_checkpoint(checkpoint).participant(AGENT)
    assert gym.content_digest == ours.content_digest
    assert gym.raw_bytes == ours.raw_bytes


def test_a_diff_tells_what_changed(tmp_path: Path, checkpoint: Path) -> None:
    values = gym_small()
    values["agent/a1"] = [agent_line("r1"), agent_line("r2", text="x"), agent_line("r3", attempt=1)]
    other = write_gym(tmp_path / "other", values)
    changes = [(change.kind, change.old_key, change.new_key) for change in diff(checkpoint, other)]
    assert changes == [
        (ChangeKind.CHANGED, "r2/s", "r2/s"),
        (ChangeKind.CONTINUED, "r3/s", "r3-a1/s"),
    ]
    assert list(diff(checkpoint, checkpoint)) == []
    flip(records_file(other), 40)
    with pytest.raises(DataError):
        list(diff(checkpoint, other))


def test_a_wrong_digest_is_a_finding(checkpoint: Path) -> None:
    """I12."""
    file = records_file(checkpoint)
    file.write_bytes(file.read_bytes().replace(b"hello", b"hellO", 1))
    assert rules(checkpoint) == ["stream"]
    assert rules(checkpoint, Level.QUICK) == []
    with pytest.raises(CorruptError):
        open_checkpoint(checkpoint).participant(AGENT).load()


def test_a_file_with_too_few_records_is_torn(checkpoint: Path) -> None:
    file = records_file(checkpoint)
    cut(file, file.read_bytes().rstrip(b"\n").rindex(b"\n") + 1)
    assert rules(checkpoint) == ["stream"]
    with pytest.raises(TornError):
        open_checkpoint(checkpoint).participant(AGENT).load()


def test_records_that_are_gone_are_a_finding_at_every_level(checkpoint: Path) -> None:
    records_file(checkpoint).unlink()
    for level in LEVELS:
        assert rules(checkpoint, level) == ["data"]
    assert list_checkpoints(checkpoint.parent)[0].state is CheckpointState.DAMAGED


def test_a_link_in_place_of_the_records_is_not_followed(tmp_path: Path, checkpoint: Path) -> None:
    file = records_file(checkpoint)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert rules(checkpoint)[0] == "data"
    with pytest.raises(DataError):
        open_checkpoint(checkpoint).participant(AGENT).load()


def test_a_damaged_manifest_is_a_finding_of_its_participant(checkpoint: Path) -> None:
    manifest = checkpoint / "gym" / "agent" / "a1" / "manifest.json"
    told = json.loads(manifest.read_text())
    for changes in (
        {"kind": "resources"},
        {"instance": "a2"},
        {"checkpoint_id": "ck-9"},
        {"records_file": "../../../../secret"},
    ):
        manifest.write_text(json.dumps(told | changes))
        assert rules(checkpoint) == ["participant"]
    manifest.write_text(json.dumps(told | {"schema_version": 9}))
    assert rules(checkpoint) == ["unsupported"]


def test_manifests_of_two_checkpoints_do_not_pass_for_one(tmp_path: Path) -> None:
    write_gym(tmp_path / "a", aggregate=False)
    write_gym(tmp_path / "b", aggregate=False, checkpoint_id="ck-2")
    (tmp_path / "b" / "gym" / "model").mkdir()
    (tmp_path / "a" / "gym" / "agent").rename(tmp_path / "b" / "gym" / "model" / "x")
    moved = tmp_path / "b" / "gym" / "agent" / "a2"
    (tmp_path / "b" / "gym" / "model" / "x" / "a1").rename(moved)
    told = json.loads((moved / "manifest.json").read_text())
    (moved / "manifest.json").write_text(json.dumps(told | {"instance": "a2"}))
    assert rules(tmp_path / "b") == ["participant", "stranger"]


def test_a_damaged_aggregate_hides_nobody(checkpoint: Path) -> None:
    (checkpoint / "gym_checkpoint.json").write_text("{")
    assert rules(checkpoint) == ["aggregate"]
    assert layouts.participants_in(LocalStore(checkpoint), Folder()) == [AGENT, RESOURCES]
    reader = layouts.open_participant(LocalStore(checkpoint), Folder(), AGENT)
    assert isinstance(reader, GymReader)
    assert len(reader.load()) == 3
    (checkpoint / "gym_checkpoint.json").write_text('{"schema_version": 3}')
    assert rules(checkpoint) == ["unsupported"]


def test_whoever_the_aggregate_names_has_to_be_there(checkpoint: Path) -> None:
    told = json.loads((checkpoint / "gym_checkpoint.json").read_text())
    told["instances"] = ["a1", "r1", "model/m1"]
    (checkpoint / "gym_checkpoint.json").write_text(json.dumps(told))
    assert rules(checkpoint) == ["participant"]
    (entry,) = list_checkpoints(checkpoint.parent)
    assert entry.state is CheckpointState.DAMAGED


def test_two_records_of_one_key_are_a_finding(tmp_path: Path) -> None:
    write_gym(tmp_path, {"agent/a1": [agent_line("r1"), agent_line("r1")]})
    assert rules(tmp_path) == ["key"]


def test_what_lies_beside_the_files_is_told(checkpoint: Path) -> None:
    (checkpoint / "weights.bin").write_bytes(b"a model, not ours to judge")
    assert rules(checkpoint) == []
    (checkpoint / "gym" / "agent" / "a1" / "notes.txt").write_bytes(b"x")
    (checkpoint / "gym" / "agent" / "a1" / f"records-{'0' * 64}.jsonl").write_bytes(b"")
    assert rules(checkpoint) == ["stranger", "stranger"]


def test_a_flipped_bit_in_any_byte_is_found_or_changes_nothing(tmp_path: Path) -> None:
    write_gym(tmp_path, {"agent/a1": [agent_line("r1")]})
    whole = open_checkpoint(tmp_path).participant(AGENT).load()
    for file in (records_file(tmp_path), tmp_path / "gym/agent/a1/manifest.json"):
        data = file.read_bytes()
        for offset in range(len(data)):
            flip(file, offset, bits=1 << offset % 8)
            found = rules(tmp_path)
            try:
                same = open_checkpoint(tmp_path).participant(AGENT).load() == whole
            except CkptError:
                same = False
            assert found or same, f"{file.name} byte {offset} bit {offset % 8}"
            file.write_bytes(data)


def test_every_readable_record_is_salvaged(tmp_path: Path, checkpoint: Path) -> None:
    file = records_file(checkpoint)
    data = file.read_bytes()
    flip(file, data.index(b"\n") + 5)
    before = tree(checkpoint)
    recovery = salvage(checkpoint, tmp_path / "new")
    assert (recovery.records, recovery.lost_count) == (5, 1)
    assert tree(checkpoint) == before
    new = open_checkpoint(tmp_path / "new")
    assert [record.key for record in new.participant(AGENT).load()] == ["r1/s", "r3/s"]
    assert rules(tmp_path / "new", Level.DEEP) == []


def test_records_without_a_manifest_are_salvaged(tmp_path: Path, checkpoint: Path) -> None:
    (checkpoint / "gym" / "agent" / "a1" / "manifest.json").unlink()
    (checkpoint / "gym_checkpoint.json").unlink()
    recovery = salvage(checkpoint, tmp_path / "new")
    assert recovery.records == 6
    assert recovery.lost_count == 1
    assert open_checkpoint(tmp_path / "new").manifest.checkpoint_id == "ck-1"


def test_the_latest_of_a_run_without_sequences(tmp_path: Path) -> None:
    aged(tmp_path / "a", "ck-a", "2026-01-02T00:00:00Z")
    found = latest(tmp_path)
    assert (found.entry.folder, len(found.notices)) == (Folder("a"), 1)
    aged(tmp_path / "b", "ck-b", "2026-01-01T00:00:00Z")
    found = latest(tmp_path)
    assert found.entry.checkpoint_id == "ck-a"
    assert "created_at" in found.notices[0]
    aged(tmp_path / "c", "ck-c", None)
    with pytest.raises(AmbiguousLatestError):
        latest(tmp_path)
    (tmp_path / "LATEST").write_text("b\n")
    assert latest(tmp_path).entry.checkpoint_id == "ck-b"


def test_a_damaged_one_is_not_the_latest(tmp_path: Path) -> None:
    aged(tmp_path / "a", "ck-a", "2026-01-01T00:00:00Z")
    records_file(aged(tmp_path / "b", "ck-b", "2026-01-02T00:00:00Z")).unlink()
    found = latest(tmp_path)
    assert found.entry.checkpoint_id == "ck-a"
    assert [entry.folder.prefix for entry in found.skipped] == ["b"]


def test_one_with_a_sequence_goes_before_all_without(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    aged(tmp_path / "a", "ck-a", "2100-01-01T00:00:00Z")
    published = write_small(store, "ours").require()
    assert published.body.sequence == 1
    assert published.body.previous is None
    assert latest(tmp_path).entry.checkpoint_id == "ours"
    assert {entry.folder.prefix for entry in list_checkpoints(tmp_path)} == {"a", "ours"}


def test_nothing_of_it_is_ever_garbage(checkpoint: Path) -> None:
    (checkpoint / "gym" / "agent" / "a1" / ("tmp-" + "0" * 24 + "-manifest.json")).write_bytes(b"")
    plan = plan_gc(checkpoint.parent)
    assert plan.delete == ()
    ((name, reason),) = [(kept.name, kept.reason) for kept in plan.kept]
    assert name == "g"
    assert "NeMo Gym" in reason
    assert plan_gc(checkpoint).delete == ()
