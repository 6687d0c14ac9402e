"""Where output goes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from inspector.output.sink import FileSink, StandardOutput, open_sink


def test_a_file_is_replaced_only_when_it_is_finished(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"before")
    sink = FileSink(target)
    sink.write(b"after")
    assert target.read_bytes() == b"before"
    sink.finish()
    assert target.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out")
    sink.write(b"half")
    sink.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    sink = FileSink(pipe)
    sink.write(b"data")
    sink.finish()
    reader.join()
    assert got == [b"data"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("is_there", [True, False])
def test_of_a_link_what_it_names_is_written(tmp_path: Path, is_there: bool) -> None:
    """As by a redirection: the link stays, and nobody sees half of the file either."""
    (tmp_path / "there").mkdir()
    named, link = tmp_path / "there" / "out", tmp_path / "link"
    if is_there:
        named.write_bytes(b"before")
    link.symlink_to("there/out")
    sink = FileSink(link)
    sink.write(b"after")
    assert named.exists() is is_there
    sink.finish()
    assert link.is_symlink()
    assert named.read_bytes() == b"after"
    assert list(named.parent.iterdir()) == [named]


def test_a_dash_is_standard_output() -> None:
    assert isinstance(open_sink(Path("-")), StandardOutput)
    assert isinstance(open_sink(None), StandardOutput)
