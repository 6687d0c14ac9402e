"""Every call to the operating system of a commit, a tombstone and a gc fails, or the process dies.

A reader sees the old state or the new, never a mix, and the next commit works.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptfmt.checkpoint import Checkpoint
from ckptfmt.commit import Committed, NotCommitted, Unknown
from ckptfmt.errors import CkptError, MissingError, StorageError
from ckptfmt.layout import Folder
from ckptfmt.leftovers import apply_gc, plan_gc
from ckptfmt.publish import abort_checkpoint
from ckptfmt.rules import Severity
from ckptfmt.run import CheckpointState, latest, list_checkpoints
from ckptfmt.store.local import LocalStore
from ckptfmt.testing.crash_model import Files, ForgetfulDisk
from ckptfmt.testing.os_faults import DEATH, FaultyOs, die, failing, forked
from ckptfmt.verify import verify
from tests.support.checkpoints import AGENT, write_tiny

NUMBERS = [errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EACCES]


def roots(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A new run that holds one whole checkpoint, for each call that may be struck."""
    write_tiny(LocalStore(tmp_path / "template"), "ck-1").require()
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        shutil.copytree(tmp_path / "template", root)
        yield nth, root
        shutil.rmtree(root)


def state_of(root: Path, folder: str = "ck-2") -> CheckpointState | None:
    """What an untroubled process sees of the second checkpoint; the first has to be whole."""
    entries = {entry.folder.prefix: entry for entry in list_checkpoints(LocalStore(root))}
    assert entries["ck-1"].state is CheckpointState.COMPLETE
    findings = verify(LocalStore(root), Folder("ck-1"))
    assert all(finding.rule.severity is Severity.WARNING for finding in findings)
    return entries[folder].state if folder in entries else None


def whole(root: Path, folder: str) -> bool:
    """Whether everything that a checkpoint is to hold comes back."""
    checkpoint = Checkpoint.open(LocalStore(root), Folder(folder))
    return len(checkpoint.participant(AGENT).load()) == 1


def test_death_at_every_call_of_a_commit_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    """S1, S2, S5, S10, S40."""
    seen = set()
    for nth, root in roots(tmp_path):
        status = forked(
            lambda: write_tiny(LocalStore(root, calls=FaultyOs(nth, die)), "ck-2").require()  # noqa: B023
        )
        state = state_of(root)
        seen.add(state)
        if state is CheckpointState.COMPLETE:
            assert whole(root, "ck-2")
            assert latest(LocalStore(root)).entry.folder.prefix == "ck-2"
        else:
            assert state in (None, CheckpointState.INCOMPLETE, CheckpointState.FOREIGN)
            assert latest(LocalStore(root)).entry.folder.prefix == "ck-1"
        # The same call in the next process works, whatever was left behind.
        write_tiny(LocalStore(root), "ck-2").require()
        assert whole(root, "ck-2")
        if status == 0:
            assert {CheckpointState.INCOMPLETE, CheckpointState.COMPLETE} <= seen
            return
        assert status == DEATH


def test_death_at_every_call_of_a_tombstone(tmp_path: Path) -> None:
    for nth, root in roots(tmp_path):
        calls = FaultyOs(nth, die)
        status = forked(
            lambda: abort_checkpoint(LocalStore(root, calls=calls), Folder("ck-2"), "ck-2")  # noqa: B023
        )
        assert state_of(root) in (None, CheckpointState.FOREIGN, CheckpointState.ABORTED)
        outcome = abort_checkpoint(LocalStore(root), Folder("ck-2"), "ck-2")
        assert isinstance(outcome, NotCommitted)
        assert state_of(root) is CheckpointState.ABORTED
        if status == 0:
            return
        assert status == DEATH


def littered(root: Path) -> None:
    """Leftovers in a checkpoint that was published: two dead attempts and a temporary file."""
    folder = root / "ck-1" / "agent" / "a1"
    for number in (0, 1):
        (folder / f"records-{'e' * 24}-{number:03}.jsonl.zst").write_bytes(b"junk")
    (folder / f"tmp-{'e' * 24}-manifest.json").write_bytes(b"junk")


def test_death_at_every_call_of_a_gc_leaves_all_checkpoints_whole(tmp_path: Path) -> None:
    for nth, root in roots(tmp_path):
        littered(root)

        def collect(nth: int = nth, root: Path = root) -> None:
            store = LocalStore(root, calls=FaultyOs(nth, die))
            apply_gc(store, plan_gc(store))

        status = forked(collect)
        assert state_of(root) is None
        apply_gc(LocalStore(root), plan_gc(LocalStore(root)))
        assert plan_gc(LocalStore(root)).delete == ()
        assert whole(root, "ck-1")
        if status == 0:
            return
        assert status == DEATH


@pytest.mark.parametrize(
    ("number", "lasting"),
    [*((number, False) for number in NUMBERS), (errno.EIO, True), (errno.ENOSPC, True)],
)
def test_an_error_at_every_call_of_a_commit_ends_in_the_right_outcome(
    tmp_path: Path, number: int, lasting: bool
) -> None:
    """S5, S13, S42: right outcome, clear message, nothing half published, a retry works."""
    for nth, root in roots(tmp_path):
        calls = FaultyOs(nth, failing(number), lasting=lasting)
        store = LocalStore(root, calls=calls)
        try:
            outcome = write_tiny(store, "ck-2")
        except CkptError as error:
            outcome = NotCommitted(error)
        state = state_of(root)
        match outcome:
            case Committed():
                assert state is CheckpointState.COMPLETE
                assert whole(root, "ck-2")
            case NotCommitted(reason=reason):
                assert state is not CheckpointState.COMPLETE
                assert isinstance(reason, (StorageError, MissingError)), reason
                assert str(reason)
            case Unknown(reason=reason):
                assert "remove nothing" in str(reason) or reason.advice
        again = write_tiny(LocalStore(root), "ck-2")
        assert isinstance(again, Committed), again
        assert whole(root, "ck-2")
        if calls.struck is None:
            return


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
def test_an_error_at_every_call_of_a_gc_deletes_nothing_that_is_needed(
    tmp_path: Path, number: int
) -> None:
    for nth, root in roots(tmp_path):
        littered(root)
        calls = FaultyOs(nth, failing(number))
        store = LocalStore(root, calls=calls)
        try:
            plan = plan_gc(store)
            failed = apply_gc(store, plan)
            assert len(failed) <= len(plan.delete)
        except StorageError:
            assert calls.struck
        assert whole(root, "ck-1")
        apply_gc(LocalStore(root), plan_gc(LocalStore(root)))
        assert plan_gc(LocalStore(root)).delete == ()
        if calls.struck is None:
            return


def test_a_loss_of_power_after_every_call_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    """S41: whatever the disk chose to write of what was not synced."""
    root = tmp_path / "run"
    root.mkdir()
    write_tiny(LocalStore(root), "ck-1").require()
    scratch = tmp_path / "after"
    judged = itertools.count()

    def judge(call: str, files: Files) -> None:
        if "ck-2/checkpoint.json" not in files:
            return
        run = scratch / str(next(judged))
        for name, content in files.items():
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_bytes(content)
        assert state_of(run) is CheckpointState.COMPLETE, call
        assert whole(run, "ck-2")

    disk = ForgetfulDisk(root, judge)
    write_tiny(LocalStore(root, calls=disk), "ck-2").require()
    disk.release()
    assert next(judged) > 5
