"""From Gym's layout to this format and back: equal values, equal order, equal bytes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptfmt import layouts
from ckptfmt.errors import (
    CkptError,
    CorruptError,
    DuplicateKeyError,
    ExistsError,
    RefusedError,
    RoundTripError,
    StateError,
    TornError,
)
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.nemo_gym import convert as converting
from ckptfmt.nemo_gym.convert import Conversion, convert_to_ckptfmt, convert_to_gym
from ckptfmt.nemo_gym.layout import GYM_FOLDER
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import About, publish_checkpoint, write_checkpoint
from ckptfmt.record import Record, join_line
from ckptfmt.schema import TypedRecord
from ckptfmt.store.base import BytesLike, Store
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import exact_values
from ckptfmt.verify import Level, verify
from tests.support.checkpoints import AGENT, RESOURCES, small_records, write_small
from tests.support.damage import cut
from tests.support.gym import agent_line, gym_small, tree, write_gym

CONTROLLER = ParticipantId("controller", "c")


def there(source: Path | Store, target: Store, **options: Any) -> Conversion:
    """Convert to this format; deep validation passes."""
    store = LocalStore(source) if isinstance(source, Path) else source
    done = convert_to_ckptfmt(layouts.open_checkpoint(store), target, **options)
    assert done.is_written
    assert list(verify(target, level=Level.DEEP)) == []
    return done


def back(source: Store, target: Path, **options: Any) -> Conversion:
    """Convert to Gym's layout; deep validation passes."""
    done = convert_to_gym(layouts.open_checkpoint(source), LocalStore(target), **options)
    if done.is_written:
        assert list(verify(LocalStore(target), level=Level.DEEP)) == []
    return done


def round_trip(values: Mapping[str, Sequence[Mapping[str, Any]]] | None, **form: Any) -> None:
    """Write as Gym does, convert there and back, and compare every file."""
    with tempfile.TemporaryDirectory() as folder:
        gym = write_gym(Path(folder, "gym-ck"), values, **form)
        ours = MemoryStore()
        there(gym, ours)
        done = back(ours, Path(folder, "back"))
        assert (done.beyond, done.respelt) == ([], [])
        assert tree(Path(folder, "back")) == tree(gym)


@pytest.mark.parametrize("by_digest", [True, False])
@pytest.mark.parametrize("aggregate", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("last_lf", [True, False])
def test_there_and_back_every_file_is_the_same(
    by_digest: bool, aggregate: bool, indent: int | None, last_lf: bool
) -> None:
    round_trip(None, by_digest=by_digest, aggregate=aggregate, indent=indent, last_lf=last_lf)


def test_a_participant_without_records_comes_back() -> None:
    round_trip({"agent/a1": [], "resources/r1": []})


def gym_states() -> st.SearchStrategy[Any]:
    """What Gym's own writer can write, as it is read: after one trip through ``json``."""
    text = st.text(st.characters(exclude_categories=()), max_size=8)
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | text
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(text, inner, max_size=4)
            | st.lists(st.floats(), min_size=4, max_size=8)
        ),
        max_leaves=12,
    ).map(lambda value: json.loads(json.dumps(value)))


@settings(max_examples=30)
@given(
    states=st.lists(gym_states(), min_size=1, max_size=4),
    names=st.permutations(["episode_id", "session_id", "state", "owner", "later"]),
    inner=st.permutations(["rollout_id", "attempt"]),
)
def test_any_record_in_any_order_of_members_comes_back(
    states: list[Any], names: list[str], inner: list[str]
) -> None:
    records = []
    for number, state in enumerate(states):
        episode = {"rollout_id": f"r{9 - number}", "attempt": number}
        record = {
            "episode_id": {name: episode[name] for name in inner},
            "session_id": f"s {number}",
            "state": state,
            "owner": None,
            "later": number,
        }
        records.append({name: record[name] for name in names})
    round_trip({"resources/r1": records, "agent/a1": [agent_line("r1")]})


def test_real_rollouts_come_back(shared_data: Path) -> None:
    sessions = [
        json.loads(line)
        for file in sorted((shared_data / "rollouts").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    assert sessions
    records = [
        agent_line(f"r{number}") | {"session": session} for number, session in enumerate(sessions)
    ]
    round_trip({"agent/a1": records})


def test_records_keep_their_values_and_their_order(tmp_path: Path) -> None:
    rollouts = ["r2", "r10", "r1"]
    gym = write_gym(tmp_path / "g", gym_small(rollouts))
    ours = MemoryStore()
    done = there(gym, ours)
    assert (done.checkpoint_id, done.participants, done.records) == ("ck-1", 2, 6)
    reader = layouts.open_checkpoint(ours).participant(RESOURCES)
    wanted = gym_small(rollouts)["resources/r1"]
    for record, line in zip(reader.load(), wanted, strict=True):
        assert record.episode_id.rollout_id == line["episode_id"]["rollout_id"]
        assert_same(record.state.value(), line["state"])  # type: ignore[union-attr]


def test_the_place_in_the_run_is_the_one_that_was_given(tmp_path: Path) -> None:
    ours = MemoryStore()
    there(write_gym(tmp_path / "g"), ours, sequence=7)
    assert layouts.open_checkpoint(ours).sequence == 7


def test_records_of_this_format_are_spelt_as_gym_does(tmp_path: Path) -> None:
    ours = MemoryStore()
    records: dict[ParticipantId, list[TypedRecord | Record]] = {AGENT: small_records()[AGENT]}
    write_checkpoint(ours, "ck-1", records).require()
    source = layouts.open_checkpoint(ours, Folder("ck-1"))
    done = convert_to_gym(source, LocalStore(tmp_path / "back"))
    assert done.is_written
    wanted = write_gym(tmp_path / "g", {"agent/a1": gym_small()["agent/a1"]}, aggregate=False)
    names = [name for name in tree(wanted) if "records" in name]
    assert {name: tree(tmp_path / "back")[name] for name in names} == {
        name: tree(wanted)[name] for name in names
    }
    reader = layouts.open_checkpoint(LocalStore(tmp_path / "back")).participant(AGENT)
    assert [join_line(r.line()) for r in reader.load()] == [
        join_line(r.line()) for r in source.participant(AGENT).load()
    ]


def test_what_gym_cannot_spell_is_listed_and_nothing_written(tmp_path: Path) -> None:
    ours = MemoryStore()
    write_small(ours, state={1: "x"}).require()
    source = layouts.open_checkpoint(ours, Folder("ck-1"))
    done = convert_to_gym(source, LocalStore(tmp_path / "back"))
    assert not done.is_written
    assert [(item.participant, item.key, item.tags) for item in done.beyond] == [
        (RESOURCES, f"{rollout}/session%2F{rollout}", ("map", "tuple"))
        for rollout in ("r1", "r2", "r3")
    ]
    assert not (tmp_path / "back").exists()


@given(value=exact_values())
def test_lossy_writes_any_record(value: Any) -> None:
    ours = MemoryStore()
    record = Record(episode_id=EpisodeId("r1"), members={"state": JsonPayload.from_value(value)})
    write_checkpoint(ours, "ck-1", {CONTROLLER: [record]}).require()
    source = layouts.open_checkpoint(ours, Folder("ck-1"))
    with tempfile.TemporaryDirectory() as folder:
        done = convert_to_gym(source, LocalStore(Path(folder, "back")), lossy=True)
        assert done.is_written
        assert list(verify(LocalStore(Path(folder, "back")), level=Level.DEEP)) == []
        reader = layouts.open_checkpoint(LocalStore(Path(folder, "back"))).participant(CONTROLLER)
        (found,) = reader.load()
        assert isinstance(found, Record)
        wanted = json.loads(json.dumps(value, skipkeys=True))
        assert_same(found.members["state"].value(), wanted)
        if not done.beyond:
            assert_same(wanted, value)


def test_a_lone_surrogate_is_refused_unless_gym_itself_had_spelt_it(tmp_path: Path) -> None:
    values = {"agent/a1": [agent_line("r1", text="half of a pair: \ud83d")]}
    round_trip(values)
    ours = MemoryStore()
    there(write_gym(tmp_path / "g", values), ours)
    records = layouts.open_checkpoint(ours).participant(AGENT).load()
    other = MemoryStore()
    write_checkpoint(other, "ck-1", {AGENT: records}).require()
    source = layouts.open_checkpoint(other, Folder("ck-1"))
    (found,) = convert_to_gym(source, MemoryStore()).beyond
    assert found.tags == ("sur",)


def test_a_file_that_json_dumps_did_not_spell_keeps_its_values(tmp_path: Path) -> None:
    gym = write_gym(tmp_path / "g", {"agent/a1": [agent_line("r1", text="é")]})
    (file,) = gym.rglob("records*")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    compact = "".join(
        json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines
    ).encode()
    rewritten = write_gym(tmp_path / "h", {"agent/a1": []}, by_digest=False)
    folder = rewritten / "gym" / "agent" / "a1"
    (folder / "records.jsonl").write_bytes(compact)
    told = json.loads((folder / "manifest.json").read_text())
    sha256 = hashlib.sha256(compact).hexdigest()
    told |= {"record_count": 1, "records_sha256": sha256}
    (folder / "manifest.json").write_text(json.dumps(told))
    ours = MemoryStore()
    there(rewritten, ours)
    done = back(ours, tmp_path / "back")
    assert done.respelt == [AGENT]
    (again,) = (tmp_path / "back").rglob("records*")
    assert again.read_bytes() == file.read_bytes()


def test_what_a_checkpoint_of_ours_says_of_itself_is_not_in_gyms_layout(tmp_path: Path) -> None:
    ours = MemoryStore()
    about = About(user={"commit": "abc"}, metadata={"step": 7}, run_id="run")
    write_checkpoint(ours, "ck-1", {AGENT: small_records()[AGENT]}, about).require()
    done = convert_to_gym(layouts.open_checkpoint(ours, Folder("ck-1")), LocalStore(tmp_path / "b"))
    assert done.is_written
    assert [name for name in tree(tmp_path / "b") if "/" not in name] == []


@pytest.mark.parametrize("damage", [b'{"broken', b""])
def test_a_damaged_source_is_not_converted(tmp_path: Path, damage: bytes) -> None:
    gym = write_gym(tmp_path / "g")
    (file,) = (gym / "gym" / "agent").rglob("records*")
    file.write_bytes(damage)
    with pytest.raises((CorruptError, TornError)):
        there(gym, LocalStore(tmp_path / "new"))
    assert not (tmp_path / "new" / "checkpoint.json").exists()


def test_a_changed_digest_is_not_converted(tmp_path: Path) -> None:
    gym = write_gym(tmp_path / "g")
    (file,) = (gym / "gym" / "agent").rglob("records*")
    file.write_bytes(file.read_bytes().replace(b"hello", b"hellO", 1))
    with pytest.raises(CorruptError, match="SHA-256"):
        there(gym, MemoryStore())


def test_a_damaged_source_of_this_format_is_not_converted(tmp_path: Path) -> None:
    write_small(LocalStore(tmp_path), "ck").require()
    (file,) = (tmp_path / "ck" / "agent").rglob("records*")
    cut(file, -1)
    with pytest.raises(TornError):
        back(LocalStore(tmp_path / "ck"), tmp_path / "new", lossy=True)
    assert not list(tmp_path.glob("new/**/manifest.json"))


def test_two_records_of_one_key_are_not_converted(tmp_path: Path) -> None:
    gym = write_gym(tmp_path / "g", {"agent/a1": [agent_line("r1"), agent_line("r1")]})
    with pytest.raises((DuplicateKeyError, CorruptError), match="same key"):
        there(gym, MemoryStore())


def test_a_place_that_holds_something_is_refused(tmp_path: Path) -> None:
    gym = write_gym(tmp_path / "g")
    (tmp_path / "empty").mkdir()
    for target in (tmp_path, tmp_path / "empty"):
        with pytest.raises(ExistsError):
            there(gym, LocalStore(target))
    with pytest.raises(RefusedError, match="inside"):
        there(gym, LocalStore(gym / "new"))


def test_nothing_is_converted_to_what_it_is(tmp_path: Path) -> None:
    gym = layouts.open_checkpoint(LocalStore(write_gym(tmp_path / "g")))
    with pytest.raises(StateError):
        convert_to_gym(gym, MemoryStore())
    write_small(LocalStore(tmp_path), "ck").require()
    with pytest.raises(StateError):
        convert_to_ckptfmt(layouts.open_checkpoint(LocalStore(tmp_path / "ck")), MemoryStore())


class Bending(MemoryStore):
    """A store that changes a byte of what it is given to keep under some names."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def create(self, name: str, data: BytesLike) -> None:
        if self._part in name:
            data = bytes(data).replace(b"hello", b"hellO")
        super().create(name, data)


def test_what_was_written_is_held_against_the_source() -> None:
    ours = MemoryStore()
    write_checkpoint(ours, "ck-1", {AGENT: small_records()[AGENT]}).require()
    bending = Bending("records")
    with pytest.raises(RoundTripError):
        convert_to_gym(layouts.open_checkpoint(ours, Folder("ck-1")), bending)
    assert not any("manifest" in e.name for e in bending.entries("gym/agent/a1"))


def test_a_record_that_changes_on_the_way_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gym = write_gym(tmp_path / "g")
    monkeypatch.setattr(converting, "ParticipantWriter", _Dropping)
    target = MemoryStore()
    with pytest.raises(RoundTripError):
        there(gym, target)
    assert "checkpoint.json" not in [entry.name for entry in target.entries()]


class _Dropping(converting.ParticipantWriter):
    """A writer that loses one record."""

    def add(self, record: TypedRecord | Record) -> None:
        if record.episode_id.rollout_id != "r2":
            super().add(record)


def test_a_malformed_origin_is_corrupt(tmp_path: Path) -> None:
    ours = MemoryStore()
    there(write_gym(tmp_path / "g"), ours)
    reader = layouts.open_checkpoint(ours).participant(AGENT)
    other = MemoryStore()
    with converting.ParticipantWriter(
        other, Folder("ck"), "ck", AGENT, user={"nemo-gym/manifest.json": "{}"}
    ) as writer:
        for record in reader.load():
            writer.add(record)
        writer.finish().require()
    publish_checkpoint(other, Folder("ck"), "ck", [AGENT]).require()
    with pytest.raises(CkptError, match="NeMo Gym"):
        convert_to_gym(layouts.open_checkpoint(other, Folder("ck")), MemoryStore())


def test_manifests_appear_only_once_all_records_are_there(tmp_path: Path) -> None:
    class Fails(MemoryStore):
        def create(self, name: str, data: BytesLike) -> None:
            if "resources" in name:
                raise StateError("no")
            super().create(name, data)

    ours, target = MemoryStore(), Fails()
    there(write_gym(tmp_path / "g"), ours)
    with pytest.raises(StateError):
        convert_to_gym(layouts.open_checkpoint(ours), target)
    agent = [entry.name for entry in target.entries(f"{GYM_FOLDER}/agent/a1")]
    assert len(agent) == 1
    assert agent[0].startswith("records-")
