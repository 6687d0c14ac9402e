"""The floor on tiny sets: which calls it counts, and that they store the lines."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import zstandard

from benchmarks import commit_floor, sets


@pytest.mark.parametrize("name", sets.NAMES)
def test_the_calls_are_those_of_a_commit_and_store_every_line(name: str, tmp_path: Path) -> None:
    sessions = sets.build(name, 10)
    seconds = commit_floor.commit_calls(sessions, tmp_path / "calls")
    assert seconds.keys() == {
        "check of types", "encode", "SHA-256", "crc32c", "join, zstd", "write, fsync",
    }  # fmt: skip
    assert all(value > 0 for value in seconds.values())
    with (tmp_path / "calls").open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        stored = reader.read().replace(b"\n", b"")
    assert stored == b"".join(orjson.dumps(session.state) for session in sessions)


def test_the_table_sets_the_floor_beside_the_stream_and_the_bare_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    commit_floor.main(["--sessions", "2", "--repeat", "1"])
    printed = capsys.readouterr().out
    for what in ("check of types", "floor", "stream", "bare"):
        assert printed.count(f"│ {what} ") == len(sets.NAMES), what
