"""Every call to the operating system fails, once or from then on; then the process dies there.

The sweeps need no list of calls: they strike the first, the second, ... until an
operation ends without having been struck.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptfmt.errors import CkptError, CommitUnknownError, ExistsError, MissingError, StorageError
from ckptfmt.store import LocalStore
from ckptfmt.store.names import final_name
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.testing.os_faults import DEATH, FaultyOs, die, failing, forked, lacking

NUMBERS = [errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EACCES]
NAME = "kind/instance/manifest.json"
DATA = b"content " * 100

# The calls of the two means to give a file its name; neither is to be struck by accident.
MEANS: dict[str, Callable[[], OsCalls]] = {
    "link": OsCalls,
    "rename": lambda: lacking(errno.EPERM, "link"),
}


def runs(tmp_path: Path, strike: Callable[[int], FaultyOs]) -> Iterator[tuple[Path, FaultyOs]]:
    """A new root with one object in it, and a system that strikes one call later each time."""
    for nth in itertools.count(1):
        root = tmp_path / str(nth) / "run"
        root.mkdir(parents=True)
        (root / "before").write_bytes(b"kept")
        calls = strike(nth)
        yield root, calls
        assert (root / "before").read_bytes() == b"kept"
        if calls.struck is None:
            assert nth > 5
            return
    raise AssertionError("unreachable")


def mended(root: Path, store: LocalStore, calls: FaultyOs) -> LocalStore:
    """The same store, whose fault has passed; a new one if that is still to come."""
    return store if calls.struck else LocalStore(root)


def leftovers(root: Path) -> list[str]:
    """Temporary files below a directory."""
    return [path.name for path in root.rglob("*") if path.is_file() and final_name(path.name)]


def content(root: Path, name: str = NAME) -> bytes | None:
    """What an untroubled process reads: the whole object, or ``None`` if it is not there."""
    try:
        return LocalStore(root).read_small(name, 1 << 20)
    except MissingError:
        return None


def write_data(store: LocalStore, name: str) -> None:
    """A data object in two pieces."""
    with store.open_data(name) as writer:
        writer.write(DATA[:100])
        writer.flush()
        writer.write(DATA[100:])
        writer.finish()


def outcome(act: Callable[..., object], *args: object) -> CkptError | None:
    """The error that ``act`` ended with.  Any other than ours is a failure of the test."""
    try:
        act(*args)
    except CkptError as error:
        return error
    return None


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_a_creation_in_which_a_call_fails(
    tmp_path: Path, number: int, after: bool, means: str
) -> None:
    """S5, S42."""
    held = descriptors()
    for root, calls in runs(
        tmp_path, lambda nth: FaultyOs(nth, failing(number), after=after, under=MEANS[means]())
    ):
        store = LocalStore(root, calls=calls)
        error = outcome(store.create, NAME, DATA)
        there = content(root)
        assert there in (None, DATA)
        if isinstance(error, CommitUnknownError):
            assert (calls.struck, there) == ("fsync", DATA)
        elif error is not None:
            assert isinstance(error, StorageError)
            assert not isinstance(error, ExistsError)
            assert there is None
            assert errno.errorcode[number] in str(error)
            assert str(root) in str(error)
        else:
            assert there == DATA
        assert error is None or error.location.file == NAME
        if calls.struck != "unlink":
            assert leftovers(root) == []
        assert after or descriptors() == held
        repeat(mended(root, store, calls), there)


def repeat(store: LocalStore, there: bytes | None) -> None:
    """The same call again, on the same store, once the cause is gone."""
    error = outcome(store.create, NAME, DATA)
    if there is None:
        assert error is None
    else:
        assert isinstance(error, ExistsError)
        store.sync(NAME)
    assert store.read_small(NAME, 1 << 20) == DATA


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_creation_from_some_call_on_nothing_works(
    tmp_path: Path, number: int, means: str
) -> None:
    for root, calls in runs(
        tmp_path, lambda nth: FaultyOs(nth, failing(number), lasting=True, under=MEANS[means]())
    ):
        error = outcome(LocalStore(root, calls=calls).create, NAME, DATA)
        there = content(root)
        if error is None:
            assert there == DATA
        elif isinstance(error, CommitUnknownError):
            assert there in (None, DATA)
        else:
            assert there is None
        assert outcome(LocalStore(root).create, NAME, DATA) is None or there == DATA
        assert content(root) == DATA


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_a_data_object_in_which_a_call_fails(tmp_path: Path, number: int, after: bool) -> None:
    """S42: it is gone, and the data can be written under a new name."""
    held = descriptors()
    for root, calls in runs(tmp_path, lambda nth: FaultyOs(nth, failing(number), after=after)):
        store = LocalStore(root, calls=calls)
        error = outcome(write_data, store, "d/data")
        if error is None:
            assert content(root, "d/data") == DATA
        else:
            assert isinstance(error, StorageError)
            assert errno.errorcode[number] in str(error)
            # Of an opening without reply nobody knows whose file it is, so it stays, empty.
            assert content(root, "d/data") in ((None, b"") if calls.struck == "open" else (None,))
        assert after or descriptors() == held
        write_data(mended(root, store, calls), "d/again")
        assert content(root, "d/again") == DATA


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_a_deletion_in_which_a_call_fails(tmp_path: Path, number: int, after: bool) -> None:
    for root, calls in runs(tmp_path, lambda nth: FaultyOs(nth, failing(number), after=after)):
        LocalStore(root).create(NAME, DATA)
        store = LocalStore(root, calls=calls)
        error = outcome(store.delete, NAME)
        there = content(root)
        assert there in (None, DATA)
        assert there is None or error is not None
        assert error is None or isinstance(error, StorageError)
        again = outcome(mended(root, store, calls).delete, NAME)
        assert isinstance(again, MissingError) if there is None else again is None
        assert content(root) is None


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_a_read_in_which_a_call_fails(tmp_path: Path, number: int) -> None:
    """Wrong bytes are never returned, and what failed is not called missing or corrupt."""

    def read(store: LocalStore) -> None:
        assert store.read_small(NAME, 1 << 20) == DATA
        assert store.size(NAME) == len(DATA)
        assert [entry.name for entry in store.entries("kind/instance")] == ["manifest.json"]
        store.sync(NAME)

    held = descriptors()
    for root, calls in runs(tmp_path, lambda nth: FaultyOs(nth, failing(number))):
        LocalStore(root).create(NAME, DATA)
        store = LocalStore(root, calls=calls)
        error = outcome(read, store)
        assert error is None or isinstance(error, StorageError)
        assert descriptors() == held
        read(mended(root, store, calls))


def deaths(
    tmp_path: Path, under: Callable[[], OsCalls], act: Callable[[LocalStore], object]
) -> Iterator[Path]:
    """A root in which a process has died at one call of ``act``, for each of its calls."""
    for nth in itertools.count(1):
        root = tmp_path / str(nth) / "run"
        root.mkdir(parents=True)
        LocalStore(root).create("old/manifest.json", DATA)
        store = LocalStore(root, calls=FaultyOs(nth, die, under=under()))
        status = forked(functools.partial(act, store))
        assert status in (0, DEATH)
        yield root
        if status == 0:
            assert nth > 5
            return


@pytest.mark.parametrize("means", MEANS)
def test_a_process_that_dies_in_a_creation_leaves_all_or_nothing(
    tmp_path: Path, means: str
) -> None:
    """S40: dying before a call is dying after the one before it."""
    seen = set()
    for root in deaths(tmp_path, MEANS[means], lambda store: store.create(NAME, DATA)):
        there = content(root)
        seen.add(there)
        assert there in (None, DATA)
        assert content(root, "old/manifest.json") == DATA
        again = outcome(LocalStore(root).create, NAME, b"next")
        assert isinstance(again, ExistsError) if there else again is None
        assert content(root) == (there or b"next")
        LocalStore(root).create("kind/instance/next", b"next")
    assert seen == {None, DATA}


def test_a_process_that_dies_in_a_data_object_leaves_a_part_that_nobody_names(
    tmp_path: Path,
) -> None:
    """S1, S40."""
    for root in deaths(tmp_path, OsCalls, lambda store: write_data(store, "d/data")):
        there = content(root, "d/data")
        assert there is None or DATA.startswith(there)
        write_data(LocalStore(root), "d/again")
        LocalStore(root).create("d/manifest.json", DATA)
        assert content(root, "d/again") == content(root, "d/manifest.json") == DATA


def test_a_process_that_dies_in_a_deletion_leaves_all_or_nothing(tmp_path: Path) -> None:
    for root in deaths(tmp_path, OsCalls, lambda store: store.delete("old/manifest.json")):
        there = content(root, "old/manifest.json")
        assert there in (None, DATA)
        if there is not None:
            LocalStore(root).delete("old/manifest.json")
        LocalStore(root).create("old/manifest.json", b"next")
        assert content(root, "old/manifest.json") == b"next"


@pytest.mark.parametrize("how", ["link", "rename", "exclusive"])
def test_of_two_processes_that_create_one_name_at_once_one_succeeds(
    tmp_path: Path, how: str
) -> None:
    """S15, S16: two hundred rounds behind a barrier of pipes."""
    rounds = 200
    processes = [Racer(tmp_path, mine, how, rounds) for mine in (b"A" * 5000, b"B" * 5000)]
    for turn in range(rounds):
        for process in processes:
            process.go()
        won = [process.mine for process in processes if process.has_won()]
        assert len(won) == 1
        assert LocalStore(tmp_path).read_small(f"{turn}/manifest.json", 5000) == won[0]
    for process in processes:
        process.end()
    assert leftovers(tmp_path) == []


class Racer:
    """A process that creates the next name whenever it is told to."""

    def __init__(self, root: Path, mine: bytes, how: str, rounds: int) -> None:
        self.mine = mine
        start, self._start = os.pipe()
        self._result, result = os.pipe()
        lacks = {"link": (), "rename": ("link",), "exclusive": ("link", "rename_noreplace")}
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._start)
            try:
                calls = lacking(errno.EPERM, *lacks[how])
                store = LocalStore(root, calls=calls, allow_o_excl=True)
                for turn in range(rounds):
                    os.read(start, 1)
                    error = outcome(store.create, f"{turn}/manifest.json", mine)
                    lost = isinstance(error, ExistsError)
                    os.write(result, b"w" if error is None else b"l" if lost else b"?")
            finally:
                os._exit(0)
        os.close(start)
        os.close(result)

    def go(self) -> None:
        os.write(self._start, b"g")

    def has_won(self) -> bool:
        answer = os.read(self._result, 1)
        assert answer in (b"w", b"l")
        return answer == b"w"

    def end(self) -> None:
        os.close(self._start)
        os.close(self._result)
        assert os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]) == 0
