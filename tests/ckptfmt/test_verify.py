"""Judging checkpoints: every kind of damage has its rule, and nothing raises."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import CorruptError, DataError, DuplicateKeyError, UnsupportedError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import abort_checkpoint, publish_checkpoint, write_checkpoint
from ckptfmt.record import Record, join_line
from ckptfmt.rules import Finding
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.verify import Level, Progress, verify
from tests.ckptfmt.test_manifest import members_of, resealed
from tests.support.checkpoints import AGENT, RESOURCES, write_small
from tests.support.damage import cut, data_file, flip

CONTROLLER = ParticipantId("controller", "c")
CK = Folder("ck-1")


@dataclass(frozen=True)
class Crafted:
    """A record as a careless writer would make it: its parts need not agree."""

    key: str
    episode_id: EpisodeId
    data: bytes

    def line(self) -> tuple[bytes, ...]:
        return (self.data,)


def plain(rollout: str, *, state: JsonPayload | None = None, sub_key: str | None = None) -> Record:
    members = {} if sub_key is None else {"sub_key": JsonPayload.from_value(sub_key)}
    members["state"] = state or JsonPayload.from_value({"of": rollout})
    return Record(episode_id=EpisodeId(rollout, 0), members=members)


def crafted(record: Record, **changes: Any) -> Crafted:
    parts = {"key": record.key, "episode_id": record.episode_id, "data": join_line(record.line())}
    return Crafted(**{**parts, **changes})


def put(
    store: MemoryStore | LocalStore,
    records: Iterable[Record | Crafted],
    *,
    object_target_bytes: int = 1 << 20,
    participant: ParticipantId = CONTROLLER,
    forgetful: bool = False,
) -> None:
    """Publish a checkpoint of one participant; a forgetful writer takes keys twice."""
    with ParticipantWriter(
        store, CK, "ck-1", participant, object_target_bytes=object_target_bytes
    ) as writer:
        for record in records:
            writer._append(cast(Record, record))  # What it is, a careless writer does not ask.
            if forgetful:
                writer._keys.clear()
        writer.finish().require()
    publish_checkpoint(store, CK, "ck-1", [participant]).require()


def rewrite_participant(
    run: Path, change: Callable[[dict[str, Any]], None], *, participant: ParticipantId = AGENT
) -> None:
    """Change a participant's manifest, and everything above that vouches for it."""
    file = run / CK.manifest(participant)
    members = members_of(file.read_bytes())
    change(members)
    data = resealed(members)
    file.write_bytes(data)

    def rename(aggregate: dict[str, Any]) -> None:
        for item in aggregate["participants"]:
            if (item["kind"], item["instance"]) == (participant.kind, participant.instance):
                item["manifest_sha256"] = hashlib.sha256(data).hexdigest()
                item["manifest_bytes"] = len(data)

    rewrite_aggregate(run, rename)


def rewrite_aggregate(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = run / CK.aggregate
    members = members_of(file.read_bytes())
    change(members)
    file.write_bytes(resealed(members))


def findings(store: MemoryStore | LocalStore, level: Level = Level.FULL) -> list[Finding]:
    return list(verify(store, CK, level=level))


def rules(store: MemoryStore | LocalStore, level: Level = Level.FULL) -> set[str]:
    return {finding.rule.rule_id for finding in findings(store, level)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_small(LocalStore(tmp_path)).require()
    return tmp_path


@pytest.mark.parametrize("level", list(Level))
def test_a_whole_checkpoint_has_no_findings(run: Path, level: Level) -> None:
    assert findings(LocalStore(run), level) == []


def test_progress_counts_every_record(run: Path) -> None:
    progress, reports = Progress(), []
    progress.report = lambda now: reports.append(now.records)
    assert list(verify(LocalStore(run), CK, progress=progress)) == []
    assert (progress.participants, progress.records) == (2, 6)
    assert reports == [1, 2, 3, 4, 5, 6]


def _files(run: Path) -> tuple[Path, Path, Path]:
    folder = run / "ck-1"
    return (
        folder / "checkpoint.json",
        folder / str(AGENT) / "manifest.json",
        data_file(folder, str(AGENT)),
    )


@pytest.mark.parametrize(("which", "rule"), [(0, "aggregate"), (1, "participant"), (2, "stream")])
def test_a_flipped_byte_has_the_rule_of_its_file(run: Path, which: int, rule: str) -> None:
    """F27, F34."""
    flip(_files(run)[which], 60)
    assert rule in rules(LocalStore(run))
    assert {finding.code for finding in findings(LocalStore(run))} == {"corrupt"}


@pytest.mark.parametrize(("which", "rule"), [(0, "aggregate"), (1, "participant"), (2, "data")])
@pytest.mark.parametrize("size", [0, 20, -1, -200])
def test_a_cut_file_has_the_rule_of_its_file(run: Path, which: int, rule: str, size: int) -> None:
    """F28, F37, S12: empty files included."""
    cut(_files(run)[which], size)
    assert rule in rules(LocalStore(run))
    if which != 0:
        assert all("a1" in (item.location.participant or "") for item in findings(LocalStore(run)))


@pytest.mark.parametrize(("which", "rule"), [(0, "incomplete"), (1, "participant"), (2, "data")])
def test_a_missing_file_has_the_rule_of_its_file(run: Path, which: int, rule: str) -> None:
    """S1, F35."""
    _files(run)[which].unlink()
    assert rules(LocalStore(run)) == {rule}


@pytest.mark.parametrize(("which", "rule"), [(0, "aggregate"), (1, "participant"), (2, "data")])
def test_a_link_in_the_place_of_a_file_is_not_followed(run: Path, which: int, rule: str) -> None:
    """S62: what it leads to is whole, and is not read all the same."""
    file = _files(run)[which]
    elsewhere = file.rename(run / "elsewhere")
    file.symlink_to(elsewhere)
    assert rule in rules(LocalStore(run))


def test_a_link_in_the_place_of_a_participant_is_not_followed(run: Path) -> None:
    """S62."""
    folder = run / "ck-1" / "agent"
    folder.symlink_to(folder.rename(run / "elsewhere"))
    assert "participant" in rules(LocalStore(run))


def test_a_folder_in_the_place_of_a_file_is_a_finding(run: Path) -> None:
    for file, rule in zip(_files(run)[::-1], ("data", "participant", "aggregate"), strict=True):
        file.unlink()
        file.mkdir()
        assert rule in rules(LocalStore(run))


def test_nothing_at_all_is_a_finding(tmp_path: Path) -> None:
    assert rules(LocalStore(tmp_path / "none")) == {"aggregate"}


def test_a_tombstone_is_told_as_aborted() -> None:
    store = MemoryStore()
    abort_checkpoint(store, CK, "ck-1")
    assert rules(store) == {"aborted"}


def test_strangers_and_leftovers_are_warnings(run: Path) -> None:
    """S53: an unknown file, a link, an unknown folder; a file of a failed write."""
    folder = run / "ck-1"
    (folder / "notes.txt").write_text("x")
    (folder / "agent" / "b").mkdir()
    (folder / str(AGENT) / "link").symlink_to("/")
    leftover = folder / str(AGENT) / f"records-{'0' * 24}-000.jsonl.zst"
    leftover.write_bytes(b"x")
    found = {(item.rule.rule_id, item.location.file) for item in findings(LocalStore(run))}
    assert found == {
        ("stranger", "ck-1/notes.txt"),
        ("stranger", "ck-1/agent/b"),
        ("stranger", f"ck-1/{AGENT}/link"),
        ("leftover", f"ck-1/{AGENT}/{leftover.name}"),
    }


def test_the_manifest_alone_tells_an_unknown_schema(run: Path) -> None:
    """F25: one finding, whatever the level."""
    rewrite_participant(run, lambda members: members.update(schema_version=2))
    for level in Level:
        assert [item.rule.rule_id for item in findings(LocalStore(run), level)] == ["unsupported"]


def test_damage_to_records_of_an_unknown_schema_is_found(run: Path) -> None:
    """F25: their bytes, digests and episodes are judged as ever."""

    def change(members: dict[str, Any]) -> None:
        members.update(schema_version=2, content_digest="0" * 64, episode_ids=["r1"])

    rewrite_participant(run, change)
    assert rules(LocalStore(run)) == {"unsupported", "digest", "episodes"}
    flip(data_file(run / "ck-1", str(AGENT)), 150)
    assert rules(LocalStore(run)) == {"unsupported", "stream"}


@pytest.mark.parametrize("level", [Level.FULL, Level.DEEP])
@pytest.mark.parametrize("change", [{"schema_version": 2}, {"schema": "other"}])
def test_an_unknown_schema_is_unsupported(run: Path, level: Level, change: dict[str, Any]) -> None:
    """F25: a checkpoint that no reader here can restore is not whole."""
    rewrite_participant(run, lambda members: members.update(change))
    reader = Checkpoint.open(LocalStore(run), CK).participant(AGENT)
    with pytest.raises(UnsupportedError):
        reader.load()
    assert "unsupported" in rules(LocalStore(run), level)


def test_missing_features_are_unsupported_and_named(run: Path) -> None:
    """F47."""
    rewrite_participant(run, lambda members: members.update(required_features=["zeta", "alpha"]))
    (found,) = findings(LocalStore(run))
    assert found.rule.rule_id == "unsupported"
    assert "'zeta', 'alpha'" in found.message


def test_missing_features_of_the_checkpoint_are_unsupported(run: Path) -> None:
    """F47."""
    rewrite_aggregate(run, lambda members: members.update(required_features=["alpha"]))
    assert "unsupported" in rules(LocalStore(run))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"content_digest": "0" * 64}, "digest"),
        ({"episode_ids": ["r1", "r2"]}, "episodes"),
        ({"episode_ids": ["r1", "r2", "r3", "r4"]}, "episodes"),
    ],
)
def test_a_manifest_that_disagrees_with_the_records(
    run: Path, change: dict[str, Any], rule: str
) -> None:
    """F35."""
    rewrite_participant(run, lambda members: members.update(change))
    assert rules(LocalStore(run)) == {rule}


@pytest.mark.parametrize("member", ["content_digest", "episode_ids"])
def test_a_manifest_that_disagrees_with_the_records_is_not_restored(run: Path, member: str) -> None:
    """F35, F40: restore with default arguments verifies all that the manifest states."""
    wrong = {"content_digest": "0" * 64, "episode_ids": ["r1"]}[member]
    rewrite_participant(run, lambda members: members.update({member: wrong}))
    reader = Checkpoint.open(LocalStore(run), CK).participant(AGENT)
    with pytest.raises(CorruptError):
        reader.load()


@pytest.mark.parametrize(
    ("member", "rule"),
    [
        ("sha256", "stream"),
        ("blocks", "stream"),
        ("raw_bytes", "stream"),
        ("size_bytes", "data"),
        ("index_length", "stream"),
    ],
)
def test_an_object_that_the_manifest_states_wrongly(run: Path, member: str, rule: str) -> None:
    """F35."""

    def change(members: dict[str, Any]) -> None:
        old = members["objects"][0][member]
        members["objects"][0][member] = "0" * 64 if isinstance(old, str) else old + 1

    rewrite_participant(run, change)
    assert rules(LocalStore(run)) & {rule, "participant"}


def test_the_same_key_twice_in_one_object_is_refused_by_the_stream_too() -> None:
    """F8: the second line of defence names the key."""
    with pytest.raises(DuplicateKeyError) as refused:
        put(MemoryStore(), [plain("r1"), plain("r1")], forgetful=True)
    assert refused.value.location.key == "r1"


def test_a_record_that_stands_twice_under_two_keys_is_found() -> None:
    """F8."""
    store = MemoryStore()
    put(store, [plain("r1"), crafted(plain("r1"), key="r2")])
    assert rules(store) == {"key"}


def test_the_same_key_in_two_objects_is_found() -> None:
    """F8."""
    store = MemoryStore()
    put(store, [plain("r1"), plain("r2"), plain("r1")], object_target_bytes=1, forgetful=True)
    (found,) = findings(store)
    assert (found.rule.rule_id, found.location.key) == ("key", "r1")


def test_a_key_that_stands_in_two_objects_is_not_picked_silently() -> None:
    """F8."""
    store = MemoryStore()
    put(store, [plain("r1"), plain("r2"), plain("r1")], object_target_bytes=1, forgetful=True)
    reader = Checkpoint.open(store, CK).participant(CONTROLLER)
    with pytest.raises(CorruptError):
        reader.get("r1")


def swapped() -> MemoryStore:
    store = MemoryStore()
    put(store, [crafted(plain("r1"), key="r2"), crafted(plain("r2"), key="r1")])
    return store


def test_an_index_whose_keys_are_swapped_is_found() -> None:
    """Every record has the key that its index says."""
    assert rules(swapped()) == {"key"}


def test_a_lookup_through_a_swapped_index_is_corrupt() -> None:
    reader = Checkpoint.open(swapped(), CK).participant(CONTROLLER)
    with pytest.raises(CorruptError):
        reader.get("r1")


def test_records_behind_a_swapped_index_are_not_restored() -> None:
    """Who reads the records must hold the keys of the index against them."""
    reader = Checkpoint.open(swapped(), CK).participant(CONTROLLER)
    with pytest.raises(CorruptError):
        reader.load()


def test_a_line_that_is_no_record_is_found_and_located() -> None:
    """F39."""
    store = MemoryStore()
    put(store, [plain("r1"), crafted(plain("r2"), data=b'{"state":1}')])
    found = [item for item in findings(store) if item.rule.rule_id == "record"]
    (location,) = [item.location for item in found]
    assert (location.ordinal, location.block, location.participant) == (1, 0, "controller/c")


def test_a_line_that_is_not_utf8_is_found() -> None:
    """F1."""
    store = MemoryStore()
    data = join_line(plain("r1").line()).replace(b'"of":"r1"', b'"of":"\xff1"')
    put(store, [crafted(plain("r1"), data=data)])
    assert "record" in rules(store)


@pytest.mark.parametrize(
    "other",
    [b'{"of": "r1"}', b'{"of":"\\u0041"}'],
)
def test_verbatim_json_is_no_finding_at_the_deep_level(other: bytes) -> None:
    """F13: text that came as bytes may be spelled in any way."""
    store = MemoryStore()
    put(store, [plain("r1", state=JsonPayload.from_json(other))])
    assert rules(store, Level.DEEP) == set()


def test_annotated_text_that_no_writer_makes_is_a_round_trip_finding() -> None:
    """I46: spaces beside an annotation."""
    store = MemoryStore()
    state = JsonPayload.stored(b"[null, 1]", b'[["/0","nan"]]')
    put(store, [plain("r1", state=state)])
    assert rules(store, Level.FULL) == set()
    assert rules(store, Level.DEEP) == {"round-trip"}


def test_a_payload_that_cannot_be_decoded_is_found_at_the_deep_level() -> None:
    store = MemoryStore()
    put(store, [plain("r1", state=JsonPayload.stored(b"1", b'[["","tuple"]]'))])
    assert rules(store, Level.DEEP) == {"record"}


@pytest.mark.parametrize(
    "text",
    [
        b"1E5",
        b"0.1000000000000000055",
        b' {"a":1,"b":2}\n',
        b'"\\ud800"',
        b'["\\u00e9\xc3\xa9", "\\ud83d\\ude00"]',
        b"1e400",
        b"-0",
        b"9" * 5000,
        b'{"$exact":{"a":[["","nan"]]}}',
        b"[" * 499 + b"]" * 499,
        b"[" * 300 + b"1" + b"]" * 300,
        b'{"\\ud800":' * 300 + b"1" + b"}" * 300,
        b'{"\\ud800":' * 499 + b"1" + b"}" * 499,
        b"[" + b"9" * 5000 + b"," + b'{"\\ud800":' * 300 + b"1" + b"}" * 300 + b"]",
    ],
    ids=lambda text: str(text[:24]),
)
def test_any_json_that_is_taken_is_whole_at_the_deep_level(text: bytes) -> None:
    """I46, F13, F22: what could be written has no finding."""
    store = MemoryStore()
    put(store, [plain("r1", state=JsonPayload.from_json(text))])
    assert findings(store, Level.DEEP) == []
    (record,) = Checkpoint.open(store, CK).participant(CONTROLLER).load()
    assert isinstance(record, Record)
    assert record.members["state"].json_bytes() == text


def test_records_of_several_objects_come_back_in_order() -> None:
    """F6."""
    store, names = MemoryStore(), [f"r{number}" for number in range(5)]
    put(store, map(plain, names), object_target_bytes=1)
    reader = Checkpoint.open(store, CK).participant(CONTROLLER)
    assert [item.first_ordinal for item in reader.manifest.objects] == [0, 1, 2, 3, 4]
    assert [record.key for record in reader.load()] == names
    assert [reader.get(name).key for name in names] == names
    assert findings(store, Level.DEEP) == []


def test_two_objects_that_changed_places_are_found(tmp_path: Path) -> None:
    """F41: each is intact, and of the same participant."""
    store = LocalStore(tmp_path)
    put(store, [plain("r1"), plain("r2")], object_target_bytes=1)
    one, two = sorted((tmp_path / "ck-1" / str(CONTROLLER)).glob("records-*"))
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    assert rules(store) & {"stream", "data"}
    with pytest.raises(DataError):
        Checkpoint.open(store, CK).participant(CONTROLLER).load()


def test_damage_in_one_object_leaves_the_others_judged(tmp_path: Path) -> None:
    """F43: both damages are told, each with its file."""
    store = LocalStore(tmp_path)
    put(store, [plain("r1"), plain("r2"), plain("r3")], object_target_bytes=1)
    files = sorted((tmp_path / "ck-1" / str(CONTROLLER)).glob("records-*"))
    flip(files[0], 200)
    files[2].unlink()
    told = {Path(item.location.file or "").name for item in findings(store)}
    assert told == {files[0].name, files[2].name}


def test_a_participant_that_nobody_named_is_a_stranger(run: Path) -> None:
    """A whole participant that checkpoint.json does not list."""
    with ParticipantWriter(LocalStore(run), CK, "ck-1", CONTROLLER) as writer:
        writer.add(plain("r1"))
        writer.finish().require()
    found = findings(LocalStore(run))
    assert [item.rule.rule_id for item in found] == ["stranger"]


def test_an_empty_participant_is_whole() -> None:
    """F3."""
    store = MemoryStore()
    write_checkpoint(store, "ck-1", {RESOURCES: []}).require()
    assert findings(store, Level.DEEP) == []
    assert Checkpoint.open(store, CK).participant(RESOURCES).load() == []


def test_the_same_damage_gives_the_same_findings_each_time(run: Path) -> None:
    """F53."""
    flip(data_file(run / "ck-1", str(AGENT)), 150)
    told = {json.dumps([str(item) for item in findings(LocalStore(run))]) for _ in range(10)}
    assert len(told) == 1


@pytest.mark.parametrize("value", [None, 1, [1], "x"], ids=repr)
@pytest.mark.parametrize("member", ["user_metadata", "recovered"])
def test_a_member_of_the_checkpoint_that_is_no_object_is_found(
    run: Path, member: str, value: object
) -> None:
    """F54: ``recovered`` may be null besides."""
    rewrite_aggregate(run, lambda members: members.update({member: value}))
    allowed = member == "recovered" and value is None
    assert ("aggregate" in rules(LocalStore(run))) is not allowed


def test_a_checkpoint_of_no_participants_is_found(run: Path) -> None:
    """S11: whoever made it, there is nothing to restore."""
    rewrite_aggregate(run, lambda members: members.update(participants=[]))
    assert rules(LocalStore(run)) == {"aggregate"}
    with pytest.raises(CorruptError, match="participants"):
        Checkpoint.open(LocalStore(run), CK)


@pytest.mark.parametrize("value", [None, 1, [1], "x"], ids=repr)
def test_a_role_that_is_no_object_is_found(run: Path, value: object) -> None:
    """F54."""
    rewrite_participant(run, lambda members: members.update(role=value))
    assert rules(LocalStore(run)) == {"participant"}


def _of_object(member: str, value: int) -> Callable[[dict[str, Any]], None]:
    def change(members: dict[str, Any]) -> None:
        members["objects"][0][member] = value
        if member == "records":
            members["record_count"] = value

    return change


@pytest.mark.parametrize("value", [-1, 1 << 62, 1 << 63, 1 << 64])
@pytest.mark.parametrize(
    "member",
    [
        "size_bytes",
        "first_ordinal",
        "records",
        "blocks",
        "raw_bytes",
        "index_offset",
        "index_length",
    ],
)
def test_absurd_numbers_of_an_object_are_findings(run: Path, member: str, value: int) -> None:
    """F29, F54: nothing is allocated by them, nothing raises."""
    rewrite_participant(run, _of_object(member, value))
    assert rules(LocalStore(run), Level.DEEP) & {"participant", "data", "stream"}
