"""Tools that know nothing of this format read its streams."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.streams import build
from tests.support.tools import require_module, require_tool

COUNT = 300


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of many blocks, as a file."""
    data, summary = build(
        {f"{n:03d}": _line(n) for n in range(COUNT)}, block_target_bytes=4000, level=3
    )
    assert summary.blocks > 5
    path = tmp_path_factory.mktemp("stream") / "records.jsonl.zst"
    path.write_bytes(data)
    return path


def _line(number: int) -> bytes:
    record = {"n": number, "text": "\u2028é" * (number % 7), "list": [0.1, None, {"k": "v"}]}
    return json.dumps(record, ensure_ascii=number % 2 == 0).encode()


def _run(*command: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(command, input=stdin, capture_output=True, check=True).stdout


def test_zstd_gives_strict_json_lines(stream: Path) -> None:
    """F1 and F2."""
    out = _run(require_tool("zstd"), "-dc", str(stream))
    assert out == b"".join(_line(number) + b"\n" for number in range(COUNT))
    assert not out.startswith(b"\xef\xbb\xbf")
    lines = out.decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line)["n"] for line in lines] == list(range(COUNT))


def test_zstd_finds_the_file_sound(stream: Path) -> None:
    _run(require_tool("zstd"), "-qt", str(stream))


def test_zstd_reads_a_stream_without_records(tmp_path: Path) -> None:
    """F3."""
    (tmp_path / "x.zst").write_bytes(build({})[0])
    assert _run(require_tool("zstd"), "-dc", str(tmp_path / "x.zst")) == b""


def test_jq_reads_every_record(stream: Path) -> None:
    out = _run(require_tool("zstd"), "-dc", str(stream))
    found = _run(require_tool("jq"), "-c", "[.n, .list[2].k]", stdin=out)
    assert found.decode().split() == [f'[{n},"v"]' for n in range(COUNT)]


def test_sha256sum_agrees_with_the_summary(tmp_path: Path) -> None:
    data, summary = build({"a": b"{}"})
    (tmp_path / "x").write_bytes(data)
    (tmp_path / "sums").write_text(f"{summary.sha256}  {tmp_path / 'x'}\n")
    _run(require_tool("sha256sum"), "-c", str(tmp_path / "sums"))


def _module(name: str) -> Any:
    require_module(name)
    return importlib.import_module(name)


def test_polars_reads_every_record(stream: Path) -> None:
    frame = _module("polars").read_ndjson(stream)
    assert frame["n"].to_list() == list(range(COUNT))
    assert frame["text"].to_list() == [json.loads(_line(n))["text"] for n in range(COUNT)]


def test_duckdb_reads_every_record(stream: Path) -> None:
    duckdb = _module("duckdb")
    rows = duckdb.sql(
        f"select n, text from read_ndjson('{stream}', compression = 'zstd') order by n"
    ).fetchall()
    assert rows == [(n, json.loads(_line(n))["text"]) for n in range(COUNT)]
