from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt import wire
from ckptfmt.errors import CorruptError, DataError, MissingError, StateError, TornError
from ckptfmt.stream import BytesSource, FileSource, StreamReader, StreamWriter
from ckptfmt.stream.framing import BlockHeader
from ckptfmt.testing.os_faults import forked
from tests.support.streams import (
    UUID,
    WatchedSource,
    build,
    facts_of,
    lines_of,
    parts_of,
    records,
)

KEYS = st.text(
    st.characters(exclude_categories=["Cs"]),  # no lone surrogates
    min_size=1,
    max_size=12,
)
LINES = st.binary(min_size=1, max_size=120).map(
    lambda line: line.replace(b"\n", b"n").replace(b"\r", b"r")
)


@given(st.dictionaries(KEYS, LINES, max_size=40), st.integers(1, 300), st.integers(1, 3))
def test_any_records_come_back_at_any_block_size(
    lines: dict[str, bytes], target: int, threads: int
) -> None:
    data, summary = build(lines, block_target_bytes=target, threads=threads)
    assert lines_of(data, facts_of(summary)) == list(lines.values())
    with StreamReader(BytesSource(data)) as reader:
        assert [(entry.key, entry.ordinal) for entry in reader.entries()] == sorted(
            (key, ordinal) for ordinal, key in enumerate(lines)
        )
        for ordinal, (key, line) in enumerate(lines.items()):
            assert reader.get(key) == reader.at(ordinal) == line
        assert list(reader.digests()) == [
            hashlib.sha256(line).digest()[:16] for line in lines.values()
        ]


def test_a_stored_line_says_where_it_stands() -> None:
    data, _ = build(records(9), block_target_bytes=64)
    with StreamReader(BytesSource(data)) as reader:
        stored = list(reader.lines())
        entries = {entry.ordinal: entry for entry in reader.entries()}
    assert [line.ordinal for line in stored] == list(range(9))
    assert [line.offset for line in stored] == [entries[number].offset for number in range(9)]
    blocks = [part.offset for part in parts_of(data) if part.tag == wire.TAG_BLOCK]
    assert [blocks[line.block] for line in stored] == [
        entries[number].block_offset for number in range(9)
    ]


def test_lines_larger_than_what_is_read_ahead_come_back_among_small_ones() -> None:
    """F4, in small."""
    source = random.Random(4)
    sizes = [10, 5 << 20, 20, 4 << 20, 6 << 20, 30, 40]
    lines = {
        f"{number}": b'"%s"' % source.randbytes(size // 2).hex().encode()
        for number, size in enumerate(sizes)
    }
    data, summary = build(lines)
    assert lines_of(data, facts_of(summary)) == list(lines.values())
    with StreamReader(WatchedSource(data)) as reader:
        assert [reader.get(key) for key in lines] == list(lines.values())


def test_a_large_block_of_several_records_comes_back() -> None:
    line = b'"%s"' % (b"ab" * 600_000)
    lines = {f"{number}": line for number in range(12)}
    data, _ = build(lines, block_target_bytes=8 << 20)
    assert lines_of(data) == list(lines.values())


def test_the_head_costs_one_request() -> None:
    data, _ = build(records(3), level=4)
    source = WatchedSource(data)
    head = StreamReader(source).head()
    assert (head.uuid, head.kind, head.instance) == (UUID, "model", "vllm-0")
    assert (head.checkpoint_id, head.level, head.window_log) == ("step-12", 4, 23)
    assert len(source.requests) == 1


@pytest.mark.parametrize("known", [True, False])
def test_one_record_of_many_costs_three_requests_or_four_without_the_manifest(
    known: bool,
) -> None:
    lines = {f"{number:05d}": b'{"n":%d}' % number for number in range(5000)}
    data, summary = build(lines, block_target_bytes=1000)
    facts = facts_of(summary) if known else None
    # 01024 is the first key of a page, 04999 the last of all.
    for key in ("00000", "01023", "01024", "03333", "04999"):
        for look_up in (StreamReader.get, lambda reader, key: reader.at(int(key))):
            source = WatchedSource(data)
            assert look_up(StreamReader(source, facts), key) == lines[key]
            assert len(source.requests) == (3 if known else 4)
            assert sum(size for _, size in source.requests) < 64 << 10


def test_records_are_found_by_ordinal_though_the_keys_are_not_in_order() -> None:
    keys = [f"{number}" for number in range(2500)]
    random.Random(1).shuffle(keys)
    data, _ = build({key: key.encode() for key in keys})
    with StreamReader(BytesSource(data)) as reader:
        assert [reader.at(number) for number in (0, 1030, 2499)] == [
            keys[number].encode() for number in (0, 1030, 2499)
        ]


@pytest.mark.parametrize("key", ["", "0", "5", "999999", "\U0010ffff", "\ud800"])
@pytest.mark.parametrize("count", [0, 3, 3000])
def test_a_key_that_no_record_has_is_missing(key: str, count: int) -> None:
    data, _ = build({f"{number}-": b"{}" for number in range(count)})
    with StreamReader(BytesSource(data, "x")) as reader:
        with pytest.raises(MissingError) as caught:
            reader.get(key)
        assert (caught.value.location.key, caught.value.location.file) == (key, "x")
        for ordinal in (-1, count, 2**70):
            with pytest.raises(MissingError):
                reader.at(ordinal)


def test_the_sha256_is_known_at_the_end_and_not_before() -> None:
    data, summary = build(records(5))
    reader = StreamReader(BytesSource(data))
    with pytest.raises(StateError):
        _ = reader.sha256
    list(reader.lines())
    assert reader.sha256 == summary.sha256


def test_several_reads_of_one_reader_do_not_disturb_each_other() -> None:
    lines = records(30)
    data, _ = build(lines, block_target_bytes=64)
    with StreamReader(BytesSource(data)) as reader:
        pairs = list(zip(reader.lines(), reader.lines(), reader.digests(), strict=True))
        assert [reader.get(key) for key in lines] == list(lines.values())
    assert [first.line for first, _, _ in pairs] == list(lines.values())
    assert all(first == second for first, second, _ in pairs)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_lines_can_be_left_at_any_point_without_leaving_threads(count: int) -> None:
    data, _ = build(records(40), block_target_bytes=32)
    reader = StreamReader(BytesSource(data))
    lines = reader.lines()
    for _ in range(count):
        next(lines)
    lines.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("ckptfmt-")]


def test_a_child_of_fork_is_refused_the_rest_and_begins_anew() -> None:
    """S33: the thread that reads ahead is not in it."""
    data, _ = build(records(40), block_target_bytes=32)
    reader = StreamReader(BytesSource(data))
    lines = reader.lines()
    next(lines)

    def child() -> None:
        with pytest.raises(StateError):
            list(lines)
        assert len(list(reader.lines())) == 40

    assert forked(child) == 0
    assert len(list(lines)) == 39


def test_a_reader_closes_its_source() -> None:
    data, _ = build({})
    source = WatchedSource(data)
    with StreamReader(source):
        assert not source.closed
    assert source.closed


def test_a_line_is_an_object_of_its_own() -> None:
    data, _ = build(records(10))
    for stored in StreamReader(BytesSource(data)).lines():
        assert type(stored.line) is bytes


def test_a_file_and_ranges_give_the_same_records_and_the_same_errors(tmp_path: Path) -> None:
    """F7: and F53, a damage has one class however it is met."""
    lines = records(20)
    data, _ = build(lines, block_target_bytes=100)
    source = random.Random(7)
    for _ in range(60):
        damaged = bytearray(data[: source.choice([len(data), source.randrange(len(data))])])
        if source.random() < 0.8 and damaged:
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
        path = tmp_path / "records.zst"
        path.write_bytes(damaged)
        found = [
            _outcome(FileSource.open(path)),
            _outcome(WatchedSource(bytes(damaged), str(path))),
            _outcome(BytesSource(bytes(damaged), str(path))),
        ]
        assert found[0] == found[1] == found[2]


def _outcome(source: FileSource | WatchedSource | BytesSource) -> list[object]:
    found: list[object] = []
    with StreamReader(source) as reader:
        try:
            found += [stored.line for stored in reader.lines()]
        except DataError as error:
            found += [error.code, str(error)]
        try:
            found.append(reader.get("007-key"))
        except DataError as error:
            found += [error.code, str(error)]
    return found


CALLS: list[Callable[[StreamReader], object]] = [
    StreamReader.head,
    lambda reader: next(reader.lines()),
    lambda reader: reader.get("007-key"),
    lambda reader: reader.at(0),
    lambda reader: next(iter(reader.entries())),
    lambda reader: next(iter(reader.digests())),
]


def test_sizes_are_judged_against_the_manifest_before_anything_is_read() -> None:
    """F37."""
    data, summary = build(records(20))
    facts = facts_of(summary)
    for size, error in ((len(data) - 1, TornError), (0, TornError), (len(data) + 9, CorruptError)):
        source = WatchedSource(data.ljust(size, b"x")[:size])
        reader = StreamReader(source, facts)
        for call in CALLS:
            with pytest.raises(error) as caught:
                call(reader)
            assert f"{size} bytes" in caught.value.message
            assert f"says {len(data)}" in caught.value.message
            assert caught.value.location.offset == min(size, len(data))
        assert source.requests == []


@pytest.mark.parametrize(
    "change", ["records", "blocks", "raw_bytes", "index_offset", "index_length"]
)
def test_a_manifest_that_states_another_number_is_noticed(change: str) -> None:
    """F35."""
    data, summary = build(records(20))
    facts = facts_of(summary)
    wrong = replace(facts, **{change: getattr(facts, change) - 1})
    with pytest.raises(CorruptError):
        lines_of(data, wrong)
    with pytest.raises(CorruptError):
        StreamReader(BytesSource(data), wrong).get("007-key")


def test_one_damaged_record_is_named_and_its_neighbours_are_served() -> None:
    """F33 and F39: the block decodes, one record disagrees with its crc32c."""
    lines = records(20)
    data, _ = build(lines, block_target_bytes=100)
    part = [part for part in parts_of(data) if part.tag == wire.TAG_BLOCK][1]
    header = BlockHeader.decode(data[part.offset : part.frame_offset])
    crcs = [crc ^ (index == 1) for index, crc in enumerate(header.crcs)]
    piece = replace(header, crcs=tuple(crcs)).encode()
    damaged = data[: part.offset] + piece + data[part.frame_offset :]
    victim = header.first_ordinal + 1
    reader = StreamReader(BytesSource(damaged, "records.zst"))
    served = []
    with pytest.raises(CorruptError, match="crc32c of the record line") as caught:
        served += [stored.ordinal for stored in reader.lines()]
    where = caught.value.location
    assert (where.file, where.block, where.offset) == ("records.zst", 1, part.offset)
    assert (where.ordinal, where.key) == (victim, list(lines)[victim])
    assert "records.zst" in str(caught.value)
    for ordinal, (key, line) in enumerate(lines.items()):
        if ordinal != victim:
            assert reader.get(key) == line
    with pytest.raises(CorruptError) as caught:
        reader.get(list(lines)[victim])
    assert caught.value.location == where


def test_a_reader_runs_ahead_by_a_few_blocks_only() -> None:
    noise = random.Random(8)
    data, _ = build({f"{n}": noise.randbytes(1 << 19).hex().encode() for n in range(40)})
    source = WatchedSource(data)
    lines = StreamReader(source).lines()
    next(lines)
    lines.close()
    assert len(data) > 20 << 20
    assert max(offset + size for offset, size in source.requests) <= 8 << 20


def test_an_unfinished_file_is_torn(tmp_path: Path) -> None:
    with (
        (tmp_path / "x").open("wb") as sink,
        StreamWriter(sink, kind="model", instance="a", checkpoint_id="b") as writer,
    ):
        writer.add("a", (b"{}",))
        writer.flush()
    with StreamReader(FileSource.open(tmp_path / "x")) as reader:
        with pytest.raises(TornError):
            list(reader.lines())
        with pytest.raises(TornError):
            reader.get("a")
