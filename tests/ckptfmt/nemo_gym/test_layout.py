"""Names, the participant's manifest, and telling the layout by looking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.errors import CorruptError, UnsupportedError
from ckptfmt.identity import ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.nemo_gym.layout import (
    GymManifest,
    decode_gym_manifest,
    encode_gym_manifest,
    gym_folder,
    gym_participants,
    is_records_name,
    records_name,
)
from ckptfmt.store.local import LocalStore
from tests.support.checkpoints import write_small
from tests.support.gym import write_gym

SHA = "ab" * 32
MEMBERS = {
    "checkpoint_id": "ck-1",
    "instance": "a1",
    "kind": "agent",
    "record_count": 2,
    "records_file": f"records-{SHA}.jsonl",
    "records_sha256": SHA,
    "schema_version": 1,
}


def spelled(**changes: Any) -> bytes:
    """A manifest with other members; None leaves one out."""
    members = {**MEMBERS, **changes}
    return json.dumps({n: v for n, v in members.items() if v is not None}).encode()


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest = decode_gym_manifest(spelled())
    assert manifest.participant == ParticipantId("agent", "a1")
    data = encode_gym_manifest(manifest)
    assert json.loads(data) == MEMBERS
    assert list(json.loads(data)) == sorted(MEMBERS)
    assert decode_gym_manifest(data) == manifest


@pytest.mark.parametrize("name", ["records.jsonl", f"records-{SHA}.jsonl"])
def test_both_namings_are_read(name: str) -> None:
    assert is_records_name(name)
    assert decode_gym_manifest(spelled(records_file=name)).records_file == name


def test_white_space_and_members_that_are_not_known_do_no_harm() -> None:
    data = json.dumps({**MEMBERS, "later": [1]}, indent=2).encode() + b"\n\n"
    assert isinstance(decode_gym_manifest(data), GymManifest)


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint_id": "../x"},
        {"checkpoint_id": None},
        {"kind": "a/b"},
        {"instance": ""},
        {"instance": 7},
        {"record_count": -1},
        {"record_count": True},
        {"record_count": 1 << 70},
        {"records_sha256": "AB" * 32},
        {"records_sha256": SHA[:-1]},
        {"records_file": "../records.jsonl"},
        {"records_file": "/etc/passwd"},
        {"records_file": "records.jsonl\n"},
        {"records_file": "sub/records.jsonl"},
        {"records_file": records_name("cd" * 32)},
    ],
)
def test_what_no_writer_writes_is_corrupt(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptError):
        decode_gym_manifest(spelled(**changes))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"schema_version":' + b"[" * 100_000,
        spelled().replace(b'"kind"', b'"kind": "x", "kind"'),
    ],
)
def test_what_is_no_manifest_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        decode_gym_manifest(data)


@pytest.mark.parametrize("version", [0, 2, 1 << 60])
def test_another_version_is_not_guessed(version: int) -> None:
    with pytest.raises(UnsupportedError, match=str(version)):
        decode_gym_manifest(spelled(schema_version=version))


def test_the_layout_is_told_by_looking(tmp_path: Path) -> None:
    write_gym(tmp_path / "run" / "g")
    store = LocalStore(tmp_path / "run")
    write_small(store, "ours").require()
    assert gym_folder(store, Folder("g")) == Folder("g/gym")
    assert gym_folder(store, Folder("g/gym")) == Folder("g/gym")
    assert gym_folder(store, Folder("ours")) is None
    assert gym_folder(store, Folder()) is None
    assert gym_folder(store, Folder("none")) is None
    assert gym_folder(LocalStore(tmp_path / "none"), Folder()) is None


def test_a_participant_of_ours_may_be_called_gym(tmp_path: Path) -> None:
    folder = tmp_path / "ck" / "gym" / "gym"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(b"{}")
    (folder / ("records-" + "0" * 24 + "-000.jsonl.zst")).write_bytes(b"")
    assert gym_folder(LocalStore(tmp_path), Folder("ck")) is None


def test_a_link_is_no_participant(tmp_path: Path) -> None:
    write_gym(tmp_path / "real")
    (tmp_path / "ck" / "gym").mkdir(parents=True)
    (tmp_path / "ck" / "gym" / "agent").symlink_to(tmp_path / "real" / "gym" / "agent")
    assert list(gym_participants(LocalStore(tmp_path), Folder("ck/gym"))) == []


def test_participants_are_those_with_records_or_a_manifest(tmp_path: Path) -> None:
    write_gym(tmp_path)
    (tmp_path / "gym" / "agent" / "empty").mkdir()
    (tmp_path / "gym" / "agent" / ".hidden").mkdir()
    for records in (tmp_path / "gym" / "agent" / "a1").glob("records*"):
        records.unlink()
    found = list(gym_participants(LocalStore(tmp_path), Folder("gym")))
    assert found == [ParticipantId("agent", "a1"), ParticipantId("resources", "r1")]
