"""``<key>.tokens.intents`` and ``<key>.tokens.incomplete``: call ids, one a line.

A call id is written before its generation starts; ``-<id>`` cancels it.  A last line
without a newline was never acknowledged, so nothing was generated for it: it does not
count, and is cut off by the next write.
"""

from __future__ import annotations

from typing import Final

from ckptfmt.errors import CorruptError
from ckptfmt.ledger.append_file import AppendFile
from ckptfmt.ledger.folder import Folder
from ckptfmt.ledger.limits import MAX_CALL_ID_BYTES

__all__ = ["IdFile", "listed_ids", "open_intents"]

# The longest line, with the mark of a cancel and both newlines round it.
_LAST_LINE_BYTES: Final = MAX_CALL_ID_BYTES + 3


class IdFile:
    """A file of call ids, as a writer sees it."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.file = AppendFile(folder, name)
        self._end = 0

    def append(self, text: str) -> None:
        """Write one line durably."""
        same = self.file.look()
        if not same or self.file.size_bytes != self._end:
            self._end = self._end_of_lines()
        self.file.append(f"{text}\n".encode(), self._end)
        self._end = self.file.size_bytes

    def _end_of_lines(self) -> int:
        size = self.file.size_bytes
        start = max(0, size - _LAST_LINE_BYTES)
        tail = self.file.read(size - start, start) if size else b""
        last = tail.rfind(b"\n")
        if last < 0 < start:
            raise CorruptError("the last line is longer than a call id can be").at(
                file=self.file.name, offset=start
            )
        return start + last + 1


def listed_ids(data: bytes) -> list[str]:
    """The ids on whole lines, each once, in order."""
    *whole, _ = data.split(b"\n")
    texts = (line.strip().decode(errors="backslashreplace") for line in whole)
    return list(dict.fromkeys(text for text in texts if text))


def open_intents(data: bytes) -> list[str]:
    """The ids of calls that were begun and not cancelled after that, in order."""
    begun: dict[str, None] = {}
    *whole, _ = data.split(b"\n")
    for line in whole:
        text = line.strip().decode(errors="backslashreplace")
        if text.startswith("-"):
            begun.pop(text[1:], None)
        elif text:
            begun[text] = None
    return list(begun)
