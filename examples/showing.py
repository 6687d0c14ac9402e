"""What the demos print: their steps, progress, and the commands that they run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Progress", "inspect", "megabytes", "say", "step"]


@contextmanager
def step(what: str) -> Iterator[None]:
    """Announce a step, and say how long it took."""
    print(f"-- {what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"    {time.perf_counter() - start:.2f} s", flush=True)


def say(text: str) -> None:
    """A line about the step before; the last one of it."""
    print(f"    {text}\n", flush=True)


def inspect(*arguments: str, expected: int = 0) -> None:
    """Run ``ckpt-inspect``, which has to end with this status."""
    print(f"$ ckpt-inspect {' '.join(arguments)}", flush=True)
    tool = Path(sys.executable).with_name("ckpt-inspect")
    status = subprocess.run([str(tool), *arguments], check=False).returncode
    print(f"(exit status {status})\n", flush=True)
    assert status == expected, f"expected exit status {expected}"


def megabytes(size_bytes: int) -> str:
    """A size in MB."""
    return f"{size_bytes / 1e6:.1f} MB"


class Progress:
    """How far something is: a line that changes on a terminal, elsewhere one each quarter."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._quarters = 0
        self._is_terminal = sys.stdout.isatty()

    def show(self, done: int) -> None:
        """So much of it is done."""
        text = f"    {done} of {self._total} {self._what}"
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", flush=True)
        elif self._total and done * 4 // self._total > self._quarters:
            self._quarters = done * 4 // self._total
            print(text, flush=True)

    def end(self) -> None:
        """It is over; what comes next begins on a line of its own."""
        if self._is_terminal:
            print("\r\x1b[K", end="", flush=True)
