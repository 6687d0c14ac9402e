"""Salvage: every readable record in a new checkpoint, and what was lost."""

from __future__ import annotations

import hashlib
import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.checkpoint import salvage, verify
from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.commit import Committed
from ckptfmt.errors import (
    CkptError,
    ExistsError,
    MissingError,
    RefusedError,
    UnsupportedError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import ParticipantWriter, write_participant
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import About, publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.recover import recover_checkpoint
from ckptfmt.recovery import Recovery
from ckptfmt.rules import Severity
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.verify import Level
from ckptfmt.verify import verify as verify_store
from tests.ckptfmt.test_manifest import members_of, resealed
from tests.ckptfmt.test_verify import (
    CK,
    CONTROLLER,
    plain,
    put,
    rewrite_aggregate,
    rewrite_participant,
)
from tests.support.checkpoints import AGENT, RESOURCES, agent_record, write_small
from tests.support.damage import cut, data_file, flip


def hashes(folder: Path) -> dict[str, str]:
    """What is in a folder: every name, and the digest of every file."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        for path in sorted(folder.rglob("*"))
    }


def keys(checkpoint: Path, participant: Any = AGENT) -> list[str]:
    reader = Checkpoint.open(LocalStore(checkpoint)).participant(participant)
    return [record.key for record in reader.load()]


def told(checkpoint: Path) -> dict[str, Any]:
    """What the new checkpoint says of its making."""
    return dict(json.loads((checkpoint / "checkpoint.json").read_bytes())["recovered"])


def recovered(folder: Path, new: Path) -> Recovery:
    """Salvage, with what holds of every salvage."""
    before = hashes(folder)
    recovery = salvage(folder, new)
    assert hashes(folder) == before
    assert isinstance(recovery.outcome, Committed)
    findings = list(verify(new, level=Level.DEEP))
    assert [item for item in findings if item.rule.severity is Severity.ERROR] == []
    assert told(new)["lost_count"] == recovery.lost_count
    assert told(new)["records"] == recovery.records
    return recovery


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    about = About(
        scope=[EpisodeId("r1", 0)],
        run_id="run",
        config_digest="abc",
        user={"commit": "c0ffee"},
        metadata={"note": "é", "big": 1 << 70, "x": 1e16},
    )
    write_small(LocalStore(tmp_path), about=about).require()
    return tmp_path / "ck-1"


def test_a_whole_checkpoint_comes_back_whole(folder: Path, tmp_path: Path) -> None:
    """F44."""
    recovery = recovered(folder, tmp_path / "new")
    assert (recovery.records, recovery.lost_count) == (6, 0)
    for participant in (AGENT, RESOURCES):
        assert keys(tmp_path / "new", participant) == keys(folder, participant)


def test_a_recovered_checkpoint_has_no_stranger_in_it(folder: Path, tmp_path: Path) -> None:
    """F44: not even a warning; it is a checkpoint, not a run."""
    recovered(folder, tmp_path / "new")
    assert list(verify(tmp_path / "new", level=Level.DEEP)) == []


def test_the_new_checkpoint_keeps_what_was_said_of_the_old_one(
    folder: Path, tmp_path: Path
) -> None:
    recovered(folder, tmp_path / "new")
    old = Checkpoint.open(LocalStore(folder)).manifest
    new = Checkpoint.open(LocalStore(tmp_path / "new")).manifest
    for name in ("checkpoint_id", "sequence", "run_id", "config_digest", "scope"):
        assert getattr(new, name) == getattr(old, name)
    assert bytes(new.user_metadata) == bytes(old.user_metadata)
    assert new.provenance.user == {"commit": "c0ffee"}


def test_metadata_of_another_writer_is_carried_over_byte_for_byte(
    folder: Path, tmp_path: Path
) -> None:
    """F48: a rewriter carries it over as the bytes it came as."""
    file = folder / "checkpoint.json"
    members = members_of(file.read_bytes())
    members["user_metadata"] = {"number": 12345}
    data = resealed(members)
    prefix = data.rpartition(b',"self"')[0].replace(b"12345", b"1.50E+2")
    digest = hashlib.sha256(prefix).hexdigest().encode()
    file.write_bytes(prefix + b',"self":"sha256:' + digest + b'"}\n')
    recovered(folder, tmp_path / "new")
    new = Checkpoint.open(LocalStore(tmp_path / "new")).manifest
    assert bytes(new.user_metadata) == b'{"number":1.50E+2}'


def test_unknown_members_are_carried_over(folder: Path, tmp_path: Path) -> None:
    """F48."""
    file = folder / "checkpoint.json"
    members = members_of(file.read_bytes())
    members["x_later"] = {"a": 1}
    file.write_bytes(resealed(members))
    recovered(folder, tmp_path / "new")
    new = json.loads((tmp_path / "new" / "checkpoint.json").read_bytes())
    assert new["x_later"] == {"a": 1}


def test_what_a_role_adds_is_carried_over(tmp_path: Path) -> None:
    """F48: the participant's role and provenance are part of what is restored."""
    store = LocalStore(tmp_path)
    with ParticipantWriter(
        store, CK, "ck-1", CONTROLLER, role={"policy": "p1"}, user={"who": "me"}
    ) as writer:
        writer.add(plain("r1"))
        writer.finish().require()
    publish_checkpoint(store, CK, "ck-1", [CONTROLLER]).require()
    recovered(tmp_path / "ck-1", tmp_path / "new")
    new = Checkpoint.open(LocalStore(tmp_path / "new")).participant(CONTROLLER).manifest
    assert bytes(new.role) == b'{"policy":"p1"}'
    assert new.provenance.user == {"who": "me"}


def test_a_target_that_is_not_empty_is_refused(folder: Path, tmp_path: Path) -> None:
    """F45."""
    new = tmp_path / "new"
    new.mkdir()
    (new / "file").write_text("mine")
    with pytest.raises(ExistsError):
        salvage(folder, new)
    assert hashes(new).keys() == {"file"}


def test_a_directory_that_exists_is_refused_even_when_empty(folder: Path, tmp_path: Path) -> None:
    """F45: it may be a place where a disk is to be mounted."""
    (tmp_path / "new").mkdir()
    with pytest.raises(ExistsError):
        salvage(folder, tmp_path / "new")
    assert hashes(tmp_path / "new") == {}


def test_a_store_with_nothing_in_it_is_a_target(folder: Path) -> None:
    """An object store knows no directories that could exist."""
    target = MemoryStore()
    assert isinstance(salvage(folder, target).outcome, Committed)
    assert list(verify_store(target, level=Level.DEEP)) == []
    with pytest.raises(ExistsError):
        salvage(folder, target)


def test_a_target_inside_is_refused_by_any_name(folder: Path, tmp_path: Path) -> None:
    """F45: the paths of callers may lead through links."""
    (tmp_path / "link").symlink_to(folder)
    before = hashes(folder)
    for source, target in (
        (tmp_path / "link", folder / "new"),
        (folder, tmp_path / "link" / "new"),
    ):
        with pytest.raises(RefusedError, match="inside"):
            salvage(source, target)
    with pytest.raises(RefusedError, match="inside"):
        recover_checkpoint(LocalStore(tmp_path), CK, LocalStore(folder / "new"))
    assert hashes(folder) == before


def test_a_checkpoint_is_not_recovered_into_itself(folder: Path) -> None:
    """F45: the input is never modified."""
    before = hashes(folder)
    with pytest.raises(CkptError):
        salvage(folder, folder)
    assert hashes(folder) == before


@pytest.mark.parametrize("inside", ["out", "agent/a2", "agent/a1/out"])
def test_a_checkpoint_is_not_recovered_into_a_folder_of_its_own(folder: Path, inside: str) -> None:
    """F45: a target within the input would modify it."""
    before = hashes(folder)
    with pytest.raises(CkptError):
        salvage(folder, folder / inside)
    assert hashes(folder) == before


def test_nothing_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        salvage(tmp_path / "none", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_without_its_end_gives_every_record(folder: Path, tmp_path: Path) -> None:
    """F42: index and end are cut off."""
    file = data_file(folder, str(AGENT))
    manifest = json.loads((file.parent / "manifest.json").read_bytes())
    cut(file, manifest["objects"][0]["index_offset"])
    recovered(folder, tmp_path / "new")
    assert keys(tmp_path / "new") == ["r1/s", "r2/s", "r3/s"]


def blocks(store: LocalStore, *, count: int = 5) -> None:
    """A checkpoint of one participant with a block for each record."""
    with ParticipantWriter(store, CK, "ck-1", CONTROLLER) as writer:
        for number in range(count):
            writer.add(plain(f"r{number}"))
            writer.flush()
        writer.finish().require()
    publish_checkpoint(store, CK, "ck-1", [CONTROLLER]).require()


def test_damage_in_a_block_loses_that_block_and_names_its_records(tmp_path: Path) -> None:
    """F43, F44: the records before and after it come back; the lost one is listed by key."""
    blocks(LocalStore(tmp_path))
    file = data_file(tmp_path / "ck-1", str(CONTROLLER))
    data = file.read_bytes()
    third = [at for at in range(len(data)) if data.startswith(b"BLCK", at)][2]
    flip(file, third + 8)
    recovery = recovered(tmp_path / "ck-1", tmp_path / "new")
    assert keys(tmp_path / "new", CONTROLLER) == ["r0", "r1", "r3", "r4"]
    assert "r2" in [item.location.key for item in recovery.lost]
    assert "r2" in [item.get("key") for item in told(tmp_path / "new")["lost"]]
    assert all(item.location.participant == str(CONTROLLER) for item in recovery.lost)


def test_a_missing_object_of_several_loses_its_records_only(tmp_path: Path) -> None:
    """F43, F6."""
    put(LocalStore(tmp_path), map(plain, ("r1", "r2", "r3")), object_target_bytes=1)
    sorted((tmp_path / "ck-1" / str(CONTROLLER)).glob("records-*"))[1].unlink()
    recovery = recovered(tmp_path / "ck-1", tmp_path / "new")
    assert keys(tmp_path / "new", CONTROLLER) == ["r1", "r3"]
    assert recovery.lost_count > 0


@pytest.mark.parametrize("size", [0, 5, 100])
def test_an_object_that_is_almost_gone_does_not_stop_the_others(
    folder: Path, tmp_path: Path, size: int
) -> None:
    cut(data_file(folder, str(AGENT)), size)
    recovery = recovered(folder, tmp_path / "new")
    assert recovery.lost_count > 0
    assert len(keys(tmp_path / "new", RESOURCES)) == 3


def test_an_unreadable_aggregate_is_a_loss_and_the_id_is_kept(folder: Path, tmp_path: Path) -> None:
    flip(folder / "checkpoint.json", 30)
    recovery = recovered(folder, tmp_path / "new")
    assert (recovery.records, recovery.lost_count) == (6, 1)
    assert Checkpoint.open(LocalStore(tmp_path / "new")).manifest.checkpoint_id == "ck-1"


def test_an_unpublished_checkpoint_is_recovered(folder: Path, tmp_path: Path) -> None:
    """S1: nothing is lost where only the last step was missing."""
    (folder / "checkpoint.json").unlink()
    recovery = recovered(folder, tmp_path / "new")
    assert (recovery.records, recovery.lost_count) == (6, 0)


@pytest.mark.parametrize("gone", [True, False])
def test_a_participant_without_a_readable_manifest_is_read_from_its_data(
    folder: Path, tmp_path: Path, gone: bool
) -> None:
    manifest = folder / str(AGENT) / "manifest.json"
    if gone:
        manifest.unlink()
    else:
        flip(manifest, 30)
    recovery = recovered(folder, tmp_path / "new")
    assert (recovery.records, recovery.lost_count) == (6, 1)
    assert len(keys(tmp_path / "new")) == 3


def test_a_participant_that_is_gone_is_listed(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / str(AGENT))
    recovery = recovered(folder, tmp_path / "new")
    assert [item.location.participant for item in recovery.lost] == [str(AGENT)]


def test_of_two_attempts_without_a_manifest_the_larger_is_taken(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for count in (1, 3):
        run = tmp_path / str(count)
        put(LocalStore(run), [plain(f"r{number}") for number in range(count)])
        place = tmp_path / "ck-1" / str(CONTROLLER)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(data_file(run / "ck-1", str(CONTROLLER)), place)
    assert store.entries("ck-1")
    recovery = recovered(tmp_path / "ck-1", tmp_path / "new")
    assert keys(tmp_path / "new", CONTROLLER) == ["r0", "r1", "r2"]
    assert any("another attempt" in item.message for item in recovery.lost)


def test_a_participant_of_another_checkpoint_is_not_taken_silently(
    folder: Path, tmp_path: Path
) -> None:
    """F38, F41: it verifies, but it is not what was published here."""
    write_small(LocalStore(tmp_path), "ck-2", state="other").require()
    shutil.rmtree(folder / str(RESOURCES))
    shutil.copytree(tmp_path / "ck-2" / str(RESOURCES), folder / str(RESOURCES))
    recovery = salvage(folder, tmp_path / "new")
    assert recovery.lost_count > 0


def test_records_of_an_unknown_schema_are_not_relabelled(folder: Path, tmp_path: Path) -> None:
    """F25: salvage knows of no version 2 and must not pass it off as version 1."""
    rewrite_participant(folder.parent, lambda members: members.update(schema_version=2))
    recovery = salvage(folder, tmp_path / "new")
    assert recovery.lost_count > 0


def test_a_participant_that_was_never_published_is_not_taken_silently(
    folder: Path, tmp_path: Path
) -> None:
    """F44: checkpoint.json names two participants; a third one wrote here later."""
    with ParticipantWriter(LocalStore(tmp_path), CK, "ck-1", CONTROLLER) as writer:
        writer.add(plain("r9"))
        writer.finish().require()
    recovery = salvage(folder, tmp_path / "new")
    assert isinstance(recovery.outcome, Committed)
    new = Checkpoint.open(LocalStore(tmp_path / "new"))
    assert CONTROLLER not in new.participants or recovery.lost_count > 0


def test_records_of_another_checkpoint_are_left_out(folder: Path, tmp_path: Path) -> None:
    """F41: with or without the manifest that they came with."""
    write_small(LocalStore(tmp_path), "ck-2", state="other").require()
    shutil.rmtree(folder / str(RESOURCES))
    shutil.copytree(tmp_path / "ck-2" / str(RESOURCES), folder / str(RESOURCES))
    for number in range(2):
        recovery = recovered(folder, tmp_path / f"new-{number}")
        assert keys(tmp_path / f"new-{number}", RESOURCES) == []
        assert any("checkpoint ck-2" in item.message for item in recovery.lost)
        (folder / str(RESOURCES) / "manifest.json").unlink(missing_ok=True)


def test_records_of_another_participant_are_left_out(folder: Path, tmp_path: Path) -> None:
    """F41."""
    shutil.copytree(folder / str(AGENT), folder / "agent" / "a2")
    (folder / "checkpoint.json").unlink()
    recovery = recovered(folder, tmp_path / "new")
    assert keys(tmp_path / "new", ParticipantId("agent", "a2")) == []
    assert recovery.records == 6
    assert {item.location.participant for item in recovery.lost} == {"agent/a2"}


def test_a_manifest_that_was_not_published_is_a_loss_and_its_data_is_read(
    folder: Path, tmp_path: Path
) -> None:
    """F38: another valid one of the same checkpoint stands in its place."""
    shutil.rmtree(folder / str(AGENT))
    again = [agent_record("r7")]
    write_participant(LocalStore(folder), Folder(), "ck-1", AGENT, again).require()
    recovery = recovered(folder, tmp_path / "new")
    assert keys(tmp_path / "new") == ["r7/s"]
    assert any("checkpoint.json" in item.message for item in recovery.lost)


def test_without_its_manifest_a_checkpoint_has_the_id_that_most_parts_say(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "checkpoint.json").unlink()
    write_small(LocalStore(tmp_path), "ck-2").require()
    shutil.copytree(tmp_path / "ck-2" / str(AGENT), folder / "agent" / "a0")
    recovered(folder, tmp_path / "new")
    new = Checkpoint.open(LocalStore(tmp_path / "new"))
    assert new.manifest.checkpoint_id == "ck-1"
    assert keys(tmp_path / "new", ParticipantId("agent", "a0")) == []


def test_without_any_manifest_the_streams_say_whose_they_are(folder: Path, tmp_path: Path) -> None:
    for manifest in folder.rglob("*.json"):
        manifest.unlink()
    elsewhere = folder.rename(tmp_path / "renamed")
    recovery = recovered(elsewhere, tmp_path / "new")
    assert recovery.records == 6
    assert Checkpoint.open(LocalStore(tmp_path / "new")).manifest.checkpoint_id == "ck-1"


def test_records_of_an_unknown_schema_are_named_and_their_participant_left_out(
    folder: Path, tmp_path: Path
) -> None:
    """F25."""
    rewrite_participant(folder.parent, lambda members: members.update(schema_version=2))
    recovery = recovered(folder, tmp_path / "new")
    assert Checkpoint.open(LocalStore(tmp_path / "new")).participants == (RESOURCES,)
    assert any("version 2" in item.message and "r1" in item.message for item in recovery.lost)


def test_a_participant_that_requires_unknown_features_is_left_out(
    folder: Path, tmp_path: Path
) -> None:
    """F47: what cannot be understood is not read as if it could."""
    rewrite_participant(folder.parent, lambda members: members.update(required_features=["x"]))
    recovery = recovered(folder, tmp_path / "new")
    assert Checkpoint.open(LocalStore(tmp_path / "new")).participants == (RESOURCES,)
    assert [item.location.participant for item in recovery.lost] == [str(AGENT)]


@pytest.mark.parametrize("change", [{"major": 2}, {"required_features": ["x"]}], ids=str)
def test_a_checkpoint_of_an_unknown_version_is_not_recovered(
    folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    """F47."""
    rewrite_aggregate(folder.parent, lambda members: members.update(change))
    with pytest.raises(UnsupportedError):
        salvage(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_participant_that_checkpoint_json_does_not_name_is_told_and_left_out(
    folder: Path, tmp_path: Path
) -> None:
    with ParticipantWriter(LocalStore(tmp_path), CK, "ck-1", CONTROLLER) as writer:
        writer.finish().require()
    recovery = recovered(folder, tmp_path / "new")
    assert [item.location.participant for item in recovery.lost] == [str(CONTROLLER)]
    assert CONTROLLER not in Checkpoint.open(LocalStore(tmp_path / "new")).participants


def test_the_checkpoint_before_is_still_named(tmp_path: Path) -> None:
    """A fork stays visible."""
    for name in ("ck-0", "ck-1"):
        write_small(LocalStore(tmp_path), name).require()
    recovered(tmp_path / "ck-1", tmp_path / "new")
    old, new = (Checkpoint.open(LocalStore(tmp_path / name)).manifest for name in ("ck-1", "new"))
    assert new.previous == old.previous
    assert new.previous is not None


def test_unknown_members_of_a_participant_are_carried_over(folder: Path, tmp_path: Path) -> None:
    """F48."""
    rewrite_participant(folder.parent, lambda members: members.update(x_later=[1.5]))
    recovered(folder, tmp_path / "new")
    new = Checkpoint.open(LocalStore(tmp_path / "new")).participant(AGENT)
    assert new.sealed.unknown == {"x_later": b"[1.5]"}


def test_where_nothing_is_readable_nothing_is_published(tmp_path: Path) -> None:
    place = tmp_path / "ck-1" / "agent" / "a1"
    place.mkdir(parents=True)
    (place / "manifest.json").write_bytes(b"")
    recovery = salvage(tmp_path / "ck-1", tmp_path / "new")
    assert recovery.outcome is None
    assert recovery.lost_count > 0
    assert not (tmp_path / "new" / "checkpoint.json").exists()


def test_a_link_in_the_input_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """S62."""
    file = data_file(folder, str(AGENT))
    elsewhere = file.rename(tmp_path / "elsewhere")
    file.symlink_to(elsewhere)
    recovery = recovered(folder, tmp_path / "new")
    assert keys(tmp_path / "new") == []
    assert recovery.lost_count > 0


def test_what_was_recovered_is_recovered_again(folder: Path, tmp_path: Path) -> None:
    flip(folder / "checkpoint.json", 30)
    recovered(folder, tmp_path / "new")
    assert recovered(tmp_path / "new", tmp_path / "again").records == 6


def test_json_that_nests_surrogate_keys_is_recovered(tmp_path: Path) -> None:
    """F22: what could be written can be salvaged."""
    text = b'{"\\ud800":' * 300 + b"1" + b"}" * 300
    put(LocalStore(tmp_path), [plain("r1", state=JsonPayload.from_json(text))])
    recovered(tmp_path / "ck-1", tmp_path / "new")


def _peak_of_verify(records: int) -> int:
    store = MemoryStore()
    empty = JsonPayload.from_json(b"0")
    episode = EpisodeId("r", 0)
    with ParticipantWriter(store, CK, "ck-1", CONTROLLER) as writer:
        for number in range(records):
            name = JsonPayload.from_value(str(number))
            writer.add(Record(episode_id=episode, members={"sub_key": name, "state": empty}))
            if number % 500 == 499:
                writer.flush()
        writer.finish().require()
    publish_checkpoint(store, CK, "ck-1", [CONTROLLER]).require()
    tracemalloc.start()
    try:
        assert list(verify_store(store, CK)) == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_verify_does_not_grow_with_the_number_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F46: 6,000 more records take less than 20 bytes each.

    Sections of digests are small here, so that what a reader may hold of them is full soon.
    """
    monkeypatch.setattr("ckptfmt.stream.output.DIGESTS_PER_SECTION", 256)
    assert _peak_of_verify(8_000) - _peak_of_verify(2_000) < 120_000


@pytest.mark.parametrize("kept_bytes", [0, 60, 200])
def test_episodes_of_which_nothing_is_left_are_named_without_an_index(
    folder: Path, tmp_path: Path, kept_bytes: int
) -> None:
    """F44: the manifest knows them."""
    data = next((folder / str(AGENT)).glob("records-*"))
    data.write_bytes(data.read_bytes()[:kept_bytes])
    recovery = recovered(folder, tmp_path / "new")
    lost = [item.location.key for item in recovery.lost if item.location.key]
    assert lost == ["r1", "r2", "r3"]
