"""Signs of life."""

from __future__ import annotations

import io
import sys

import pytest

from inspector.output.progress import Bar, PlainCounter


class Terminal(io.StringIO):
    """A standard error that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_moves_pauses_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13, I15."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("inspector.output.progress._REPAINT_EVERY_S", 0.0)
    bar = Bar("validate [/x]:thumbs_up:\x9b2J", 10)
    bar.update(1, 1024)
    bar.pause()
    painted = terminal.getvalue()
    assert "validate [/x]:thumbs_up:\\x9b2J" in painted
    assert "\x9b" not in painted
    assert "1 records, 1.0 KiB" in painted
    bar.pause()
    assert terminal.getvalue() == painted
    bar.update(2, 2048)
    bar.stop()
    assert "2 records" in terminal.getvalue()


def test_lines_are_sparse_and_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13, I32."""
    said: list[str] = []
    counter = PlainCounter(said.append, "validate \x1b[2J", 2000)
    counter.update(1, 1)
    assert said == []
    monkeypatch.setattr("inspector.output.progress._LINE_EVERY_S", 0.0)
    counter.update(1024, 1 << 20)
    assert said == ["validate \\x1b[2J: 1,024 of 2,000 records, 1.0 MiB, 0 s"]
