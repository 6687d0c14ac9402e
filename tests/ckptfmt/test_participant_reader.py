"""Reading the records of some episodes, and lookups over several objects."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import CorruptError, DataError, MissingError, UnsupportedError
from ckptfmt.identity import EpisodeId
from ckptfmt.layout import Folder
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.publish import write_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from tests.ckptfmt.test_manifest import members_of, resealed
from tests.ckptfmt.test_verify import CK, CONTROLLER, Crafted, crafted, plain, put
from tests.support.checkpoints import AGENT, agent_record

R1, R2, R9 = EpisodeId("r1", 0), EpisodeId("r2", 0), EpisodeId("r9", 0)


def reader(*records: Record | Crafted, object_target_bytes: int = 1 << 20) -> ParticipantReader:
    store = MemoryStore()
    put(store, records, object_target_bytes=object_target_bytes, forgetful=True)
    return Checkpoint.open(store, CK).participant(CONTROLLER)


def keys(found: ParticipantReader, episodes: Collection[EpisodeId] | None) -> list[str]:
    return [record.key for record in found.load(episodes=episodes)]


@pytest.mark.parametrize("target", [1, 1 << 20])
@pytest.mark.parametrize("digest", [True, False])
def test_the_records_of_some_episodes_come_in_order(target: int, digest: bool) -> None:
    """P57."""
    found = reader(
        plain("r1", sub_key="b"),
        plain("r2"),
        plain("r1", sub_key="a"),
        plain("r1-x"),
        object_target_bytes=target,
    )
    assert [item.key for item in found.load(digest=digest, episodes=[R1])] == ["r1/b", "r1/a"]
    assert keys(found, frozenset({R1, R2, R9})) == ["r1/b", "r2", "r1/a"]
    assert keys(found, [R9]) == keys(found, []) == []
    assert len(keys(found, None)) == 4


@pytest.mark.parametrize(
    "line",
    [
        b'{"episode_id":{"rollout_id":"r2","attempt":0},"state":',
        b'{"episode_id":{"rollout_id":"r2","attempt":0},"$later":1}',
        b'{"episode_id":{"rollout_id":"r2","attempt":0},"state":"\xff"}',
    ],
)
def test_records_of_other_episodes_are_not_decoded(line: bytes) -> None:
    """P57: only their episode is looked at."""
    found = reader(plain("r1"), crafted(plain("r2"), data=line))
    assert keys(found, [R1]) == ["r1"]
    with pytest.raises((CorruptError, UnsupportedError)):
        found.load(episodes=[R2])[0].members["state"].value()  # type: ignore[union-attr]


def test_an_episode_that_does_not_stand_first_is_found() -> None:
    line = b'{ "state" : 1, "episode_id" : {"attempt":0,"rollout_id":"r1"} }'
    found = reader(crafted(plain("r1"), data=line), plain("r2"))
    assert keys(found, [R1]) == ["r1"]
    assert keys(found, [R2]) == ["r2"]


def test_a_line_without_an_episode_is_corrupt_in_any_scope() -> None:
    found = reader(plain("r1"), crafted(plain("r2"), data=b'{"state":1}'))
    with pytest.raises(CorruptError) as raised:
        found.load(episodes=[R1])
    assert (raised.value.location.ordinal, raised.value.location.block) == (1, 0)


@pytest.mark.parametrize("episodes", [[R1], [R2], [R1, R2], None])
def test_records_that_the_index_swaps_are_corrupt_in_any_scope(
    episodes: list[EpisodeId] | None,
) -> None:
    found = reader(crafted(plain("r1"), key="r2"), crafted(plain("r2"), key="r1"))
    with pytest.raises(CorruptError, match="index"):
        found.load(episodes=episodes)


def test_a_record_that_the_index_gives_to_another_episode_is_not_left_out_silently() -> None:
    """By the index alone the second record would not be in scope."""
    found = reader(
        plain("r1", sub_key="a"), crafted(plain("r1", sub_key="b"), key="r2/b"), plain("r2")
    )
    with pytest.raises(CorruptError):
        found.load(episodes=[R1])


@pytest.mark.parametrize("episodes", [[], [R1], None])
def test_a_key_in_two_objects_is_corrupt_in_any_scope(episodes: list[EpisodeId] | None) -> None:
    """F8."""
    found = reader(plain("r1"), plain("r2"), plain("r1"), object_target_bytes=1)
    with pytest.raises(CorruptError) as raised:
        found.load(episodes=episodes)
    assert raised.value.location.key == "r1"
    assert raised.value.location.participant == str(CONTROLLER)


@pytest.mark.parametrize("episodes", [[], [R1], None])
@pytest.mark.parametrize(
    ("member", "wrong"), [("content_digest", "0" * 64), ("episode_ids", ["r1", "r2", "r3"])]
)
def test_what_the_manifest_states_wrongly_is_corrupt_in_any_scope(
    episodes: list[EpisodeId] | None, member: str, wrong: object
) -> None:
    """F35."""
    found = restated(reader(plain("r1"), plain("r2")), **{member: wrong})
    with pytest.raises(CorruptError, match=member):
        found.load(episodes=episodes)


def restated(found: ParticipantReader, **changes: object) -> ParticipantReader:
    """The same participant with another manifest, on its own word."""
    name = CK.manifest(CONTROLLER)
    data = resealed({**members_of(found.sealed.data), **changes})
    found.store.delete(name)
    found.store.create(name, data)
    return ParticipantReader.open(found.store, CK, CONTROLLER)


def test_an_unknown_schema_matters_only_where_a_record_is_in_scope() -> None:
    """P55, P57."""
    found = restated(reader(*map(plain, ("a1", "a2", "a3", "r1"))), schema_version=2)
    assert keys(found, [R9]) == []
    for episodes, named in (([R1], "episodes r1"), (None, "episodes a1, a2, a3")):
        with pytest.raises(UnsupportedError, match=named):
            found.load(episodes=episodes)


def test_a_lookup_goes_through_all_objects() -> None:
    """F8."""
    found = reader(plain("r1"), plain("r2"), plain("r3"), object_target_bytes=1)
    assert [found.get(key).key for key in ("r1", "r2", "r3")] == ["r1", "r2", "r3"]
    with pytest.raises(MissingError):
        found.get("r9")
    assert [list(names) for names in found.index_keys()] == [["r1"], ["r2"], ["r3"]]


def test_an_index_has_the_digests_of_its_keys_whatever_their_order() -> None:
    one, two = plain("r2"), plain("r1")
    (index,) = reader(one, two).indexes()
    (sorted_index,) = reader(two, one).indexes()
    assert list(index) == list(sorted_index)
    assert [key for key, _ in reader(one, two).indexes()[0]] == ["r1", "r2"]


def test_a_checkpoint_that_was_made_anew_is_not_read_as_the_old_one(tmp_path: Path) -> None:
    """S20: whoever has it open gets the records of the old one, or an error."""
    store = LocalStore(tmp_path)
    write_checkpoint(store, "ck-1", {AGENT: [agent_record("r1"), agent_record("r2")]}).require()
    opened = Checkpoint.open(store, Folder("ck-1"))
    part = opened.participant(AGENT)
    begun = part.records()
    first = next(begun)
    shutil.rmtree(tmp_path / "ck-1")
    write_checkpoint(store, "ck-1", {AGENT: [agent_record("r1", text="new")]}).require()
    assert [first, *begun] == [agent_record("r1"), agent_record("r2")]
    for attempt in (part.load, part.check_sizes, lambda: part.get("r1/s")):
        with pytest.raises(MissingError):
            attempt()
    with pytest.raises(DataError, match="manifest"):
        opened.participant(AGENT)
