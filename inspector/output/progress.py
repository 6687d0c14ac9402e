"""Signs of life on standard error: a moving line on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from inspector.quantities import count, size
from inspector.safe_text import safe_text

__all__ = ["Bar", "Counter", "JsonCounter", "PlainCounter", "silent"]

_LINE_EVERY_S: Final = 10.0
_REPAINT_EVERY_S: Final = 0.1


class Counter(Protocol):
    """Counts what was done; may be told as often as there are records."""

    def update(self, records: int, size_bytes: int) -> None:
        """So much was done since the beginning."""

    def pause(self) -> None:
        """Leave the terminal to other output until the next update."""

    def stop(self) -> None:
        """The work is over; may be repeated."""


class _Silent:
    def update(self, records: int, size_bytes: int) -> None:
        pass

    def pause(self) -> None:
        pass

    def stop(self) -> None:
        pass


def silent() -> Counter:
    """A counter that says nothing."""
    return _Silent()


class _Sparse(_Silent):
    """Tells from time to time."""

    def __init__(self, what: str, total_records: int | None) -> None:
        self._what = what
        self._total = total_records
        self._began_s = self._told_s = time.monotonic()

    def update(self, records: int, size_bytes: int) -> None:
        """As :meth:`Counter.update`."""
        now_s = time.monotonic()
        if now_s - self._told_s >= _LINE_EVERY_S:
            self._told_s = now_s
            self._tell(records, size_bytes, now_s - self._began_s)

    def _tell(self, records: int, size_bytes: int, elapsed_s: float) -> None:
        raise NotImplementedError


class PlainCounter(_Sparse):
    """A line of text every ten seconds."""

    def __init__(self, say: Callable[[str], None], what: str, total_records: int | None) -> None:
        super().__init__(safe_text(what), total_records)
        self._say = say

    def _tell(self, records: int, size_bytes: int, elapsed_s: float) -> None:
        total = "" if self._total is None else f" of {count(self._total)}"
        self._say(
            f"{self._what}: {count(records)}{total} records, {size(size_bytes)}, {elapsed_s:.0f} s"
        )


class JsonCounter(_Sparse):
    """The same as an object."""

    def __init__(
        self, say: Callable[[Mapping[str, Any]], None], what: str, total_records: int | None
    ) -> None:
        super().__init__(what, total_records)
        self._say = say

    def _tell(self, records: int, size_bytes: int, elapsed_s: float) -> None:
        self._say(
            {
                "type": "progress",
                "what": self._what,
                "records": records,
                "total_records": self._total,
                "raw_bytes": size_bytes,
                "elapsed_s": round(elapsed_s, 1),
            }
        )


class Bar:
    """A moving line: records, bytes, time left."""

    def __init__(self, what: str, total_records: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[done]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True, markup=False, emoji=False, highlight=False),
            transient=True,
        )
        self._task = self._progress.add_task(safe_text(what), total=total_records, done="")
        self._moving = False
        self._painted_s = time.monotonic()

    def update(self, records: int, size_bytes: int) -> None:
        """As :meth:`Counter.update`."""
        now_s = time.monotonic()
        if now_s - self._painted_s < _REPAINT_EVERY_S:
            return
        self._painted_s = now_s
        if not self._moving:
            self._progress.start()
            self._moving = True
        done = f"{count(records)} records, {size(size_bytes)}"
        self._progress.update(self._task, completed=records, done=done)

    def pause(self) -> None:
        """As :meth:`Counter.pause`."""
        if self._moving:
            self._progress.stop()
            self._moving = False

    def stop(self) -> None:
        """As :meth:`Counter.stop`."""
        self.pause()
