"""Several processes that write to the same ledgers and are killed at any moment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import time
from pathlib import Path

import pytest

from ckptfmt.ledger.calls import rollout_calls
from ckptfmt.ledger.limits import LOCK_STRIPES
from ckptfmt.ledger.names import Kind
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.ledger.verify import verify_directory
from tests.support.amounts import random_values
from tests.support.ledgers import entry

PROCESSES = 8
ROLLOUTS = 50
MOST_PUTS = 1000


def work(root: Path, acknowledged: Path, worker: int, start: int, stop: int) -> None:
    """Put entries, and note each one that was acknowledged."""
    fd = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    rng = random.Random(worker * 1_000_003 + start)
    with TokenStore(root) as store:
        for number in range(start, stop):
            key = f"r{rng.randrange(ROLLOUTS)}"
            item = entry(key, worker * 100_000 + number, output_items=[{"text": "x" * 3000}])
            store.begin_call(key, item.model_call_id)
            store.put(item)
            os.write(fd, f"{number} {key} {item.model_call_id}\n".encode())


def start_worker(root: Path, acknowledged: Path, worker: int, start: int, stop: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            work(root, acknowledged, worker, start, stop)
            status = 0
        os._exit(status)
    return pid


def lines_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.fuzz
def test_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """L5, L19."""
    puts = min(random_values(60), MOST_PUTS)
    root = tmp_path / "ledgers"
    rng = random.Random(puts)
    running: dict[int, int] = {}
    kills = 0

    def acknowledged(worker: int) -> Path:
        return tmp_path / f"acknowledged-{worker}"

    def resume(worker: int) -> None:
        seen = lines_of(acknowledged(worker))
        start = int(seen[-1][0]) + 1 if seen else 0
        pid = start_worker(root, acknowledged(worker), worker, start, puts)
        running[pid] = worker

    for worker in range(PROCESSES):
        resume(worker)
    while running:
        time.sleep(rng.uniform(0, 0.02))
        if kills < PROCESSES * 3 and rng.random() < 0.5:
            os.kill(rng.choice(list(running)), signal.SIGKILL)
            kills += 1
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            worker = running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            assert code in (0, -signal.SIGKILL)
            if code:
                resume(worker)
    assert kills
    judge(root, [item for worker in range(PROCESSES) for item in lines_of(acknowledged(worker))])


def judge(root: Path, acknowledged: list[list[str]]) -> None:
    """Every acknowledged entry is there; nothing is torn in the middle; no lock is held."""
    reader = LedgerReader(root)
    recorded: dict[str, set[str]] = {}
    for key in reader.contents().rollouts:
        calls = rollout_calls(reader, key)
        recorded[key] = {call.call_id for call in calls.calls}
        for parsed in reader.parsed(key, Kind.TOKENS):
            if parsed.members is not None and parsed.line.text is not None:
                number = int(str(parsed.members["model_call_id"]).split("-")[1])
                expected = entry(key, number, output_items=[{"text": "x" * 3000}]).line()
                assert parsed.line.text == expected
    for _, key, call in acknowledged:
        assert call in recorded[key]
    # A worker that was killed before its put began leaves an intent, in the middle of one a tail.
    allowed = {"ledger-torn", "ledger-newline", "ledger-intent", "ledger-leftover"}
    assert {finding.rule.rule_id for finding in verify_directory(reader)} <= allowed
    stripes = list(root.glob(".ledger-lock-*"))
    assert 0 < len(stripes) <= LOCK_STRIPES
    for stripe in stripes:
        with stripe.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with TokenStore(root) as store:
        for key in recorded:
            before = len(recorded[key])
            assert store.freeze(key).entries == before


def test_a_store_may_be_used_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    with TokenStore(tmp_path) as store:
        store.put(entry("r", 0))
        pids = []
        for worker in range(3):
            pid = os.fork()
            if pid == 0:
                status = 1
                with contextlib.suppress(BaseException):
                    for number in range(40):
                        store.put(entry("r", 1000 * (worker + 1) + number))
                    status = 0
                os._exit(status)
            pids.append(pid)
        for number in range(1, 40):
            store.put(entry("r", number))
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
        assert store.freeze("r").entries == 160
    assert list(verify_directory(LedgerReader(tmp_path))) == []
