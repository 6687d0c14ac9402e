from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt import wire
from ckptfmt.stream import BytesSource, FileSource, Loss, StoredLine, StreamWriter, salvage
from ckptfmt.stream.framing import BlockHeader
from tests.support.streams import build, parts_of, records

LINES = records(40)
EXPECTED = list(LINES.values())
DATA, SUMMARY = build(LINES, block_target_bytes=150)
BLOCKS = [part for part in parts_of(DATA) if part.tag == wire.TAG_BLOCK]


def _split(data: bytes) -> tuple[list[StoredLine], list[Loss]]:
    found = list(salvage(BytesSource(data, "records.zst")))
    lines = [item for item in found if isinstance(item, StoredLine)]
    losses = [item for item in found if isinstance(item, Loss)]
    return lines, losses


def _ordinals(lines: Iterable[StoredLine]) -> list[int]:
    assert all(line.line == EXPECTED[line.ordinal] for line in lines)
    return [line.ordinal for line in lines]


def _header(number: int) -> BlockHeader:
    block = BLOCKS[number]
    return BlockHeader.decode(DATA[block.offset : block.frame_offset])


def _without(number: int) -> list[int]:
    header = _header(number)
    return [*range(header.first_ordinal), *range(header.next_ordinal, len(LINES))]


def test_a_whole_stream_gives_all_and_no_loss() -> None:
    lines, losses = _split(DATA)
    assert _ordinals(lines) == list(range(40))
    assert losses == []


def test_a_stream_without_index_and_end_gives_every_record() -> None:
    """F42."""
    for cut in (SUMMARY.index_offset, BLOCKS[-1].end, len(DATA) - 1):
        lines, losses = _split(DATA[:cut])
        assert _ordinals(lines) == list(range(40))
        assert losses
        assert all(loss.records is None for loss in losses)
        assert losses[-1].location.offset == cut


@pytest.mark.parametrize("number", range(len(BLOCKS)))
@pytest.mark.parametrize("part", ["header", "frame"])
def test_damage_inside_a_block_costs_that_block_only(number: int, part: str) -> None:
    """F43."""
    block = BLOCKS[number]
    start = block.offset if part == "header" else block.frame_offset
    damaged = DATA[: start + 4] + b"damage" + DATA[start + 10 :]
    lines, losses = _split(damaged)
    assert _ordinals(lines) == _without(number)
    header = _header(number)
    count = len(header.lengths)
    assert sum(loss.records or 0 for loss in losses) == count
    (counted,) = [loss for loss in losses if loss.records]
    assert counted.location.ordinal == header.first_ordinal
    place = losses[0]
    assert place.location.offset == block.offset
    assert place.location.file == "records.zst"
    assert place.end_offset == block.end


def test_damage_in_the_middle_of_a_frame_costs_the_records_it_hits() -> None:
    noise = random.Random(11)
    lines = {f"{n}": noise.randbytes(20_000).hex().encode() for n in range(12)}
    data, _ = build(lines)
    (block,) = [part for part in parts_of(data) if part.tag == wire.TAG_BLOCK]
    middle = (block.frame_offset + block.end) // 2
    damaged = bytearray(data)
    damaged[middle] ^= 0xFF
    found, losses = _split(bytes(damaged))
    assert len(found) >= 6
    assert all(stored.line == lines[f"{stored.ordinal}"] for stored in found)
    lost = set(range(12)) - {stored.ordinal for stored in found}
    assert lost
    assert sum(loss.records or 0 for loss in losses) == len(lost)
    assert {loss.location.block for loss in losses} == {0}


def test_a_wrong_frame_checksum_costs_nothing() -> None:
    block = BLOCKS[1]
    damaged = DATA[: block.end - 1] + bytes([DATA[block.end - 1] ^ 1]) + DATA[block.end :]
    lines, _ = _split(damaged)
    assert _ordinals(lines) == list(range(40))


def test_one_record_with_a_wrong_crc_costs_that_record() -> None:
    """F33."""
    block, header = BLOCKS[2], _header(2)
    crcs = (header.crcs[0], header.crcs[1] ^ 1, *header.crcs[2:])
    piece = replace(header, crcs=crcs).encode()
    lines, losses = _split(DATA[: block.offset] + piece + DATA[block.frame_offset :])
    victim = header.first_ordinal + 1
    assert _ordinals(lines) == [n for n in range(40) if n != victim]
    (loss,) = losses
    assert (loss.records, loss.location.ordinal, loss.location.block) == (1, victim, 2)
    assert (loss.location.offset, loss.end_offset) == (block.offset, block.end)


@pytest.mark.parametrize("head", [0, 20, len(wire.EMPTY_ZSTD_FRAME)])
def test_a_lost_head_costs_nothing(head: int) -> None:
    damaged = DATA[:head] + b"x" * 30 + DATA[head + 30 :]
    lines, losses = _split(damaged)
    assert _ordinals(lines) == list(range(40))
    assert [loss.records for loss in losses] == [None]


@given(st.integers(0, len(DATA)), st.binary(min_size=1, max_size=80))
def test_bytes_too_many_cost_one_block_at_most(position: int, inserted: bytes) -> None:
    _assert_loses_little(DATA[:position] + inserted + DATA[position:], position, position)


@given(st.integers(0, len(DATA)), st.integers(1, 80))
def test_bytes_that_are_missing_cost_the_blocks_they_hit(position: int, size: int) -> None:
    _assert_loses_little(DATA[:position] + DATA[position + size :], position, position + size)


def _assert_loses_little(damaged: bytes, start: int, end: int) -> None:
    lines, _ = _split(damaged)
    found = _ordinals(lines)
    assert found == sorted(set(found))
    for number, block in enumerate(BLOCKS):
        if block.end <= start or end <= block.offset:
            header = _header(number)
            assert set(range(header.first_ordinal, header.next_ordinal)) <= set(found)


@given(st.data())
def test_any_damage_is_survived_without_a_lie(data: st.DataObject) -> None:
    damaged = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(damaged)))
        width = data.draw(st.integers(0, 200))
        damaged[position : position + width] = data.draw(st.binary(max_size=100))
    lines, _ = _split(bytes(damaged))
    _ordinals(lines)


def test_a_large_record_is_salvaged_and_judged() -> None:
    noise = random.Random(12)
    lines = {"a": b"{}", "b": noise.randbytes(3 << 20).hex().encode(), "c": b"[]"}
    data, _ = build(lines)
    block = [part for part in parts_of(data) if part.tag == wire.TAG_BLOCK][1]
    assert [stored.line for stored in _split(data)[0]] == list(lines.values())
    checksum_only = bytearray(data)
    checksum_only[block.end - 1] ^= 1
    assert [stored.line for stored in _split(bytes(checksum_only))[0]] == list(lines.values())
    inside = bytearray(data)
    inside[block.end - 100_000] ^= 0xFF
    found, losses = _split(bytes(inside))
    assert [stored.ordinal for stored in found] == [0, 2]
    assert [(loss.records, loss.location.ordinal) for loss in losses] == [(1, 1)]


def test_another_process_reads_the_flushed_records_of_an_unfinished_file(tmp_path: Path) -> None:
    """F5."""
    path = tmp_path / "records.jsonl.zst"
    program = (
        "import sys\n"
        "from ckptfmt.stream import FileSource, StoredLine, salvage\n"
        "for item in salvage(FileSource.open(sys.argv[1])):\n"
        "    if isinstance(item, StoredLine): print(item.ordinal, item.line.decode())\n"
    )
    with path.open("wb") as sink:
        writer = StreamWriter(sink, kind="model", instance="a", checkpoint_id="b")
        for number in range(30):
            writer.add(f"{number}", (b'{"n":%d}' % number,))
            if number in (9, 19):
                writer.flush()
        found = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        )
        writer.abandon()
    assert found.stderr == ""
    assert found.stdout.splitlines() == [f'{n} {{"n":{n}}}' for n in range(20)]


def test_the_last_block_of_an_unfinished_file_is_read_as_far_as_it_goes() -> None:
    noise = random.Random(13)
    lines = {f"{n}": noise.randbytes(40_000).hex().encode() for n in range(12)}
    data, _ = build(lines)
    (block,) = [part for part in parts_of(data) if part.tag == wire.TAG_BLOCK]
    cut = (block.frame_offset + block.end) // 2
    found, losses = _split(data[:cut])
    assert [stored.line for stored in found] == list(lines.values())[: len(found)]
    assert len(found) >= 4
    assert sum(loss.records or 0 for loss in losses) == 12 - len(found)


def test_salvage_only_reads(tmp_path: Path) -> None:
    """F45."""
    path = tmp_path / "records.jsonl.zst"
    path.write_bytes(DATA[:300] + b"damage" + DATA[306:])
    path.chmod(0o400)
    before = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns)
    with FileSource.open(path) as source:
        assert list(salvage(source))
    assert (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["records.jsonl.zst"]
