"""How many threads there are, and what is said where none can be had, or after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ckptfmt.errors import StateError, TransientError
from ckptfmt.testing.os_faults import forked
from ckptfmt.threads import HomeProcess, submit, worker_count

AT_EXIT = """
import atexit
from ckptfmt.errors import TransientError
from ckptfmt.stream import StreamWriter


class Sink:
    write = flush = staticmethod(lambda *data: None)


@atexit.register
def save():
    with StreamWriter(Sink, kind="agent", instance="a", checkpoint_id="c") as writer:
        writer.add("a", (b"1",))
        try:
            writer.close()
        except TransientError:
            print("told")
"""


def test_a_call_is_made_on_a_thread() -> None:
    def call(number: int, *, more: int) -> tuple[int, int]:
        return threading.get_ident(), number + more

    with ThreadPoolExecutor(1) as executor:
        thread, total = submit(executor, call, 1, more=2).result()
    assert thread != threading.get_ident()
    assert total == 3


def test_an_executor_that_was_shut_down_is_told() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(TransientError, match="no thread can be started"):
        submit(executor, lambda: None)


def test_a_save_while_the_interpreter_ends_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("told\n", "")


def test_a_home_is_one_process() -> None:
    home = HomeProcess()
    home.check()

    def child() -> None:
        assert not home.is_here
        with pytest.raises(StateError):
            home.check()
        HomeProcess().check()

    assert forked(child) == 0
    assert home.is_here


@pytest.mark.parametrize(("processors", "workers"), [(1, 1), (2, 1), (3, 2), (64, 2)])
def test_the_caller_keeps_a_processor_to_itself(
    processors: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    assert worker_count() == workers


@pytest.mark.parametrize(("processors", "workers"), [(None, 1), (2, 1), (8, 2)])
def test_workers_are_counted_where_the_system_knows_no_affinity(
    processors: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    assert worker_count() == workers
