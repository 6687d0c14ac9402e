"""What a Gym controller puts beside the participants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ckptfmt.errors import CorruptError, UnsupportedError
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.nemo_gym.aggregate import Aggregate, read_gym_aggregate
from ckptfmt.store.memory import MemoryStore

AGENT, MODEL = ParticipantId("agent", "a1"), ParticipantId("model", "m1")


def read(**files: Any) -> Aggregate:
    """Read aggregates given as values, or as bytes."""
    store = MemoryStore()
    store.create("ck/gym/agent/a1/manifest.json", b"{}")
    for name, value in files.items():
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        store.create(f"ck/{name.replace('__', '.')}", data)
    return read_gym_aggregate(store, Folder("ck"))


def gym(**members: Any) -> dict[str, Any]:
    return {"schema_version": 2, "checkpoint_id": "ck-1", "staging_keys": [], **members}


def test_none_at_all_is_accepted() -> None:
    assert read() == Aggregate()
    assert read().data == b""


def test_either_tells_the_id_and_the_files_stay_the_bytes_that_they_are() -> None:
    found = read(gym_checkpoint__json=gym(instances=[]))
    assert found.checkpoint_id == "ck-1"
    other = read(collection__json={"checkpoint_id": "ck-2", "created_at": "2026-01-02T03:04:05Z"})
    assert (other.checkpoint_id, other.created_at) == ("ck-2", "2026-01-02T03:04:05Z")
    spaced = b' {"any":\n"thing"}'
    both = read(collection__json=spaced, LATEST=b"ck-2\n", gym_checkpoint__json=gym())
    assert both.files["collection.json"] == spaced
    assert both.files["LATEST"] == b"ck-2\n"
    assert both.checkpoint_id == "ck-1"


@pytest.mark.parametrize(
    "instances",
    [
        ["a1", "m1"],
        ["agent/a1", "model/m1"],
        [{"kind": "agent", "instance": "a1"}, {"kind": "model", "instance": "m1"}],
        {"a1": "agent", "m1": "model"},
        {"a1": {"kind": "agent"}, "m1": {"kind": "model"}},
        {"agent/a1": {}, "model/m1": {"records": 3}},
        {"one": {"instance": "a1"}, "two": {"kind": "model", "instance": "m1"}},
    ],
)
def test_whoever_is_named_and_not_there_is_missing(instances: Any) -> None:
    found = read(gym_checkpoint__json=gym(instances=instances))
    assert found.missing([AGENT, MODEL]) == []
    (lacking,) = found.missing([AGENT])
    assert lacking.instance == "m1"
    assert lacking.kind in ("model", "unknown")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff{}",
        b"[" * 100_000,
        json.dumps(gym(checkpoint_id="../x")).encode(),
    ],
)
def test_what_is_malformed_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        read(gym_checkpoint__json=data)
    assert caught.value.location.file == "ck/gym_checkpoint.json"


@pytest.mark.parametrize("version", [1, 3, None, "2"])
def test_another_version_is_not_guessed(version: Any) -> None:
    with pytest.raises(UnsupportedError):
        read(gym_checkpoint__json=gym() | {"schema_version": version})


@pytest.mark.parametrize(
    "instances",
    [7, None, "x", [7, None, {}], ["../x"], [{"kind": "a/b", "instance": "x"}], {"http://x": 1}],
)
def test_what_names_no_participant_is_passed_over(instances: Any) -> None:
    """The wire contract does not say what stands there."""
    assert read(gym_checkpoint__json=gym(instances=instances)).missing([AGENT]) == []


def test_a_large_hint_is_not_read() -> None:
    with pytest.raises(CorruptError):
        read(LATEST=b"x" * 5000)
