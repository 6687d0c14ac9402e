"""Ledgers whose writer dies or fails at every call to the operating system, or loses power.

The sweeps need no list of calls: they strike the first, the second, ... until an
operation ends without having been struck.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from ckptfmt.errors import CkptError, RetiredError, StorageError
from ckptfmt.ledger.calls import rollout_calls
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.ledger.verify import verify_directory
from ckptfmt.rules import Severity
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.testing.os_faults import DEATH, FaultyOs, die, failing, forked
from tests.support.ledgers import call_id, entry, row

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Unsynced(OsCalls):
    """Syncs nothing: what a dead process wrote is there without it."""

    def call(
        self, name: str, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        if name == "fsync":
            function = lambda *_args, **_kwargs: None  # type: ignore[assignment,return-value]  # noqa: E731
        return super().call(name, function, *args, **kwargs)


class Exchangeable(OsCalls):
    """A system that is exchanged while a store uses it."""

    calls: OsCalls = Unsynced()

    def call(
        self, name: str, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        return self.calls.call(name, function, *args, **kwargs)


KEYS = ["r", "r-a1", "r-a2", "s", "t"]
BIG = [{"text": "x" * 70_000}]


def prepare(root: Path) -> None:
    """Ledgers of both families in several states, and a torn tail."""
    with TokenStore(root) as tokens, StagingLedger(root) as staging:
        for key in ("r", "s", "r-a2"):
            tokens.begin_call(key, call_id(0))
            tokens.put(entry(key, 0))
        tokens.begin_call("s", "lost")
        staging.record("r-a1", row(7))
        staging.record("t", row(7))
        staging.record("r-a2", row(7))
        staging.retire(["r-a2"])
    with (root / "s.tokens.jsonl").open("ab") as file:
        file.write(b'{"torn":')


def seen(root: Path, key: str) -> object:
    """What users of a rollout see."""
    reader = LedgerReader(root)
    kinds = reader.kinds(key)
    if "lineage.retired" in kinds:
        return "retired"
    state = reader.sidecars(key).state
    assert state is not None
    if state.retired:
        return "retired"
    calls = rollout_calls(reader, key)
    return (
        tuple(call.call_id for call in calls.calls),
        calls.open_intents,
        calls.lost,
        state.frozen,
        bool(state.snapshot_id),
        state.incomplete,
    )


def use_tokens(act: Callable[[TokenStore], object]) -> Callable[[Path, OsCalls], None]:
    def run(root: Path, calls: OsCalls) -> None:
        with TokenStore(root, calls=calls) as store:
            act(store)

    return run


def use_staging(act: Callable[[StagingLedger], object]) -> Callable[[Path, OsCalls], None]:
    def run(root: Path, calls: OsCalls) -> None:
        with StagingLedger(root, calls=calls) as ledger:
            act(ledger)

    return run


def use_both(root: Path, calls: OsCalls) -> None:
    with TokenStore(root, calls=calls) as store, StagingLedger(root, calls=calls) as ledger:
        store.retire(["r", "s"])
        ledger.retire(["r-a1", "t"])


def drop(store: TokenStore) -> None:
    try:
        snapshot = store.freeze("s")
    except RetiredError:
        return
    assert store.drop("s", snapshot_id=snapshot.snapshot_id, version=snapshot.version)


IMPORTED = {
    "r-a1": [row(0).members(), row(1, row(0)).members()],
    "s": [row(0).members()],
    "t": [],
}
OPERATIONS: dict[str, Callable[[Path, OsCalls], None]] = {
    "begin": use_tokens(lambda store: store.begin_call("s", call_id(1))),
    "put": use_tokens(lambda store: store.put(entry("s", 1))),
    "put new": use_tokens(lambda store: store.put(entry("u", 1))),
    "put and index": use_tokens(lambda store: store.put(entry("s", 1, output_items=BIG))),
    "mark": use_tokens(lambda store: store.mark_incomplete("s", call_id(9))),
    "freeze": use_tokens(lambda store: store.freeze("s")),
    "drop": use_tokens(drop),
    "retire tokens": use_tokens(lambda store: store.retire(["r", "s", "u"])),
    "retire rows": use_staging(lambda ledger: ledger.retire(["r-a1", "t", "u"])),
    "retire both": use_both,
    "record": use_staging(lambda ledger: ledger.record("t", row(8, row(7)))),
    "import": use_staging(lambda ledger: ledger.import_rows_many(IMPORTED)),
    "delete rows": use_staging(lambda ledger: ledger.delete(["t", "r-a2"])),
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """The states between which an operation may end, and fresh directories to run it in."""

    tmp_path: Path
    act: Callable[[Path, OsCalls], None]

    def expected(self) -> dict[str, tuple[object, object]]:
        root = self.fresh(0)
        before = {key: seen(root, key) for key in [*KEYS, "u"]}
        self.act(root, Unsynced())
        return {key: (before[key], seen(root, key)) for key in before}

    def fresh(self, number: int) -> Path:
        template = self.tmp_path / "template"
        if not template.exists():
            template.mkdir()
            prepare(template)
        root = self.tmp_path / f"run-{number}"
        shutil.copytree(template, root)
        return root

    def judge(self, root: Path, expected: dict[str, tuple[object, object]]) -> None:
        """Between, before or after; then repeated to the end."""
        for key, states in expected.items():
            assert may_be(seen(root, key), *states), key
        assert_locks_free(root)
        self.act(root, Unsynced())
        for key, (_, after) in expected.items():
            assert seen(root, key) == after, key
        errors = [
            finding
            for finding in verify_directory(LedgerReader(root))
            if finding.rule.severity is Severity.ERROR
        ]
        assert errors == []


def may_be(found: Any, before: Any, after: Any) -> bool:
    if found in (before, after):
        return True
    # What goes in several files is fenced first.
    if found == "retired":
        return True
    # A drop is a freeze and a retire; a mark is a flag, and then a name.
    frozen = after == "retired" and found[:3] == before[:3] and found[3]
    flagged = found[5] and found[:2] == before[:2]
    return bool(frozen or flagged)


def assert_locks_free(root: Path) -> None:
    for path in root.glob(".ledger-lock-*"):
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_death_at_every_call_leaves_the_state_before_or_after(
    tmp_path: Path, operation: str
) -> None:
    """L34."""
    sweep = Sweep(tmp_path, OPERATIONS[operation])
    expected = sweep.expected()
    for nth in itertools.count(1):
        root = sweep.fresh(nth)
        calls = FaultyOs(nth, die, under=Unsynced())
        status = forked(functools.partial(sweep.act, root, calls))
        assert status in (0, DEATH)
        sweep.judge(root, expected)
        shutil.rmtree(root)
        if status == 0:
            assert nth > 8
            return


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_at_every_call_is_an_error_or_does_not_matter(
    tmp_path: Path, operation: str
) -> None:
    """L11."""
    sweep = Sweep(tmp_path, OPERATIONS[operation])
    expected = sweep.expected()
    for nth in itertools.count(1):
        root = sweep.fresh(nth)
        calls = FaultyOs(nth, failing(errno.ENOSPC), under=Unsynced())
        failed = None
        try:
            sweep.act(root, calls)
        except CkptError as error:
            failed = error
        if failed is None:
            for key, (_, after) in expected.items():
                assert seen(root, key) == after, (key, calls.struck)
        else:
            assert isinstance(failed, StorageError)
            assert failed.location.file
        sweep.judge(root, expected)
        shutil.rmtree(root)
        if calls.struck is None:
            return


@pytest.mark.parametrize("name", ["write", "fsync", "ftruncate"])
def test_the_same_store_goes_on_after_a_failure(tmp_path: Path, name: str) -> None:
    """L11: nothing that failed is taken for done, and nothing that was done is lost."""
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        root.mkdir()
        prepare(root)
        calls = FaultyOs(nth, failing(errno.ENOSPC), only=[name], under=Unsynced())
        opened = Exchangeable()
        with TokenStore(root, calls=opened) as store:
            opened.calls = calls
            acknowledged = []
            for number in range(1, 4):
                for _ in range(2):
                    try:
                        store.begin_call("s", call_id(number))
                        store.put(entry("s", number))
                    except StorageError:
                        continue
                    acknowledged.append(call_id(number))
                    break
            snapshot = store.freeze("s") if calls.struck else None
        assert acknowledged == [call_id(number) for number in range(1, 4)]
        if snapshot is None:
            return
        assert (snapshot.entries, snapshot.lost) == (4, ("lost",))


class Durable(OsCalls):
    """Knows what a loss of power would leave: contents and names as of their last sync."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: list[int] = []
        self._content: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self._remember_names()
        for path in root.iterdir():
            self._content[path.stat().st_ino] = path.read_bytes()

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        status = os.fstat(fd)
        if status.st_ino == self._root.stat().st_ino:
            self._remember_names()
        elif stat.S_ISREG(status.st_mode):
            self._content[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
            # An inode that is held is not used again.
            self._held.append(os.dup(fd))

    def _remember_names(self) -> None:
        self._names = {path.name: path.stat().st_ino for path in self._root.iterdir()}

    def write_to(self, target: Path) -> Path:
        """Make the directory that would be found."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for name, inode in self._names.items():
            (target / name).write_bytes(self._content.get(inode, b""))
        return target

    def release(self) -> None:
        while self._held:
            os.close(self._held.pop())


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Durable]:
    root = tmp_path / "root"
    root.mkdir()
    prepare(root)
    calls = Durable(root)
    yield calls
    calls.release()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_was_acknowledged_survives_a_loss_of_power(
    durable: Durable, tmp_path: Path, operation: str
) -> None:
    root = tmp_path / "root"
    OPERATIONS[operation](root, durable)
    crashed = durable.write_to(tmp_path / "crashed")
    for key in [*KEYS, "u"]:
        assert seen(crashed, key) == seen(root, key)


def test_a_repeat_makes_durable_what_a_dead_process_wrote(durable: Durable, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with TokenStore(root) as died:
        died.put(entry("s", 1))
        died.put(entry("u", 1))
    assert call_id(1) not in str(seen(durable.write_to(tmp_path / "crashed"), "s"))
    with TokenStore(root, calls=durable) as store:
        assert store.put(entry("s", 1)) is False
        assert store.put(entry("u", 1)) is False
    crashed = durable.write_to(tmp_path / "crashed")
    assert call_id(1) in str(seen(crashed, "s"))
    assert call_id(1) in str(seen(crashed, "u"))


def test_a_freeze_makes_durable_what_a_dead_process_wrote(durable: Durable, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with TokenStore(root) as died:
        died.put(entry("u", 1))
    with TokenStore(root, calls=durable) as store:
        assert store.freeze("u").entries == 1
    assert call_id(1) in str(seen(durable.write_to(tmp_path / "crashed"), "u"))
