"""Every bit and every byte of a whole checkpoint, through ``verify``: no silent difference."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptfmt.checkpoint import Checkpoint
from ckptfmt.errors import CkptError, CorruptError, DataError, TornError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import write_checkpoint
from ckptfmt.record import Record
from ckptfmt.rules import Severity
from ckptfmt.schema import TypedRecord
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.verify import Level, verify

PARTICIPANT = ParticipantId("controller", "c")
FOLDER = Folder("ck-1")


def records() -> list[Record]:
    return [
        Record(
            episode_id=EpisodeId(f"r{number}"),
            members={"state": JsonPayload.from_value({"n": number, "x": (float("nan"),)})},
        )
        for number in range(4)
    ]


def small() -> MemoryStore:
    store = MemoryStore()
    write_checkpoint(store, "ck-1", {PARTICIPANT: records()}).require()
    return store


def files(store: MemoryStore) -> dict[str, bytes]:
    """Every file of the checkpoint."""
    checkpoint = Checkpoint.open(store, FOLDER)
    reader = checkpoint.participant(PARTICIPANT)
    names = [FOLDER.aggregate, FOLDER.manifest(PARTICIPANT)]
    names += [reader.data_name(item) for item in reader.manifest.objects]
    return {name: store.read_small(name, 1 << 20) for name in names}


def with_file(all_files: dict[str, bytes], name: str, data: bytes) -> MemoryStore:
    store = MemoryStore()
    for other, content in all_files.items():
        store.create(other, data if other == name else content)
    return store


def loaded(store: MemoryStore) -> list[TypedRecord | Record] | CkptError:
    try:
        return Checkpoint.open(store, FOLDER).participant(PARTICIPANT).load()
    except CkptError as error:
        return error


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        yield f"bit {bit}", bytes(flipped)
    for length in range(len(data)):
        yield f"cut at {length}", data[:length]


def test_every_flip_and_every_cut_of_a_checkpoint_is_found() -> None:
    """F27, F28, F35, F53."""
    all_files = files(small())
    assert sum(map(len, all_files.values())) <= 8192
    before = loaded(small())
    for name, data in all_files.items():
        for what, damaged in damages(data):
            store = with_file(all_files, name, damaged)
            findings = list(verify(store, FOLDER))
            assert any(finding.rule.severity is Severity.ERROR for finding in findings), (
                name,
                what,
            )
            after = loaded(store)
            assert isinstance(after, DataError), (name, what)
            assert after != before
            assert after.location.file == name, (name, what, after)


def test_a_cut_data_object_is_torn_and_both_sizes_are_told() -> None:
    """F28, F37."""
    all_files = files(small())
    name = next(name for name in all_files if name.endswith(".zst"))
    size = len(all_files[name])
    for length in (0, 1, size // 2, size - 1):
        store = with_file(all_files, name, all_files[name][:length])
        error = loaded(store)
        assert isinstance(error, TornError)
        assert str(length) in str(error)
        assert str(size) in str(error)
        finding = next(iter(verify(store, FOLDER)))
        assert finding.code == "torn"


@pytest.mark.parametrize("extra", [1, 17, 4096])
def test_bytes_after_a_data_object_are_corrupt_where_known_content_ends(extra: int) -> None:
    """F31, F37."""
    all_files = files(small())
    name = next(name for name in all_files if name.endswith(".zst"))
    store = with_file(all_files, name, all_files[name] + b"x" * extra)
    error = loaded(store)
    assert isinstance(error, CorruptError)
    assert error.location.offset == len(all_files[name])


def test_a_participant_replaced_by_another_valid_one_is_corrupt() -> None:
    """F38."""
    all_files = files(small())
    other = MemoryStore()
    write_checkpoint(other, "ck-1", {PARTICIPANT: records()[:2]}).require()
    others = files(other)
    manifest = FOLDER.manifest(PARTICIPANT)
    mixed = {**all_files, **others, FOLDER.aggregate: all_files[FOLDER.aggregate]}
    store = with_file(mixed, manifest, others[manifest])
    error = loaded(store)
    assert isinstance(error, (CorruptError, TornError))
    assert error.location.participant == str(PARTICIPANT)


@pytest.mark.parametrize("moved_to", ["ck-1/controller/d", "ck-1/other/c"])
def test_a_participant_in_the_folder_of_another_is_refused(tmp_path: Path, moved_to: str) -> None:
    """F41."""
    write_checkpoint(
        LocalStore(tmp_path),
        "ck-1",
        {
            PARTICIPANT: records(),
            ParticipantId("controller", "d"): records()[:1],
            ParticipantId("other", "c"): records()[:1],
        },
    ).require()
    shutil.rmtree(tmp_path / moved_to)
    shutil.copytree(tmp_path / "ck-1/controller/c", tmp_path / moved_to)
    kind, instance = moved_to.split("/")[1:]
    with pytest.raises(DataError):
        Checkpoint.open(LocalStore(tmp_path), FOLDER).participant(ParticipantId(kind, instance))


def test_a_renamed_checkpoint_folder_is_fine_and_so_is_a_copy(tmp_path: Path) -> None:
    """F41, S8, S9."""
    write_checkpoint(LocalStore(tmp_path), "ck-1", {PARTICIPANT: records()}).require()
    shutil.copytree(tmp_path / "ck-1", tmp_path / "elsewhere")
    assert list(verify(LocalStore(tmp_path), Folder("elsewhere"), level=Level.DEEP)) == []
    assert list(verify(LocalStore(tmp_path / "elsewhere"), level=Level.DEEP)) == []


def test_ten_damages_are_all_found_in_one_run(tmp_path: Path) -> None:
    """I40: missing weighs as much as damaged."""
    names = [ParticipantId("controller", f"c{number}") for number in range(10)]
    write_checkpoint(LocalStore(tmp_path), "ck-1", {name: records() for name in names}).require()
    for number, name in enumerate(names):
        folder = tmp_path / "ck-1" / str(name)
        data = next(folder.glob("records-*"))
        match number % 4:
            case 0:
                data.unlink()
            case 1:
                (folder / "manifest.json").unlink()
            case 2:
                data.write_bytes(data.read_bytes()[:-1])
            case _:
                content = bytearray(data.read_bytes())
                content[len(content) // 2] ^= 1
                data.write_bytes(content)
    findings = list(verify(LocalStore(tmp_path), FOLDER))
    assert {finding.location.participant for finding in findings} == set(map(str, names))
    assert all(finding.rule.severity is Severity.ERROR for finding in findings)
