"""Text for people: aligned rows and lines, without borders, and never cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style

from inspector.output.base import Column, Item, Table, Views
from inspector.output.sink import Sink
from inspector.safe_text import safe_text

__all__ = ["TextWriter"]

# So many rows decide the widths; later ones may stand out, but none has to wait.
_MEASURED_ROWS: Final = 200
_GAP: Final = "  "


class TextWriter:
    """Writes items through their views; every string is made safe here."""

    def __init__(self, sink: Sink, views: Views, *, color: bool) -> None:
        self._sink = sink
        self._views = views
        self._color = color
        self._table: Table | None = None
        self._held: list[list[str]] = []
        self._widths: list[int] = []

    def item(self, item: Item) -> None:
        """As :meth:`inspector.output.base.Writer.item`."""
        view = self._views.get(item["type"])
        if view is None:
            return
        if not isinstance(view, Table):
            self._leave_table()
            self._show(view(item))
            return
        if view is not self._table:
            self._leave_table()
            self._table = view
        cells = [safe_text(column.show(item)) for column in view.columns]
        if self._widths:
            self._row(view, cells)
            return
        self._held.append(cells)
        if len(self._held) == _MEASURED_ROWS:
            self._release()

    def end(self, summary: Item) -> None:
        """As :meth:`inspector.output.base.Writer.end`."""
        self._leave_table()
        if (view := self._views.get("summary")) is not None and not isinstance(view, Table):
            self._show(view(summary))

    def _show(self, lines: Iterable[str | Iterator[str]]) -> None:
        for line in lines:
            for piece in (line,) if isinstance(line, str) else line:
                self._sink.write(safe_text(piece).encode())
            self._sink.write(b"\n")

    def _leave_table(self) -> None:
        if self._held:
            self._release()
        self._table = None
        self._widths = []

    def _release(self) -> None:
        assert self._table is not None
        columns = self._table.columns
        titles = [column.title for column in columns]
        self._widths = [
            max(cell_len(row[place]) for row in chain([titles], self._held))
            for place in range(len(columns))
        ]
        if any(titles):
            self._line(self._padded(columns, titles))
        for cells in self._held:
            self._row(self._table, cells)
        self._held = []

    def _row(self, table: Table, cells: list[str]) -> None:
        self._line(self._padded(table.columns, cells, color=self._color))

    def _padded(self, columns: tuple[Column, ...], cells: list[str], *, color: bool = False) -> str:
        padded = []
        for column, cell, width in zip(columns, cells, self._widths, strict=True):
            filler = " " * (width - cell_len(cell))
            style = column.style(cell) if color else ""
            shown = _coloured(cell, style) if style else cell
            padded.append(filler + shown if column.right else shown + filler)
        return _GAP.join(padded).rstrip()

    def _line(self, line: str) -> None:
        self._sink.write(line.encode() + b"\n")


def _coloured(cell: str, style: str) -> str:
    # Sixteen colours, which every terminal's theme makes readable.
    return Style.parse(style).render(cell, color_system=ColorSystem.STANDARD)
