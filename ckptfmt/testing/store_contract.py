"""What every store must do, as tests.

Derive from :class:`StoreContract` in a test module and give it a store::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore()

The store must be empty and a new one for each test.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Final

import pytest

from ckptfmt.errors import (
    CkptError,
    CorruptError,
    ExistsError,
    MissingError,
    NameRefusedError,
    StateError,
    TornError,
)
from ckptfmt.store.base import Entry, Store

__all__ = ["HOSTILE_NAMES", "StoreContract"]

# Names that would leave the store, hide in it, or mean something else elsewhere.
HOSTILE_NAMES: Final = [
    "", "/", "/a", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b",
    ".hidden", "a/.hidden", "a\\b", "..\\a", "C:", "c:/a", "file:///a", "s3://bucket/a",
    "memory:a", "a\0b", "a\n", "\na", "a\rb", "a\x1bb", "a\x7f", "a\x85", "\ud800", "a" * 256,
    "ä" * 128, "/".join(["a" * 200] * 6),
]  # fmt: skip

_CAP = 1 << 20
_RACERS = 8


def _write(store: Store, name: str, *pieces: bytes) -> None:
    with store.open_data(name) as writer:
        for piece in pieces:
            writer.write(piece)
        writer.finish()


def _names(store: Store, prefix: str = "") -> list[str]:
    return [entry.name for entry in store.entries(prefix)]


def _refuses(use: Callable[[str], object], name: str) -> bool:
    try:
        use(name)
    except NameRefusedError:
        return True
    return False


_USES: Final[dict[str, Callable[[Store, str], object]]] = {
    "create": lambda store, name: store.create(name, b"x"),
    "delete": lambda store, name: store.delete(name),
    "open_data": lambda store, name: store.open_data(name),
    "open_source": lambda store, name: store.open_source(name),
    "read_range": lambda store, name: store.read_range(name, 0, 0),
    "read_small": lambda store, name: store.read_small(name, _CAP),
    "size": lambda store, name: store.size(name),
    "sync": lambda store, name: store.sync(name),
}
_READS: Final = sorted(_USES.keys() - {"create", "open_data"})
_WRITES: Final = ["create", "open_data"]


class StoreContract:
    """The tests; see the module."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store, to be overridden."""
        raise NotImplementedError

    def test_it_says_what_it_can_do_and_by_which_means(self, store: Store) -> None:
        found = store.capabilities()
        assert found == store.capabilities()
        assert found.how
        assert store.label

    def test_trying_out_leaves_nothing_behind(self, store: Store) -> None:
        store.capabilities()
        store.create("a", b"")
        assert store.entries() == [Entry("a", "file")]

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 8192])
    @pytest.mark.parametrize("name", ["a", "a/b/c.json", "Fü/ 1.x", "n" * 200])
    def test_what_was_created_is_read_back(self, store: Store, name: str, data: bytes) -> None:
        store.create(name, data)
        assert store.read_small(name, len(data)) == data
        assert store.read_range(name, 0, len(data)) == data
        assert store.size(name) == len(data)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_bytes_are_taken(
        self, store: Store, kind: Callable[[bytes], bytes | bytearray | memoryview]
    ) -> None:
        store.create("a", kind(b"abc"))
        with store.open_data("b") as writer:
            writer.write(kind(b"def"))
            writer.finish()
        assert store.read_small("a", 3) + store.read_small("b", 3) == b"abcdef"

    @pytest.mark.parametrize("again", [b"first", b"other"])
    def test_a_name_is_created_once_whatever_the_content(self, store: Store, again: bytes) -> None:
        store.create("d/a", b"first")
        with pytest.raises(ExistsError) as raised:
            store.create("d/a", again)
        assert raised.value.location.file == "d/a"
        assert store.read_small("d/a", 5) == b"first"
        assert _names(store, "d") == ["a"]

    def test_of_many_that_create_one_name_one_succeeds(self, store: Store) -> None:
        for turn in range(10):
            assert len(self._race(store, f"race/{turn}")) == 1

    def _race(self, store: Store, name: str) -> list[bytes]:
        won: list[bytes] = []
        lost: list[ExistsError] = []
        barrier = threading.Barrier(_RACERS)

        def run(mine: bytes) -> None:
            barrier.wait()
            try:
                store.create(name, mine)
            except ExistsError as error:
                lost.append(error)
            else:
                won.append(mine)

        racers = [threading.Thread(target=run, args=(b"%d" % n * 1000,)) for n in range(_RACERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(won) + len(lost) == _RACERS
        assert [store.read_small(name, _CAP)] == won
        return won

    @pytest.mark.parametrize("use", _READS)
    @pytest.mark.parametrize("name", ["a", "d/a", "no/such/a"])
    def test_what_is_not_there_is_missing(self, store: Store, use: str, name: str) -> None:
        store.create("d/b", b"")
        with pytest.raises(MissingError) as raised:
            _USES[use](store, name)
        assert raised.value.location.file == name

    @pytest.mark.parametrize(
        ("offset", "size_bytes"), [(0, 0), (0, 10), (0, 3), (4, 6), (9, 1), (10, 0)]
    )
    def test_a_range_is_read_exactly(self, store: Store, offset: int, size_bytes: int) -> None:
        store.create("a", b"0123456789")
        wanted = b"0123456789"[offset : offset + size_bytes]
        assert store.read_range("a", offset, size_bytes) == wanted
        with store.open_source("a") as source:
            assert (source.name, source.size_bytes) == ("a", 10)
            assert source.read_at(offset, size_bytes) == wanted

    @pytest.mark.parametrize(
        ("offset", "size_bytes"), [(0, 11), (10, 1), (11, 0), (1 << 62, 1), (0, 1 << 62)]
    )
    def test_a_range_past_the_end_is_torn(self, store: Store, offset: int, size_bytes: int) -> None:
        store.create("a", b"0123456789")
        with pytest.raises(TornError) as raised:
            store.read_range("a", offset, size_bytes)
        assert (raised.value.location.file, raised.value.location.offset) == ("a", offset)

    def test_a_small_object_past_its_cap_is_corrupt(self, store: Store) -> None:
        store.create("a", b"0123456789")
        with pytest.raises(CorruptError, match=r"10 bytes, at most 9"):
            store.read_small("a", 9)

    def test_a_closed_source_reads_no_more(self, store: Store) -> None:
        store.create("a", b"x")
        source = store.open_source("a")
        source.close()
        source.close()
        with pytest.raises(StateError):
            source.read_at(0, 1)

    def test_an_open_source_never_shows_another_object(self, store: Store) -> None:
        """S20: deleted and created anew under a reader."""
        store.create("a", b"old!")
        with store.open_source("a") as source:
            store.delete("a")
            store.create("a", b"new!")
            with contextlib.suppress(CkptError):
                assert source.read_at(0, 4) == b"old!"
        assert store.read_small("a", 4) == b"new!"

    @pytest.mark.parametrize("use", _USES)
    def test_hostile_names_are_refused(self, store: Store, use: str) -> None:
        """S59, S61."""
        taken = functools.partial(_USES[use], store)
        assert [name for name in HOSTILE_NAMES if not _refuses(taken, name)] == []
        store.create("a", b"")
        assert _names(store) == ["a"]

    def test_hostile_prefixes_are_refused(self, store: Store) -> None:
        taken = [name for name in HOSTILE_NAMES if name and not _refuses(store.entries, name)]
        assert taken == []

    def test_a_data_object_is_written_in_pieces(self, store: Store) -> None:
        with store.open_data("d/a") as writer:
            writer.write(b"one ")
            writer.flush()
            writer.write(b"")
            writer.write(b"two")
            assert writer.size_bytes == 7
            writer.finish()
        assert store.read_small("d/a", 7) == b"one two"
        assert _names(store, "d") == ["a"]

    def test_a_data_object_may_be_empty(self, store: Store) -> None:
        _write(store, "a")
        assert store.size("a") == 0

    def test_an_exception_never_publishes(self, store: Store) -> None:
        """S21."""

        def fail() -> None:
            with store.open_data("d/a") as writer:
                writer.write(b"half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with pytest.raises(MissingError):
            store.size("d/a")
        assert _names(store, "d") == []

    def test_leaving_without_finish_never_publishes(self, store: Store) -> None:
        with store.open_data("a") as writer:
            writer.write(b"half")
        assert _names(store) == []

    def test_abort_can_be_repeated_and_frees_the_name(self, store: Store) -> None:
        writer = store.open_data("a")
        writer.abort()
        writer.abort()
        _write(store, "a", b"x")
        assert store.read_small("a", 1) == b"x"

    @pytest.mark.parametrize("end", ["abort", "finish"])
    def test_a_data_object_that_ended_takes_no_more(self, store: Store, end: str) -> None:
        writer = store.open_data("a")
        writer.write(b"x")
        getattr(writer, end)()
        with pytest.raises(StateError):
            writer.write(b"y")
        with pytest.raises(StateError):
            writer.flush()
        with pytest.raises(StateError):
            writer.finish()
        writer.abort()
        assert _names(store) == (["a"] if end == "finish" else [])

    @pytest.mark.parametrize("use", _WRITES)
    def test_data_objects_and_small_ones_share_one_space_of_names(
        self, store: Store, use: str
    ) -> None:
        _write(store, "data", b"x")
        store.create("small", b"x")
        for name in ("data", "small"):
            with pytest.raises(ExistsError):
                _USES[use](store, name)
            assert store.read_small(name, 1) == b"x"

    def test_entries_are_the_immediate_children_in_order(self, store: Store) -> None:
        assert store.entries("d") == []
        for name in ("d/z", "d/e/f/g", "d/a", "top"):
            store.create(name, b"")
        assert store.entries() == [Entry("d", "dir"), Entry("top", "file")]
        wanted = [Entry("a", "file"), Entry("e", "dir"), Entry("z", "file")]
        assert store.entries("d") == wanted
        assert store.entries("d/e/none") == []

    def test_entries_are_never_stale(self, store: Store) -> None:
        """S26."""
        for name in ("a", "b"):
            store.create(name, b"")
            assert _names(store)[-1] == name
        store.delete("a")
        assert _names(store) == ["b"]

    def test_delete_removes_one_object_and_frees_its_name(self, store: Store) -> None:
        store.create("d/a", b"1")
        store.create("d/ab", b"2")
        store.delete("d/a")
        assert _names(store, "d") == ["ab"]
        with pytest.raises(MissingError):
            store.delete("d/a")
        store.create("d/a", b"3")
        assert store.read_small("d/a", 1) == b"3"

    def test_sync_accepts_what_exists(self, store: Store) -> None:
        store.create("d/a", b"1")
        store.sync("d/a")
        assert store.read_small("d/a", 1) == b"1"

    @pytest.mark.parametrize("use", _USES)
    def test_a_file_is_no_directory(self, store: Store, use: str) -> None:
        store.create("a", b"1")
        with pytest.raises(CorruptError) as raised:
            _USES[use](store, "a/b")
        assert raised.value.location.file == "a/b"
        with pytest.raises(CorruptError):
            store.entries("a")
        assert store.read_small("a", 1) == b"1"

    @pytest.mark.parametrize("use", _USES)
    def test_a_directory_is_no_file(self, store: Store, use: str) -> None:
        store.create("d/a", b"1")
        with pytest.raises(ExistsError if use in _WRITES else CorruptError):
            _USES[use](store, "d")
        assert _names(store, "d") == ["a"]
