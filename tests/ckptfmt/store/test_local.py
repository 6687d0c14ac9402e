"""The local store: paths, modes, links, messages, durability that is not to be had."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import pickle
import resource
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptfmt.errors import (
    CapabilityError,
    CorruptError,
    ExistsError,
    MissingError,
    NameRefusedError,
    StateError,
    StorageFailedError,
    TornError,
    TransientError,
)
from ckptfmt.store import Entry, LocalStore
from ckptfmt.store.base import BytesLike
from ckptfmt.store.local import SYNC_BYTES
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.testing.os_faults import FaultyOs, RecordingOs, failing, forked, lacking

USES: dict[str, Callable[[LocalStore, str], object]] = {
    "create": lambda store, name: store.create(name, b"new"),
    "delete": lambda store, name: store.delete(name),
    "open_data": lambda store, name: store.open_data(name),
    "open_source": lambda store, name: store.open_source(name),
    "read_small": lambda store, name: store.read_small(name, 100),
    "size": lambda store, name: store.size(name),
    "sync": lambda store, name: store.sync(name),
}
WRITES = ("create", "open_data")


def files(root: Path) -> dict[str, bytes]:
    """Everything below a directory, links not followed."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


# The root


def test_the_root_and_what_leads_there_is_made_by_the_first_write_only(tmp_path: Path) -> None:
    root = tmp_path / "runs" / "7"
    store = LocalStore(root)
    for use in ("delete", "open_source", "size", "sync"):
        with pytest.raises(MissingError):
            USES[use](store, "a/b")
    assert files(tmp_path) == {}
    assert not root.parent.exists()
    store.create("a/b", b"x")
    assert files(root) == {"a/b": b"x"}


def test_listing_tells_a_missing_store_from_an_empty_directory(tmp_path: Path) -> None:
    """S52."""
    store = LocalStore(tmp_path / "none")
    for prefix in ("", "a"):
        with pytest.raises(MissingError):
            store.entries(prefix)
    assert LocalStore(tmp_path).entries("a") == []


@pytest.mark.parametrize("root", ["", "a\0b"])
def test_a_root_that_is_no_path_is_refused(root: str) -> None:
    with pytest.raises(NameRefusedError):
        LocalStore(root)


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    store.create("a", b"x")
    assert files(tmp_path) == {"run/a": b"x"}


def test_symbolic_links_in_the_path_that_the_caller_gave_are_followed(tmp_path: Path) -> None:
    """S62."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for root in ("link", "link/run"):
        store = LocalStore(tmp_path / root)
        store.create("a", b"x")
        assert store.read_small("a", 1) == b"x"
    assert files(tmp_path / "real") == {"a": b"x", "run/a": b"x"}


def test_the_store_is_named_in_ascii(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "\x1b[31mü")
    assert store.label.isascii()
    assert "\x1b" not in repr(store)
    with pytest.raises(MissingError) as raised:
        store.size("a")
    assert "\x1b" not in str(raised.value)


# What is planted below it


@pytest.mark.parametrize("target", ["outside", "dangling", "/"])
@pytest.mark.parametrize("level", ["kind", "kind/instance", "kind/instance/file"])
@pytest.mark.parametrize("use", USES)
def test_a_planted_symbolic_link_is_never_followed(
    tmp_path: Path, use: str, level: str, target: str
) -> None:
    """S62."""
    outside = tmp_path / "outside"
    (outside / "instance").mkdir(parents=True)
    (outside / "file").write_bytes(b"theirs")
    (outside / "instance" / "file").write_bytes(b"theirs")
    root = tmp_path / "root"
    link = root / level
    link.parent.mkdir(parents=True)
    is_file = level.endswith("file")
    link.symlink_to(target if target == "/" else tmp_path / target / ("file" if is_file else ""))
    before = files(tmp_path)
    expected = ExistsError if is_file and use in WRITES else CorruptError
    with pytest.raises(expected) as raised:
        USES[use](LocalStore(root), "kind/instance/file")
    assert raised.value.location.file == "kind/instance/file"
    assert files(tmp_path) == before
    assert link.is_symlink()


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir, "socket"])
@pytest.mark.parametrize("use", USES)
def test_what_is_no_file_is_neither_opened_nor_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, plant: Callable[[str], None] | str
) -> None:
    """A planted pipe does not stop the process, whoever is at its other end."""
    monkeypatch.chdir(tmp_path)
    if callable(plant):
        plant("a")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("a")
    before = (tmp_path / "a").lstat()
    failures = (CorruptError, StorageFailedError)
    with pytest.raises(ExistsError if use in WRITES else failures):
        USES[use](LocalStore(tmp_path), "a")
    assert (tmp_path / "a").lstat().st_ino == before.st_ino


def test_names_of_others_are_listed_as_they_are(tmp_path: Path) -> None:
    """S53."""
    (tmp_path / ".hidden").write_bytes(b"")
    (tmp_path / "a:b").mkdir()
    (tmp_path / "link").symlink_to(".hidden")
    os.mkfifo(tmp_path / "pipe")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"")
    assert LocalStore(tmp_path).entries() == [
        Entry(".hidden", "file"),
        Entry("a:b", "dir"),
        Entry("link", "other"),
        Entry("pipe", "other"),
        Entry("\udcff", "file"),
    ]


def test_names_that_differ_in_case_are_two_names_to_the_store(tmp_path: Path) -> None:
    """S60 is settled where participants are compared, not here."""
    store = LocalStore(tmp_path)
    store.create("Foo/a", b"1")
    store.create("foo/a", b"2")
    assert store.read_small("Foo/a", 1) + store.read_small("foo/a", 1) == b"12"


# Modes


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o027, 0o077])
def test_modes_follow_the_umask_and_leave_it_alone(tmp_path: Path, umask: int) -> None:
    """S44."""
    store = LocalStore(tmp_path / "run")
    before = os.umask(umask)
    try:
        store.create("d/small", b"")
        with store.open_data("d/data") as writer:
            writer.finish()
    finally:
        assert os.umask(before) == umask
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
    }
    assert modes == {
        "run": 0o777 & ~umask,
        "run/d": 0o777 & ~umask,
        "run/d/small": 0o666 & ~umask,
        "run/d/data": 0o666 & ~umask,
    }


def test_the_group_of_a_setgid_directory_is_inherited(tmp_path: Path) -> None:
    """S44."""
    if os.geteuid() == 0:
        os.chown(tmp_path, -1, 12345)
    tmp_path.chmod(0o2775)
    LocalStore(tmp_path).create("d/e/a", b"")
    group = tmp_path.stat().st_gid
    assert {path.stat().st_gid for path in tmp_path.rglob("*")} == {group}
    assert all((tmp_path / d).stat().st_mode & stat.S_ISGID for d in ("d", "d/e"))


# Failures


class ShortWrites(OsCalls):
    """A system that takes at most three bytes at a time."""

    def write(self, fd: int, data: BytesLike) -> int:
        return super().write(fd, data[:3])


def test_short_writes_lose_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, calls=ShortWrites())
    store.create("a", b"0123456789")
    with store.open_data("b") as writer:
        writer.write(b"0123456789")
        writer.finish()
    assert files(tmp_path) == {"a": b"0123456789", "b": b"0123456789"}


class TakesNothing(OsCalls):
    """A broken file system."""

    def write(self, fd: int, data: BytesLike) -> int:
        return 0


def test_a_file_system_that_takes_nothing_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    with pytest.raises(StorageFailedError, match="EIO"):
        LocalStore(tmp_path, calls=TakesNothing()).create("a", b"x")
    assert files(tmp_path) == {}


class ShortReads(OsCalls):
    """A system that gives at most three bytes at a time."""

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return super().pread(fd, min(size, 3), offset)


def test_short_reads_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert LocalStore(tmp_path, calls=ShortReads()).read_range("a", 1, 8) == b"12345678"


def test_a_file_that_is_cut_while_it_is_read_is_torn(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    with LocalStore(tmp_path).open_source("a") as source:
        os.truncate(tmp_path / "a", 4)
        with pytest.raises(TornError, match="4 bytes, and 6 from 2"):
            source.read_at(2, 6)


def test_a_full_disk_is_reported_with_what_was_needed_and_leaves_nothing(tmp_path: Path) -> None:
    """S42, S5."""
    store = LocalStore(tmp_path)
    store.create("before", b"kept")
    calls = FaultyOs(1, failing(errno.ENOSPC), lasting=True, only=["write"])
    full = LocalStore(tmp_path, calls=calls)
    with pytest.raises(StorageFailedError, match="No space left on device") as raised:
        full.create("m", b"x" * 1234)
    for part in ("create", str(tmp_path / "m"), "ENOSPC", "1,234 bytes", "free space"):
        assert part in str(raised.value)
    assert isinstance(raised.value.__cause__, OSError)
    writer = full.open_data("data")
    with pytest.raises(StorageFailedError, match="write at byte 0 of") as raised:
        writer.write(b"x" * 4321)
    assert "4,321 bytes" in str(raised.value)
    assert files(tmp_path) == {"before": b"kept"}
    store.create("m", b"x")
    assert store.read_small("m", 1) == b"x"


def test_a_real_limit_cuts_a_write_short_and_leaves_nothing(tmp_path: Path) -> None:
    """EFBIG from the kernel, after a part was taken."""

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        store = LocalStore(tmp_path)
        with pytest.raises(StorageFailedError, match=r"EFBIG.*10,000 bytes.*ulimit -f"):
            store.create("m", b"x" * 10_000)
        writer = store.open_data("data")
        writer.write(b"x" * 4000)
        with pytest.raises(StorageFailedError, match="write at byte 4,000 of"):
            writer.write(b"x" * 1000)
        assert files(tmp_path) == {}

    assert forked(write) == 0


def test_more_open_files_than_permitted_is_transient(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, calls=FaultyOs(1, failing(errno.EMFILE)))
    with pytest.raises(TransientError, match="EMFILE"):
        store.create("a", b"x")
    store.create("a", b"x")


def test_a_file_that_another_process_wrote_to_is_not_finished(tmp_path: Path) -> None:
    writer = LocalStore(tmp_path).open_data("a")
    writer.write(b"ours")
    with (tmp_path / "a").open("ab") as theirs:
        theirs.write(b"theirs")
    with pytest.raises(StorageFailedError, match="4 bytes were written, and the file has 10"):
        writer.finish()
    assert files(tmp_path) == {}


def test_a_file_that_somebody_removed_is_not_finished(tmp_path: Path) -> None:
    writer = LocalStore(tmp_path).open_data("d/a")
    writer.write(b"ours")
    (tmp_path / "d/a").unlink()
    with pytest.raises(StorageFailedError, match="ENOENT"):
        writer.finish()
    with pytest.raises(StateError):
        writer.finish()


def test_a_failed_exclusive_creation_is_one_error_and_nothing_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """S37."""
    store = LocalStore(tmp_path)
    store.create("a", b"1")
    for use in WRITES:
        with pytest.raises(ExistsError):
            USES[use](store, "a")
    gc.collect()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_cannot_sync_is_used_and_said_not_to_be_durable(
    tmp_path: Path, number: int
) -> None:
    """S35."""
    store = LocalStore(tmp_path, calls=lacking(number, "fsync"))
    store.create("a", b"1")
    with store.open_data("b") as writer:
        writer.finish()
    store.sync("a")
    store.delete("a")
    assert not store.capabilities().durable
    assert "cannot be synced" in store.capabilities().how
    assert LocalStore(tmp_path).capabilities().durable


def test_a_large_object_goes_to_the_disk_while_it_is_written(tmp_path: Path) -> None:
    """So that the end does not wait for all of it; a small one is synced once."""
    calls = RecordingOs()
    with LocalStore(tmp_path, calls=calls).open_data("a") as writer:
        calls.names.clear()
        writer.write(b"small")
        assert "fsync" not in calls.names
        for _ in range(5):
            writer.write(bytes(SYNC_BYTES // 2))
        assert calls.names.count("fsync") == 2
        writer.finish()
    assert (tmp_path / "a").stat().st_size == 5 + 5 * (SYNC_BYTES // 2)


# Descriptors and processes


def open_descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


def test_no_descriptor_outlives_its_use(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    before = open_descriptors()
    store.create("d/a", b"1")
    with store.open_data("d/b") as writer:
        writer.write(b"2")
        writer.finish()
    store.open_data("d/c").abort()
    for use in sorted(USES):
        for name in ("d", "d/a/b", "d/none", "none/a"):
            try:
                done = USES[use](store, name)
            except (CorruptError, ExistsError, MissingError):
                continue
            if use == "open_data":
                done.abort()  # type: ignore[attr-defined]
    store.entries("d")
    store.open_source("d/a")
    gc.collect()
    assert open_descriptors() == before


def test_the_store_is_used_after_a_fork(tmp_path: Path) -> None:
    """S33."""
    store = LocalStore(tmp_path)
    store.create("parent", b"1")
    assert forked(lambda: store.create("d/child", b"2")) == 0
    assert store.read_small("d/child", 1) == b"2"


class Linkless(OsCalls):
    """A file system without hard links and the like."""

    def link(self, source: str, target: str, *, dir_fd: int) -> None:
        raise PermissionError(errno.EPERM, "none here")

    rename_noreplace = link


def test_a_pickled_store_has_its_options_and_finds_out_anew_what_is_there(tmp_path: Path) -> None:
    """S36."""
    store = LocalStore(tmp_path, allow_o_excl=True, calls=Linkless())
    assert not store.capabilities().atomic_publish
    store.create("d/a", b"1")
    again = pickle.loads(pickle.dumps(store))
    assert (again.root, again.label) == (store.root, store.label)
    assert not again.capabilities().atomic_publish
    again.create("d/b", b"2")
    assert files(tmp_path) == {"d/a": b"1", "d/b": b"2"}
    refusing = pickle.loads(pickle.dumps(LocalStore(tmp_path, calls=Linkless())))
    with pytest.raises(CapabilityError):
        refusing.create("d/c", b"3")


def test_a_child_of_fork_neither_goes_on_with_a_data_object_nor_removes_it(tmp_path: Path) -> None:
    """S33: it is its parent's."""
    writer = LocalStore(tmp_path).open_data("d/a")
    writer.write(b"1")

    def child() -> None:
        with writer, pytest.raises(StateError, match="parent"):
            writer.write(b"2")

    assert forked(child) == 0
    writer.write(b"2")
    writer.finish()
    assert files(tmp_path) == {"d/a": b"12"}


def test_the_store_is_used_from_a_running_event_loop_and_its_threads(tmp_path: Path) -> None:
    """S34."""
    store = LocalStore(tmp_path)

    async def run() -> None:
        store.create("a", b"1")
        work = [asyncio.to_thread(store.create, f"d/{n}", b"2") for n in range(20)]
        await asyncio.gather(*work)

    asyncio.run(run())
    assert len(store.entries("d")) == 20


def test_a_flushed_data_object_can_be_read_by_others_before_it_is_finished(
    tmp_path: Path,
) -> None:
    """F5: on a local disk."""
    writer = LocalStore(tmp_path).open_data("a")
    writer.write(b"so far")
    writer.flush()
    assert LocalStore(tmp_path).read_small("a", 100) == b"so far"
    writer.abort()


def test_reading_makes_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    calls = RecordingOs()
    store = LocalStore(tmp_path, calls=calls)
    store.read_small("a", 1)
    store.size("a")
    store.entries()
    assert set(calls.names) == {"open", "close", "fstat", "stat", "pread", "scandir"}


def test_reading_asks_for_no_right_to_list() -> None:
    """S29: one that may enter a directory, but not list it, reads what it can name."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "run")
        LocalStore(root).create("d/a", b"1")
        Path(folder).chmod(0o711)
        (root / "d").chmod(0o111)
        root.chmod(0o111)

        def read() -> None:
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            store = LocalStore(root)
            assert store.read_small("d/a", 1) == b"1"
            with pytest.raises(StorageFailedError, match="EACCES"):
                store.entries("d")

        status = forked(read)
        root.chmod(0o755)
        (root / "d").chmod(0o755)
    assert status == 0
