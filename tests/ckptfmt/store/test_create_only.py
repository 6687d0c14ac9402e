"""Create-only: the chain of means, and what is known after a call whose reply is in doubt."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from ckptfmt.errors import (
    CapabilityError,
    CkptError,
    CommitUnknownError,
    ExistsError,
    StorageFailedError,
    TransientError,
)
from ckptfmt.store import LocalStore
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.testing.os_faults import FaultyOs, RecordingOs, failing, lacking

P = ParamSpec("P")
R = TypeVar("R")

LINK_LACKING = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)

# What removes a link from under both means: the first call of either is the trial.
MOVES = {"link": (), "rename_noreplace": ("link",)}


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


class Exchanged(OsCalls):
    """A system to which the faults come once the store has been tried out."""

    def __init__(self, under: OsCalls) -> None:
        self.under = under

    def call(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return self.under.call(name, function, *args, **kwargs)


def used_store(root: Path, faults: FaultyOs, under: OsCalls) -> LocalStore:
    """A store that has worked on ``under``, and meets ``faults`` from now on."""
    calls = Exchanged(under)
    store = LocalStore(root, calls=calls, allow_o_excl=True)
    store.create("first", b"")
    calls.under = faults
    return store


def store_on(root: Path, move: str, number: int, **how: object) -> tuple[LocalStore, FaultyOs]:
    """A store whose real ``move``, the second one, is struck with this errno."""
    under = lacking(errno.EPERM, *MOVES[move])
    only = how.pop("only", (move,))
    calls = FaultyOs(2, failing(number), only=only, under=under, **how)  # type: ignore[arg-type]
    return LocalStore(root, calls=calls), calls


@pytest.mark.parametrize("number", LINK_LACKING)
def test_without_hard_links_a_rename_that_never_replaces_takes_over(
    tmp_path: Path, number: int
) -> None:
    store = LocalStore(tmp_path, calls=lacking(number, "link"))
    store.create("a", b"1")
    with pytest.raises(ExistsError):
        store.create("a", b"2")
    found = store.capabilities()
    assert (found.create_if_absent, found.atomic_publish, found.durable) == (True, True, True)
    assert "RENAME_NOREPLACE" in found.how
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
@pytest.mark.parametrize("use", ["create", "open_data"])
def test_without_either_the_store_is_refused_before_anything_is_written(
    tmp_path: Path, use: str, number: int
) -> None:
    store = LocalStore(tmp_path / "run", calls=lacking(number, "link", "rename_noreplace"))
    with pytest.raises(CapabilityError, match="allow_o_excl=True") as raised:
        store.create("d/a", b"1") if use == "create" else store.open_data("d/a")
    assert str(tmp_path) in str(raised.value)
    assert names(tmp_path) == []
    (tmp_path / "run").mkdir()
    assert not store.capabilities().create_if_absent


def test_exclusive_creation_is_used_where_it_is_allowed_and_nothing_better_exists(
    tmp_path: Path,
) -> None:
    store = LocalStore(
        tmp_path, allow_o_excl=True, calls=lacking(errno.EPERM, "link", "rename_noreplace")
    )
    found = store.capabilities()
    assert (found.create_if_absent, found.atomic_publish) == (True, False)
    assert "O_EXCL" in found.how
    assert LocalStore(tmp_path, allow_o_excl=True).capabilities().how == "link(2)"


def test_a_file_system_is_tried_once_for_each_store(tmp_path: Path) -> None:
    calls = RecordingOs()
    store = LocalStore(tmp_path, calls=calls)
    for n in range(3):
        store.create(f"d{n}/a", b"1")
    store.capabilities()
    assert calls.names.count("link") == 1 + 3


def test_content_is_synced_before_it_gets_its_name_and_the_name_after(tmp_path: Path) -> None:
    """S41, S43."""
    calls = RecordingOs()
    store = LocalStore(tmp_path, calls=calls)
    store.create("first", b"")
    calls.names.clear()
    store.create("a", b"1")
    assert [name for name in calls.names if name in ("write", "fsync", "link", "unlink")] == [
        "write", "fsync", "link", "fsync", "unlink",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO, errno.ETIMEDOUT])
@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_worked_and_was_reported_as_failed_is_a_success(
    tmp_path: Path, move: str, number: int
) -> None:
    """S18, as a network file system that repeats a request would have it."""
    store, calls = store_on(tmp_path, move, number, after=True)
    store.create("a", b"1")
    assert calls.struck == move
    assert (names(tmp_path), store.read_small("a", 1)) == (["a"], b"1")


@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST])
@pytest.mark.parametrize("move", MOVES)
def test_a_failed_move_beside_the_file_of_another_is_a_conflict(
    tmp_path: Path, move: str, number: int
) -> None:
    store, _ = store_on(tmp_path, move, number)
    (tmp_path / "a").write_bytes(b"theirs")
    with pytest.raises(ExistsError) as raised:
        store.create("a", b"theirs")
    assert raised.value.location.file == "a"
    assert (names(tmp_path), store.read_small("a", 6)) == (["a"], b"theirs")


@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_failed_for_sure_created_nothing_and_can_be_repeated(
    tmp_path: Path, move: str
) -> None:
    """S5."""
    store, _ = store_on(tmp_path, move, errno.EACCES)
    with pytest.raises(StorageFailedError, match="EACCES"):
        store.create("a", b"1")
    assert names(tmp_path) == []
    store.create("a", b"1")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("move", MOVES)
def test_a_name_that_became_free_again_is_worth_a_repeat(tmp_path: Path, move: str) -> None:
    store, _ = store_on(tmp_path, move, errno.EEXIST)
    with pytest.raises(TransientError):
        store.create("a", b"1")
    store.create("a", b"1")


@pytest.mark.parametrize("after", [False, True])
def test_what_cannot_be_looked_at_is_unknown(tmp_path: Path, after: bool) -> None:
    calls = FaultyOs(2, failing(errno.EIO), after=after, lasting=True, only=("link", "stat"))
    with pytest.raises(CommitUnknownError, match="EIO") as raised:
        LocalStore(tmp_path, calls=calls).create("a", b"1")
    assert raised.value.location.file == "a"
    assert names(tmp_path) == (["a"] if after else [])


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.EIO, CommitUnknownError), (errno.EROFS, StorageFailedError)],
)
def test_a_late_request_is_reckoned_with_while_the_temporary_name_stands(
    tmp_path: Path, number: int, expected: type[CkptError]
) -> None:
    """No answer came, and the name that a late link would need cannot be removed."""
    calls = FaultyOs(1, failing(number), only=("link", "unlink"), lasting=True)
    store = used_store(tmp_path, calls, OsCalls())
    with pytest.raises(expected):
        store.create("a", b"1")
    assert "a" not in names(tmp_path)


def test_a_name_whose_directory_cannot_be_synced_is_in_doubt_until_it_is(tmp_path: Path) -> None:
    store = used_store(tmp_path, FaultyOs(2, failing(errno.EIO), only=("fsync",)), OsCalls())
    with pytest.raises(CommitUnknownError, match="could not be synced"):
        store.create("a", b"1")
    assert names(tmp_path) == ["a", "first"]
    store.sync("a")
    with pytest.raises(ExistsError):
        store.create("a", b"1")
    assert store.read_small("a", 1) == b"1"


class TestExclusive:
    """``O_EXCL`` at the final name: what can still be told."""

    def store(self, root: Path, number: int, *only: str, nth: int = 1, **how: bool) -> LocalStore:
        under = lacking(errno.EPERM, "link", "rename_noreplace")
        faults = FaultyOs(nth, failing(number), only=only, under=under, **how)
        return used_store(root, faults, under)

    def test_what_was_written_in_part_is_removed(self, tmp_path: Path) -> None:
        with pytest.raises(StorageFailedError, match="ENOSPC"):
            self.store(tmp_path, errno.ENOSPC, "write").create("a", b"1")
        assert names(tmp_path) == ["first"]

    def test_a_part_that_cannot_be_removed_is_in_doubt(self, tmp_path: Path) -> None:
        store = self.store(tmp_path, errno.EIO, "write", "unlink", lasting=True)
        with pytest.raises(CommitUnknownError):
            store.create("a", b"1")

    def test_a_failed_opening_never_removes_the_file_of_another(self, tmp_path: Path) -> None:
        """S16.  The first opening is that of the directory."""
        (tmp_path / "a").write_bytes(b"theirs")
        with pytest.raises(CommitUnknownError):
            self.store(tmp_path, errno.EMFILE, "open", nth=2).create("a", b"1")
        assert (tmp_path / "a").read_bytes() == b"theirs"

    def test_a_failed_opening_of_a_free_name_created_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(TransientError):
            self.store(tmp_path, errno.EMFILE, "open", nth=2).create("a", b"1")
        assert names(tmp_path) == ["first"]

    def test_an_opening_whose_reply_was_lost_is_in_doubt(self, tmp_path: Path) -> None:
        with pytest.raises(CommitUnknownError):
            self.store(tmp_path, errno.EIO, "open", nth=2, after=True).create("a", b"1")

    def test_a_name_that_cannot_be_looked_at_is_in_doubt(self, tmp_path: Path) -> None:
        store = self.store(tmp_path, errno.EIO, "open", "stat", nth=2, lasting=True)
        with pytest.raises(CommitUnknownError):
            store.create("a", b"1")
