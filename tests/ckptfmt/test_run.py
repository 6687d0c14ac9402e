"""Which checkpoints a run has, and which is the latest."""

from __future__ import annotations

import contextlib
import errno
import itertools
import shutil
from pathlib import Path

import pytest

from ckptfmt.commit import NotCommitted
from ckptfmt.errors import (
    AmbiguousLatestError,
    MissingError,
    StorageError,
    StorageFailedError,
)
from ckptfmt.layout import Folder
from ckptfmt.publish import About, abort_checkpoint
from ckptfmt.run import CheckpointState, RunScan, latest, list_checkpoints
from ckptfmt.store.local import LocalStore
from ckptfmt.testing.os_faults import FaultyOs, failing
from tests.support.checkpoints import AGENT, write_tiny


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A run with checkpoints ck-1 and ck-2."""
    store = LocalStore(tmp_path)
    for number in (1, 2):
        write_tiny(store, f"ck-{number}").require()
    return store


def states(store: LocalStore) -> dict[str, CheckpointState]:
    return {entry.folder.prefix: entry.state for entry in list_checkpoints(store)}


def data_file(root: Path, checkpoint: str) -> Path:
    return next((root / checkpoint / str(AGENT)).glob("records-*"))


def test_each_publication_takes_the_next_sequence(store: LocalStore) -> None:
    assert [entry.sequence for entry in list_checkpoints(store)] == [1, 2]
    assert latest(store).entry.checkpoint_id == "ck-2"
    assert latest(store).skipped == ()
    assert latest(store).notices == ()


def test_each_checkpoint_names_the_one_before(store: LocalStore) -> None:
    first, second = (entry.sealed for entry in list_checkpoints(store))
    assert first is not None
    assert second is not None
    assert first.body.previous is None
    assert second.body.previous is not None
    assert second.body.previous.checkpoint_id == "ck-1"
    assert second.body.previous.sha256 == first.sha256


def test_sequences_are_compared_as_numbers(store: LocalStore) -> None:
    """S49."""
    for number in range(3, 12):
        write_tiny(store, f"ck-{number}").require()
    assert latest(store).entry.checkpoint_id == "ck-11"
    assert [entry.sequence for entry in list_checkpoints(store)] == list(range(1, 12))


@pytest.mark.parametrize("what", ["checkpoint.json", "agent/a1/manifest.json"])
def test_a_killed_writer_leaves_an_incomplete_checkpoint_that_is_never_the_latest(
    store: LocalStore, tmp_path: Path, what: str
) -> None:
    """S1, S2, S4: the skipped one is named with the reason."""
    write_tiny(store, "ck-3").require()
    (tmp_path / "ck-3/checkpoint.json").unlink()
    (tmp_path / "ck-3" / what).unlink(missing_ok=True)
    assert states(store)["ck-3"] is CheckpointState.INCOMPLETE
    found = latest(store)
    assert found.entry.checkpoint_id == "ck-2"
    (skipped,) = found.skipped
    assert skipped.folder.prefix == "ck-3"
    assert "never published" in str(skipped.problem)


@pytest.mark.parametrize("damage", [b"", b"{}", b"garbage\n"])
def test_a_damaged_aggregate_is_passed_over_and_named(
    store: LocalStore, tmp_path: Path, damage: bytes
) -> None:
    """S12."""
    (tmp_path / "ck-2/checkpoint.json").write_bytes(damage)
    assert states(store)["ck-2"] is CheckpointState.DAMAGED
    found = latest(store)
    assert found.entry.checkpoint_id == "ck-1"
    assert [entry.folder.prefix for entry in found.skipped] == ["ck-2"]


@pytest.mark.parametrize("what", ["missing", "cut", "longer", "manifest"])
def test_damage_that_sizes_and_manifests_show_makes_a_checkpoint_damaged(
    store: LocalStore, tmp_path: Path, what: str
) -> None:
    data = data_file(tmp_path, "ck-2")
    match what:
        case "missing":
            data.unlink()
        case "cut":
            data.write_bytes(data.read_bytes()[:-1])
        case "longer":
            data.write_bytes(data.read_bytes() + b"x")
        case _:
            (data.parent / "manifest.json").unlink()
    assert states(store)["ck-2"] is CheckpointState.DAMAGED
    assert latest(store).entry.checkpoint_id == "ck-1"
    assert RunScan(store).highest_sequence == 2


def test_a_number_is_not_given_out_again_after_its_checkpoint_was_removed(
    store: LocalStore, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "ck-2")
    write_tiny(store, "ck-3").require()
    assert latest(store).entry.sequence == 3


@pytest.mark.parametrize(
    "hint",
    [
        b'{"checkpoint_id":"ck-9","sequence":9223372036854775807}',
        b'{"checkpoint_id":"ck-9","sequence":9223372036854775806}',
        b'{"checkpoint_id":"ck-9","sequence":' + b"9" * 3000 + b"}",
        b'{"checkpoint_id":"ck-9","sequence":-5}',
        b'{"checkpoint_id":"ck-9","sequence":true}',
        b'{"checkpoint_id":"ck-9","sequence":1,"more":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b"[" * 4000,
        b'{"checkpoint_id":"\xff","sequence":7}',
        b"x" * 5000,
    ],
    ids=range(9),
)
def test_a_hint_that_is_garbage_stops_nobody(
    store: LocalStore, tmp_path: Path, hint: bytes
) -> None:
    """S3: neither a reader nor the next checkpoint, nor the one after it."""
    (tmp_path / "LATEST").write_bytes(hint)
    assert latest(store).entry.checkpoint_id == "ck-2"
    for number in (3, 4):
        (tmp_path / "LATEST").write_bytes(hint)
        assert write_tiny(store, f"ck-{number}").require().body.sequence == number


@pytest.mark.parametrize(
    "hint",
    [b'{"checkpoint_id":"ck-1","sequence":1}', b'{"checkpoint_id":"gone","sequence":9}', b"", b"x"],
)
def test_the_hint_decides_nothing(store: LocalStore, tmp_path: Path, hint: bytes) -> None:
    """S3, S12."""
    (tmp_path / "LATEST").write_bytes(hint)
    found = latest(store)
    assert found.entry.checkpoint_id == "ck-2"
    assert bool(found.notices) == hint.startswith(b"{")


def test_two_with_one_sequence_are_refused_and_both_are_named(
    store: LocalStore, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "ck-2", tmp_path / "fork")
    with pytest.raises(AmbiguousLatestError, match=r"ck-2 and fork"):
        latest(store)


def test_of_two_with_one_sequence_the_damaged_one_does_not_count(
    store: LocalStore, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "ck-2", tmp_path / "fork")
    data_file(tmp_path, "ck-2").unlink()
    assert latest(store).entry.folder.prefix == "fork"


def test_a_checkpoint_that_was_given_up_is_shown_as_aborted(store: LocalStore) -> None:
    assert isinstance(abort_checkpoint(store, Folder("ck-3"), "ck-3"), NotCommitted)
    assert states(store)["ck-3"] is CheckpointState.ABORTED
    assert latest(store).entry.checkpoint_id == "ck-2"
    assert isinstance(write_tiny(store, "ck-3"), NotCommitted)


def test_what_is_not_ours_is_told_apart(store: LocalStore, tmp_path: Path) -> None:
    """S53."""
    (tmp_path / "logs/2026/01").mkdir(parents=True)
    (tmp_path / "logs/2026/01/a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "file").write_text("x")
    shown = states(store)
    assert shown["logs"] is CheckpointState.FOREIGN
    assert shown["empty"] is CheckpointState.FOREIGN
    assert set(shown) == {"ck-1", "ck-2", "logs", "empty"}


def test_a_run_without_a_complete_checkpoint_says_why(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(MissingError, match="no complete checkpoint"):
        latest(store)
    write_tiny(store, "ck-1").require()
    (tmp_path / "ck-1/checkpoint.json").write_bytes(b"")
    with pytest.raises(MissingError, match=r"ck-1.*ends after 0 bytes"):
        latest(store)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ETIMEDOUT], ids=errno.errorcode.get)
def test_a_failure_that_may_pass_never_gives_an_older_checkpoint(
    store: LocalStore, tmp_path: Path, number: int
) -> None:
    """S32: nor a number that was given out before."""
    (tmp_path / "LATEST").unlink()
    for nth in itertools.count(1):
        calls = FaultyOs(nth, failing(number))
        with contextlib.suppress(StorageError):
            scan = RunScan(LocalStore(tmp_path, calls=calls))
            assert scan.highest_sequence == 2
            assert scan.latest().entry.checkpoint_id == "ck-2"
        if calls.struck is None:
            assert nth > 10
            return


def test_a_checkpoint_that_nobody_may_read_is_passed_over_and_named(
    store: LocalStore, tmp_path: Path
) -> None:
    """Such as a folder that belongs to the file system and not to the run."""

    class Closed(LocalStore):
        def read_small(self, name: str, max_bytes: int) -> bytes:
            if name == "ck-2/checkpoint.json":
                raise StorageFailedError("Permission denied (EACCES)")
            return super().read_small(name, max_bytes)

    found = latest(Closed(tmp_path))
    assert found.entry.checkpoint_id == "ck-1"
    assert [str(entry.problem) for entry in found.skipped] == [
        "Permission denied (EACCES) [file 'ck-2/checkpoint.json']"
    ]


def test_a_run_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        list_checkpoints(LocalStore(tmp_path / "nowhere"))


def test_a_renamed_folder_keeps_its_place(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "ck-2").rename(tmp_path / "0-renamed")
    found = latest(store).entry
    assert found.folder.prefix == "0-renamed"
    assert found.checkpoint_id == "ck-2"


@pytest.mark.parametrize("sequence", [0, 41])
def test_a_tool_may_keep_the_sequence_of_what_it_copies(tmp_path: Path, sequence: int) -> None:
    store = LocalStore(tmp_path)
    write_tiny(store, "ck-1", about=About(sequence=sequence)).require()
    write_tiny(store, "ck-2").require()
    assert [entry.sequence for entry in list_checkpoints(store)] == [sequence, sequence + 1]
