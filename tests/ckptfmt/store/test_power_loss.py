"""S41: the power fails after each call, on a disk that drops whatever was not synced."""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptfmt.errors import CommitUnknownError, ExistsError, StorageError
from ckptfmt.store import LocalStore
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.testing.crash_model import Files, ForgetfulDisk
from ckptfmt.testing.os_faults import FaultyOs, failing, lacking

Judge = Callable[[str, Files], None]
Disk = Callable[..., ForgetfulDisk]

DATA = b"content " * 100
OLD = "run/old/manifest.json"
DATA_NAME = "kind/instance/data"
MANIFEST = "kind/instance/manifest.json"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Makes a model of ``tmp_path``, which holds one object that was synced before."""
    LocalStore(tmp_path / "run").create("old/manifest.json", DATA)
    made: list[ForgetfulDisk] = []

    def make(
        judge: Judge = lambda call, left: None, kind: type[ForgetfulDisk] = ForgetfulDisk
    ) -> ForgetfulDisk:
        made.append(kind(tmp_path, judge))
        return made[-1]

    yield make
    for model in made:
        model.release()


def both(disk: ForgetfulDisk) -> list[Files]:
    """What a loss of power can leave now."""
    return [disk.after_crash(names_now=now) for now in (False, True)]


def whole_or_absent(_: str, left: Files) -> None:
    """The rule for manifests, and for what they name."""
    assert left[OLD] == DATA
    if (manifest := left.get(f"run/{MANIFEST}")) is not None:
        assert manifest == DATA
        assert left[f"run/{DATA_NAME}"] == DATA


def commit(store: LocalStore) -> None:
    """A data object, then what names it."""
    with store.open_data(DATA_NAME) as writer:
        writer.write(DATA[:300])
        writer.write(DATA[300:])
        writer.finish()
    store.create(MANIFEST, DATA)


def under_link(disk: ForgetfulDisk) -> OsCalls:
    return disk


def under_rename(disk: ForgetfulDisk) -> OsCalls:
    return lacking(errno.EPERM, "link", under=disk)


@pytest.mark.parametrize("calls", [under_link, under_rename])
def test_after_every_call_a_manifest_is_whole_and_so_is_what_it_names(
    tmp_path: Path, disk: Disk, calls: Callable[[ForgetfulDisk], OsCalls]
) -> None:
    model = disk(whole_or_absent)
    commit(LocalStore(tmp_path / "run", calls=calls(model)))
    for left in both(model):
        assert left[f"run/{MANIFEST}"] == DATA


def test_what_is_acknowledged_is_durable_with_all_its_new_directories(
    tmp_path: Path, disk: Disk
) -> None:
    model = disk()
    store = LocalStore(tmp_path / "new" / "root", calls=model)
    with store.open_data("a/b/data") as writer:
        writer.write(DATA)
        writer.finish()
    assert [left["new/root/a/b/data"] for left in both(model)] == [DATA, DATA]
    store.create("c/d/manifest.json", DATA)
    assert [left["new/root/c/d/manifest.json"] for left in both(model)] == [DATA, DATA]


def test_what_is_deleted_stays_deleted_and_goes_before_what_is_deleted_later(
    tmp_path: Path, disk: Disk
) -> None:
    commit(LocalStore(tmp_path / "run"))
    model = disk(whole_or_absent)
    store = LocalStore(tmp_path / "run", calls=model)
    store.delete(MANIFEST)
    store.delete(DATA_NAME)
    for left in both(model):
        assert left == {OLD: DATA}


def test_an_aborted_object_never_comes_back_as_something_else(tmp_path: Path, disk: Disk) -> None:
    model = disk()
    store = LocalStore(tmp_path / "run", calls=model)
    with store.open_data("d/data") as writer:
        writer.write(DATA)
    for left in both(model):
        assert left.get("run/d/data", b"") == b""


@pytest.mark.parametrize("same_store", [True, False])
def test_a_repeat_after_a_failed_sync_syncs_all_that_is_needed(
    tmp_path: Path, disk: Disk, same_store: bool
) -> None:
    """Directories that the failed attempt made are found by the repeat, and not yet durable."""
    for nth in itertools.count(1):
        root = f"root{nth}/x"
        model = disk()
        calls = FaultyOs(nth, failing(errno.EIO), only=["fsync"], under=model)
        store = LocalStore(tmp_path / root, calls=calls)
        doubt = False
        try:
            store.create("a/b/c", DATA)
        except CommitUnknownError:
            doubt = True
        except StorageError:
            pass
        if calls.struck:
            store = store if same_store else LocalStore(tmp_path / root, calls=model)
            if doubt:
                with pytest.raises(ExistsError):
                    store.create("a/b/c", DATA)
                store.sync("a/b/c")
            else:
                store.create("a/b/c", DATA)
        assert [left[f"{root}/a/b/c"] for left in both(model)] == [DATA, DATA]
        if not calls.struck:
            assert nth > 6
            return


def test_what_another_process_made_and_never_synced_becomes_durable_before_it_is_relied_on(
    tmp_path: Path, disk: Disk
) -> None:
    model = disk()
    dead = LocalStore(tmp_path / "run", calls=lacking(errno.EINVAL, "fsync", under=model))
    dead.create("a/b/c", DATA)
    assert both(model)[0] == {OLD: DATA}
    LocalStore(tmp_path / "run", calls=model).sync("a/b/c")
    assert [left["run/a/b/c"] for left in both(model)] == [DATA, DATA]


def test_a_directory_that_was_removed_and_is_made_anew_is_synced_anew(
    tmp_path: Path, disk: Disk
) -> None:
    model = disk()
    store = LocalStore(tmp_path / "run", calls=model)
    store.create("d/a", b"first")
    shutil.rmtree(tmp_path / "run" / "d")
    store.create("d/a", b"second")
    assert [left["run/d/a"] for left in both(model)] == [b"second", b"second"]


class NeverSynced(ForgetfulDisk):
    """The same disk under a store that forgets to sync."""

    def fsync(self, fd: int) -> None:
        """Does nothing."""


class FilesNeverSynced(ForgetfulDisk):
    """The same disk under a store that syncs directories only."""

    def fsync(self, fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").is_dir():
            super().fsync(fd)


@pytest.mark.parametrize("kind", [NeverSynced, FilesNeverSynced])
def test_the_model_finds_a_store_that_forgets_to_sync(
    tmp_path: Path, disk: Disk, kind: type[ForgetfulDisk]
) -> None:
    model = disk(whole_or_absent, kind)
    with pytest.raises(AssertionError):
        commit(LocalStore(tmp_path / "run", calls=model))
