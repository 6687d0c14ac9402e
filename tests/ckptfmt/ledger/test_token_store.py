"""Complete records: the life of a ledger, conflicts, torn tails, the amortised index."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.errors import (
    ConflictError,
    CorruptError,
    NameRefusedError,
    RetiredError,
    SizeError,
    StateError,
    StorageFailedError,
    UnsupportedError,
    ValueRefusedError,
)
from ckptfmt.ledger.entry import line_digest
from ckptfmt.ledger.limits import INDEX_TAIL_BYTES, LOCK_STRIPES, MAX_BATCH_KEYS
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.store.base import BytesLike
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.testing.os_faults import RecordingOs
from tests.support.ledgers import call_id, child_entry, entry, files


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TokenStore]:
    with TokenStore(tmp_path) as opened:
        yield opened


def state(root: Path, key: str = "r") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / f"{key}.tokens.state.json").read_bytes())
    return found


def fresh(root: Path) -> TokenStore:
    """A store that has seen nothing yet, as another process has."""
    return TokenStore(root)


# Recording


def test_an_entry_is_one_line_of_sorted_compact_json(store: TokenStore, tmp_path: Path) -> None:
    assert store.put(entry("r")) is True
    data = (tmp_path / "r.tokens.jsonl").read_bytes()
    assert data == entry("r").line() + b"\n"
    members = json.loads(data)
    assert list(members) == sorted(members)
    assert b", " not in data
    assert members["schema_version"] == 5


def test_unknown_fields_are_kept(store: TokenStore, tmp_path: Path) -> None:
    store.put(entry("r", extras={"response_id": "resp-1", "": [1]}))
    members = json.loads((tmp_path / "r.tokens.jsonl").read_bytes())
    assert (members["response_id"], members[""]) == ("resp-1", [1])


def test_the_same_bytes_again_change_nothing(store: TokenStore, tmp_path: Path) -> None:
    """L13."""
    store.put(entry("r"))
    before = files(tmp_path)
    assert store.put(entry("r")) is False
    with fresh(tmp_path) as other:
        assert other.put(entry("r")) is False
    assert files(tmp_path) == before


def test_a_repeat_is_synced_for_its_first_writer_may_have_died(
    store: TokenStore, tmp_path: Path
) -> None:
    store.put(entry("r"))
    calls = RecordingOs()
    with TokenStore(tmp_path, calls=calls) as other:
        calls.names.clear()
        assert other.put(entry("r")) is False
    assert calls.names.count("fsync") == 2


def test_other_bytes_for_a_call_mark_the_ledger_and_fail(store: TokenStore, tmp_path: Path) -> None:
    """L13."""
    store.put(entry("r"))
    with pytest.raises(ConflictError, match="call-00000"):
        store.put(entry("r", model="other"))
    assert state(tmp_path)["incomplete"] is True
    assert (tmp_path / "r.tokens.incomplete").read_text() == "call-00000\n"
    assert store.freeze("r").lost == ("call-00000",)
    assert (tmp_path / "r.tokens.jsonl").read_bytes() == entry("r").line() + b"\n"


BROKEN: list[dict[str, Any]] = [
    {"generation_log_probs": [-0.5]},
    {"generation_log_probs": [-0.5, float("nan")]},
    {"generation_log_probs": [-0.5, None]},
    {"prompt_token_ids": [1, -2]},
    {"prompt_token_ids": [1.5]},
    {"token_item_index": 1},
    {"token_item_index": -1},
    {"prompt_is_delta": True},
    {"parent_resolution": "resolved"},
    {"parent_resolution": "unresolved", "parent_call_id": "call-1"},
    {"parent_resolution": "guessed"},
    {"model_call_id": "-cancel"},
    {"model_call_id": ""},
    {"model_call_id": "two\nlines"},
    {"model_call_id": "\ud800"},
    {"schema_version": 0},
    {"schema_version": True},
]


@pytest.mark.parametrize("changes", BROKEN, ids=repr)
def test_a_broken_entry_cannot_be_made_or_read(changes: dict[str, Any]) -> None:
    """L18: what cannot be made cannot be put."""
    with pytest.raises(ValueRefusedError):
        entry("r", **changes)
    members = json.loads(entry("r").line())
    line = json.dumps({**members, **changes}).encode()
    with pytest.raises(CorruptError):
        type(entry("r")).from_line(line)


def test_an_entry_of_a_newer_version_is_refused_by_name(store: TokenStore, tmp_path: Path) -> None:
    """L17."""
    with pytest.raises(UnsupportedError, match="6"):
        entry("r", schema_version=6)
    line = entry("r").line().replace(b'"schema_version":5', b'"schema_version":6')
    path = tmp_path / "r.tokens.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(UnsupportedError, match="6"):
        store.put(entry("r", 1))
    assert path.read_bytes() == line + b"\n"


V1 = {
    "schema_version", "rollout_id", "model_call_id", "model", "prompt_token_ids",
    "generation_token_ids", "generation_log_probs", "routed_experts", "output_items",
    "token_item_index", "created_at",
}  # fmt: skip


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_every_version_is_read_with_absent_fields_at_their_defaults(version: int) -> None:
    """L17."""
    members = {**json.loads(entry("r").line()), "schema_version": version}
    line = json.dumps({name: members[name] for name in V1}).encode()
    read = type(entry("r")).from_line(line)
    assert (read.schema_version, read.cum_len, read.parent_resolution) == (version, None, None)
    assert read.generation_log_probs == [-0.5, -0.25]


def test_a_line_of_twenty_megabytes_and_odd_separators(store: TokenStore, tmp_path: Path) -> None:
    """L7."""
    text = "\u2028\u2029\x85\x0b" + "x" * (20 << 20)
    store.put(entry("r", 0, output_items=[{"text": text}]))
    store.put(entry("r", 1))
    with fresh(tmp_path) as other:
        assert other.put(entry("r", 0, output_items=[{"text": text}])) is False
        assert other.freeze("r").entries == 2


# Life cycle


def test_a_call_that_was_begun_and_never_recorded_is_lost(store: TokenStore) -> None:
    """L12."""
    store.begin_call("r", "call-00000")
    store.begin_call("r", "gone")
    store.begin_call("r", "cancelled")
    store.cancel_call("r", "cancelled")
    store.put(entry("r"))
    snapshot = store.freeze("r")
    assert (snapshot.incomplete, snapshot.lost, snapshot.entries) == (True, ("gone",), 1)


def test_a_call_begun_again_after_its_cancel_counts(store: TokenStore) -> None:
    for act in (store.begin_call, store.cancel_call, store.begin_call):
        act("r", "a")
    assert store.freeze("r").lost == ("a",)


def test_a_call_that_the_engine_refused_is_not_lost(store: TokenStore, tmp_path: Path) -> None:
    refusals = [{"model_call_id": "a", "code": "context_length", "created_at": 1.0}]
    (tmp_path / "r.tokens.state.json").write_text(json.dumps({"refusals": refusals}))
    store.begin_call("r", "a")
    assert not store.freeze("r").incomplete
    assert state(tmp_path)["refusals"] == refusals


def test_a_frozen_ledger_takes_no_call_but_may_be_marked(store: TokenStore, tmp_path: Path) -> None:
    """L14."""
    store.put(entry("r"))
    snapshot = store.freeze("r")
    before = files(tmp_path)
    for act in (store.begin_call, store.cancel_call):
        with pytest.raises(StateError):
            act("r", "late")
    for late in (entry("r", 0), entry("r", 1)):
        with pytest.raises(StateError):
            store.put(late)
    assert files(tmp_path) == before
    store.mark_incomplete("r", "late")
    again = store.freeze("r")
    assert (again.incomplete, again.lost) == (True, ("late",))
    assert again.version > snapshot.version


def test_a_retired_ledger_takes_nothing(store: TokenStore, tmp_path: Path) -> None:
    """L14."""
    store.put(entry("r"))
    store.retire(["r"])
    before = files(tmp_path)
    for act in (store.begin_call, store.cancel_call, store.mark_incomplete):
        with pytest.raises(RetiredError):
            act("r", "late")
    with pytest.raises(RetiredError):
        store.put(entry("r", 1))
    with pytest.raises(RetiredError):
        store.freeze("r")
    assert files(tmp_path) == before
    assert list(before) == ["r.tokens.state.json"]


def test_freezing_twice_gives_one_snapshot(store: TokenStore, tmp_path: Path) -> None:
    """L15."""
    store.put(entry("r"))
    first = store.freeze("r")
    with fresh(tmp_path) as other:
        assert other.freeze("r") == first
    assert len(bytes.fromhex(first.snapshot_id)) == 16


def test_a_drop_of_another_snapshot_removes_nothing(store: TokenStore, tmp_path: Path) -> None:
    """L15."""
    store.put(entry("r"))
    assert store.drop("r", snapshot_id="", version=0) is False
    old = store.freeze("r")
    store.mark_incomplete("r")
    before = files(tmp_path)
    assert store.drop("r", snapshot_id=old.snapshot_id, version=old.version) is False
    assert store.drop("r", snapshot_id="00", version=old.version + 1) is False
    assert files(tmp_path) == before
    new = store.freeze("r")
    assert store.drop("r", snapshot_id=new.snapshot_id, version=new.version) is True
    assert store.drop("r", snapshot_id=new.snapshot_id, version=new.version) is True
    assert list(files(tmp_path)) == ["r.tokens.state.json"]
    assert state(tmp_path)["retired"] is True
    with pytest.raises(RetiredError):
        store.put(entry("r", 1))


def test_retire_and_delete_tell_removed_from_absent(store: TokenStore, tmp_path: Path) -> None:
    """L23, L26."""
    store.put(entry("a"))
    store.begin_call("b", "x")
    for removed, absent in ((("a", "b"), ("c",)), ((), ("a", "b", "c"))):
        result = store.retire(["a", "b", "c", "a"])
        assert (result.removed, result.absent) == (removed, absent)
    store.put(entry("d"))
    for removed, absent in ((("d",), ("a", "b", "c")), ((), ("d", "a", "b", "c"))):
        result = store.delete(["d", "a", "b", "c"])
        assert (result.removed, result.absent) == (removed, absent)
    assert files(tmp_path) == {}
    assert store.put(entry("a")) is True


def test_a_bare_string_is_no_batch_and_a_batch_has_an_end(store: TokenStore) -> None:
    """L25."""
    for act in (store.retire, store.delete):
        with pytest.raises(NameRefusedError):
            act("abc")
        with pytest.raises(SizeError):
            act([f"r{number}" for number in range(MAX_BATCH_KEYS + 1)])
        assert act([]).removed == ()


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".hidden", "r-a1-a2", "x\n", "a" * 201])
def test_a_key_that_could_leave_the_directory_is_refused(tmp_path: Path, key: str) -> None:
    """L27."""
    root = tmp_path / "ledgers"
    with TokenStore(root) as store:
        for act in (store.begin_call, store.mark_incomplete):
            with pytest.raises(NameRefusedError):
                act(key, "a")
        with pytest.raises(NameRefusedError):
            store.put(entry("r", rollout_id=key))
        with pytest.raises(NameRefusedError):
            store.retire(["r", key])
    assert files(root, stripes=True) == {}
    assert list(tmp_path.iterdir()) == [root]


def test_links_are_not_followed(store: TokenStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "victim"
    victim.write_bytes(b"")
    for name in ("r.tokens.jsonl", "s.tokens.state.json", "t.tokens.intents"):
        (tmp_path / name).symlink_to(victim)
    for act in (
        lambda: store.put(entry("r")),
        lambda: store.put(entry("s")),
        lambda: store.begin_call("t", "a"),
        lambda: store.retire(["s"]),
    ):
        with pytest.raises(CorruptError, match="link"):
            act()
    assert victim.read_bytes() == b""
    store.delete(["r", "s", "t"])
    assert files(tmp_path) == {}
    assert victim.exists()


# The tail


def test_a_torn_line_is_cut_off_by_the_next_write(store: TokenStore, tmp_path: Path) -> None:
    """L1."""
    store.put(entry("r"))
    path = tmp_path / "r.tokens.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + entry("r", 1).line()[:50])
    with fresh(tmp_path) as other:
        assert other.put(entry("r", 1)) is True
    assert path.read_bytes() == whole + entry("r", 1).line() + b"\n"
    # The first store reads what the second one wrote.
    assert store.put(entry("r", 1)) is False


def test_a_whole_line_without_newline_counts(store: TokenStore, tmp_path: Path) -> None:
    """L2."""
    path = tmp_path / "r.tokens.jsonl"
    path.write_bytes(entry("r").line())
    assert store.put(entry("r")) is False
    assert store.put(entry("r", 1)) is True
    assert path.read_bytes() == entry("r").line() + b"\n" + entry("r", 1).line() + b"\n"


def test_an_index_up_to_a_missing_newline_does_not_fuse_lines(tmp_path: Path) -> None:
    """L2, where the index was written in between."""
    line = entry("r").line()
    (tmp_path / "r.tokens.jsonl").write_bytes(line)
    index = {"entry_digests": {call_id(0): line_digest(line)}, "indexed_size": len(line)}
    (tmp_path / "r.tokens.state.json").write_text(json.dumps(index))
    with fresh(tmp_path) as store:
        assert store.put(entry("r")) is False
        store.put(entry("r", 1))
    data = (tmp_path / "r.tokens.jsonl").read_bytes()
    assert data == line + b"\n" + entry("r", 1).line() + b"\n"


def test_blank_lines_at_the_end_are_kept(store: TokenStore, tmp_path: Path) -> None:
    """L7."""
    path = tmp_path / "r.tokens.jsonl"
    path.write_bytes(entry("r").line() + b"\n\n \n")
    store.put(entry("r", 1))
    assert store.freeze("r").entries == 2
    assert path.read_bytes() == entry("r").line() + b"\n\n \n" + entry("r", 1).line() + b"\n"


@pytest.mark.parametrize("after", [b"", entry("r", 1).line() + b"\n"])
def test_a_malformed_line_with_its_newline_is_an_error(
    store: TokenStore, tmp_path: Path, after: bytes
) -> None:
    """L3."""
    path = tmp_path / "r.tokens.jsonl"
    data = entry("r").line() + b"\n{bad}\n" + after
    path.write_bytes(data)
    with pytest.raises(CorruptError) as caught:
        store.put(entry("r", 2))
    assert caught.value.location.file == "r.tokens.jsonl"
    assert caught.value.location.offset == len(entry("r").line()) + 1
    assert path.read_bytes() == data
    store.mark_incomplete("r")
    assert store.retire(["r"]).removed == ("r",)


def test_an_entry_of_another_rollout_is_an_error(store: TokenStore, tmp_path: Path) -> None:
    (tmp_path / "r.tokens.jsonl").write_bytes(entry("other").line() + b"\n")
    with pytest.raises(CorruptError, match="other"):
        store.put(entry("r"))


def test_a_torn_intent_is_cut_off(store: TokenStore, tmp_path: Path) -> None:
    path = tmp_path / "r.tokens.intents"
    path.write_bytes(b"a\nb")
    assert store.freeze("q").lost == ()
    store.begin_call("r", "c")
    assert path.read_bytes() == b"a\nc\n"
    path.write_bytes(b"torn off")
    store.begin_call("r", "d")
    assert path.read_bytes() == b"d\n"


def test_a_full_disk_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """L11."""

    class Shrinking(OsCalls):
        full = ""

        def write(self, fd: int, data: BytesLike) -> int:
            if self.full == "write" and memoryview(data).nbytes < 100:
                raise OSError(errno.ENOSPC, "full")
            return super().write(fd, memoryview(data)[:40])

        def fsync(self, fd: int) -> None:
            if self.full == "fsync":
                raise OSError(errno.ENOSPC, "full")
            super().fsync(fd)

    with TokenStore(tmp_path) as store:
        store.put(entry("r"))
    whole = (tmp_path / "r.tokens.jsonl").read_bytes()
    for name in ("write", "fsync"):
        calls = Shrinking()
        with TokenStore(tmp_path, calls=calls) as store:
            calls.full = name
            with pytest.raises(StorageFailedError):
                store.put(entry("r", 1))
            assert (tmp_path / "r.tokens.jsonl").read_bytes() == whole
            calls.full = ""
            assert store.put(entry("r", 1)) is True
        (tmp_path / "r.tokens.jsonl").write_bytes(whole)


# The index


def test_a_lost_or_stale_index_is_rebuilt(store: TokenStore, tmp_path: Path) -> None:
    """L16."""
    for number in range(5):
        store.put(entry("r", number))
    stale = {"version": 2, "indexed_size": len(entry("r").line()) + 1}
    stale["entry_digests"] = {call_id(0): line_digest(entry("r").line())}
    path = tmp_path / "r.tokens.state.json"
    digests = []
    for content in (None, stale):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_text(json.dumps(content))
        with fresh(tmp_path) as other:
            assert other.put(entry("r", 4)) is False
            assert other.freeze("r").entries == 5
        digests.append((state(tmp_path)["entry_digests"], state(tmp_path)["indexed_size"]))
    assert digests[0] == digests[1]
    assert digests[0][0] == {call_id(n): line_digest(entry("r", n).line()) for n in range(5)}


def test_an_index_beyond_the_lines_is_an_error(store: TokenStore, tmp_path: Path) -> None:
    (tmp_path / "r.tokens.state.json").write_text(json.dumps({"indexed_size": 10}))
    with pytest.raises(CorruptError, match="beyond"):
        store.put(entry("r"))
    assert "r.tokens.jsonl" not in files(tmp_path)


def test_a_damaged_state_stops_everything_but_removal(store: TokenStore, tmp_path: Path) -> None:
    store.put(entry("r"))
    (tmp_path / "r.tokens.state.json").write_bytes(b'{"frozen":tr')
    for act in (lambda: store.put(entry("r", 1)), lambda: store.freeze("r")):
        with pytest.raises(CorruptError) as caught:
            act()
        assert caught.value.location.file == "r.tokens.state.json"
    assert store.retire(["r"]).removed == ("r",)
    assert state(tmp_path)["retired"] is True


def test_the_index_is_written_ever_more_rarely(tmp_path: Path) -> None:
    """L6: a line costs the same whatever stands before it."""
    calls = RecordingOs()
    size = 8192
    with TokenStore(tmp_path, calls=calls) as store:
        writes_at, looks = [], []
        for number in range(400):
            calls.names.clear()
            store.put(entry("r", number, output_items=[{"text": "x" * size}]))
            looks.append(len([name for name in calls.names if name != "close"]))
            if "replace" in calls.names:
                writes_at.append(number)
            assert calls.names.count("pread") == 0
    # The first after 64 KiB, then each time the lines have grown by a third.
    assert writes_at[0] * size < 2 * INDEX_TAIL_BYTES
    late = [b / a for a, b in itertools.pairwise(writes_at[6:])]
    assert late
    assert all(1.2 < ratio < 1.5 for ratio in late)
    assert looks[50] == looks[399]


def test_another_process_reads_only_the_tail(tmp_path: Path) -> None:
    calls = RecordingOs()
    with TokenStore(tmp_path) as one, TokenStore(tmp_path, calls=calls) as two:
        for number in range(20):
            one.put(entry("r", 2 * number))
            two.put(entry("r", 2 * number + 1))
        calls.names.clear()
        one.put(entry("r", 100))
        two.put(entry("r", 101))
        assert calls.names.count("pread") == 1
        assert one.freeze("r").entries == 42
        with pytest.raises(StateError):
            two.put(entry("r", 102))


def test_a_cache_notices_that_the_file_shrank_or_was_replaced(tmp_path: Path) -> None:
    """L10."""
    path = tmp_path / "r.tokens.jsonl"
    with TokenStore(tmp_path) as store:
        store.put(entry("r", 0))
        whole = path.read_bytes()
        store.put(entry("r", 1))
        path.write_bytes(whole)
        assert store.put(entry("r", 1)) is True
        path.rename(tmp_path / "moved")
        path.write_bytes(entry("r", 9).line() + b"\n")
        assert store.put(entry("r", 9)) is False
        assert store.put(entry("r", 1)) is True


def test_a_rollout_deleted_elsewhere_starts_from_scratch(tmp_path: Path) -> None:
    """L23."""
    with TokenStore(tmp_path) as one, TokenStore(tmp_path) as two:
        one.begin_call("r", "a")
        one.put(entry("r"))
        two.delete(["r"])
        one.put(entry("r", 1))
        snapshot = one.freeze("r")
        assert (snapshot.entries, snapshot.lost) == (1, ())


# Locks


def test_lock_files_do_not_grow_with_the_rollouts(store: TokenStore, tmp_path: Path) -> None:
    """L19."""
    for number in range(3 * LOCK_STRIPES):
        store.begin_call(f"rollout-{number}", "a")
    store.delete([f"rollout-{number}" for number in range(3 * LOCK_STRIPES)])
    names = list(files(tmp_path, stripes=True))
    assert 0 < len(names) <= LOCK_STRIPES
    assert all(name.startswith(".ledger-lock-") for name in names)


def test_a_rollouts_own_lock_is_taken_and_never_made(store: TokenStore, tmp_path: Path) -> None:
    calls = RecordingOs()
    with TokenStore(tmp_path, calls=calls) as other:
        other.put(entry("r"))
        assert calls.names.count("flock") == 2
        assert "r.tokens.lock" not in files(tmp_path)
        (tmp_path / "r.tokens.lock").touch()
        calls.names.clear()
        other.put(entry("r", 1))
        assert calls.names.count("flock") == 3
        other.delete(["r"])
    assert files(tmp_path) == {}


def test_entries_survive_a_chain_of_parents(store: TokenStore) -> None:
    parent = entry("r")
    store.put(parent)
    for number in range(1, 5):
        parent = child_entry(parent, number)
        store.put(parent)
    assert store.freeze("r").entries == 5
