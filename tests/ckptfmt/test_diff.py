"""What changed between two checkpoints, from indexes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.checkpoint import diff, write_checkpoint
from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.diff import ChangeKind, diff_checkpoints
from ckptfmt.layout import Folder
from ckptfmt.record import Record
from ckptfmt.schema import TypedRecord
from ckptfmt.store.local import LocalSource, LocalStore
from tests.support.checkpoints import AGENT, RESOURCES, agent_record, resources_record

Found = list[tuple[ChangeKind, str | None, str | None]]


def changes(
    tmp_path: Path, old: list[TypedRecord | Record], new: list[TypedRecord | Record]
) -> Found:
    write_checkpoint(tmp_path, "old", {AGENT: old}).require()
    write_checkpoint(tmp_path, "new", {AGENT: new}).require()
    found = list(diff(tmp_path / "old", tmp_path / "new"))
    assert all(change.participant == AGENT for change in found)
    return [(change.kind, change.old_key, change.new_key) for change in found]


def test_added_removed_and_changed_records(tmp_path: Path) -> None:
    """I50."""
    old = [agent_record("a"), agent_record("b"), agent_record("c")]
    new = [agent_record("b", text="other"), agent_record("c"), agent_record("d")]
    assert changes(tmp_path, old, new) == [  # type: ignore[arg-type]
        (ChangeKind.CHANGED, "b/s", "b/s"),
        (ChangeKind.REMOVED, "a/s", None),
        (ChangeKind.ADDED, None, "d/s"),
    ]


def test_a_later_attempt_continues_its_predecessor(tmp_path: Path) -> None:
    """I56."""
    old = [agent_record("a"), agent_record("b", attempt=3)]
    new = [agent_record("a", attempt=1), agent_record("b", attempt=2)]
    assert changes(tmp_path, old, new) == [  # type: ignore[arg-type]
        (ChangeKind.CONTINUED, "a/s", "a-a1/s"),
        (ChangeKind.REMOVED, "b-a3/s", None),
        (ChangeKind.ADDED, None, "b-a2/s"),
    ]


def test_a_participant_that_only_one_has(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "old", {AGENT: [agent_record("a")]}).require()
    both = {AGENT: [agent_record("a")], RESOURCES: [resources_record("a")]}
    write_checkpoint(tmp_path, "new", both).require()  # type: ignore[arg-type]
    (change,) = diff(tmp_path / "old", tmp_path / "new")
    assert (change.kind, change.participant) == (ChangeKind.ADDED, RESOURCES)


def test_equal_content_is_found_without_reading_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I57."""
    for name in ("old", "new"):
        write_checkpoint(tmp_path, name, {AGENT: [agent_record("a")]}).require()
    store = LocalStore(tmp_path)
    opened = [Checkpoint.open(store, Folder(name)) for name in ("old", "new")]
    read: list[str] = []
    read_at = LocalSource.read_at

    def counted(self: LocalSource, offset: int, size_bytes: int) -> bytes:
        read.append(self.name)
        return read_at(self, offset, size_bytes)

    monkeypatch.setattr(LocalSource, "read_at", counted)
    assert list(diff_checkpoints(*opened)) == []
    assert not [name for name in read if name.endswith(".zst")]


def test_a_difference_costs_index_reads_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = "x" * 3_000_000
    records = {name: agent_record(name, text=big + name) for name in ("a", "b")}
    write_checkpoint(tmp_path, "old", {AGENT: list(records.values())}).require()
    write_checkpoint(tmp_path, "new", {AGENT: [records["a"]]}).require()
    read_bytes: list[int] = []
    read_at = LocalSource.read_at

    def counted(self: LocalSource, offset: int, size_bytes: int) -> bytes:
        if self.name.endswith(".zst"):
            read_bytes.append(size_bytes)
        return read_at(self, offset, size_bytes)

    monkeypatch.setattr(LocalSource, "read_at", counted)
    assert [change.old_key for change in diff(tmp_path / "old", tmp_path / "new")] == ["b/s"]
    assert sum(read_bytes) < 2_000
