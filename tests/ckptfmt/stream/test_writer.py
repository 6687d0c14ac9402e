from __future__ import annotations

import hashlib
import io
import random
import threading
from collections.abc import Callable

import msgspec
import pytest

from ckptfmt import wire
from ckptfmt.errors import (
    CkptError,
    DuplicateKeyError,
    NameRefusedError,
    RefusedError,
    SizeError,
    StateError,
    StorageFailedError,
    TransientError,
)
from ckptfmt.stream import StreamWriter
from ckptfmt.stream.framing import BlockHeader
from ckptfmt.testing.os_faults import forked
from tests.support.streams import build, lines_of, parts_of, records

IDENTITY = {"kind": "model", "instance": "vllm-0", "checkpoint_id": "step-12"}


class Disk:
    """A sink that fails from a certain write on, and can be made to wait."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.data = b""
        self.flushes = 0
        self.gate = threading.Event()
        self.gate.set()
        self._left = fails_at

    def write(self, data: bytes) -> None:
        self.gate.wait()
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise StorageFailedError("no space left")
        self.data += data

    def flush(self) -> None:
        self.flushes += 1


def _writer(sink: object, **options: object) -> StreamWriter:
    return StreamWriter(sink, **(IDENTITY | options))  # type: ignore[arg-type]


def _blocks(data: bytes) -> list[BlockHeader]:
    return [
        BlockHeader.decode(data[part.offset : part.frame_offset])
        for part in parts_of(data)
        if part.tag == wire.TAG_BLOCK
    ]


def test_the_pieces_of_a_line_are_joined_and_nothing_else_is_changed() -> None:
    sink = io.BytesIO()
    with _writer(sink) as writer:
        writer.add("a", (b'{"x":', msgspec.Raw(b"[1, 2]"), b"}"))
        writer.add("b", (b"{}",))
        writer.close()
    assert lines_of(sink.getvalue()) == [b'{"x":[1, 2]}', b"{}"]


def test_a_stream_without_records_is_whole() -> None:
    """F3."""
    data, summary = build({})
    assert lines_of(data) == []
    assert [part.tag for part in parts_of(data)] == [wire.TAG_HEAD, wire.TAG_INDEX, wire.TAG_END]
    assert (summary.records, summary.blocks, summary.raw_bytes) == (0, 0, 0)
    assert summary.content_digest == hashlib.sha256().digest()


def test_the_summary_is_what_the_file_is() -> None:
    lines = records(50)
    data, summary = build(lines, block_target_bytes=200)
    assert summary.size_bytes == len(data)
    assert summary.sha256 == hashlib.sha256(data).hexdigest()
    assert summary.records == 50
    assert summary.raw_bytes == sum(len(line) + 1 for line in lines.values())
    assert summary.blocks == len(_blocks(data)) > 3
    index = next(part for part in parts_of(data) if part.tag == wire.TAG_INDEX)
    assert (summary.index_offset, summary.index_length) == (index.offset, index.size_bytes)


def test_blocks_are_dense_and_closed_at_the_target() -> None:
    data, _ = build(records(60), block_target_bytes=300)
    blocks = _blocks(data)
    assert [block.number for block in blocks] == list(range(len(blocks)))
    assert [block.first_ordinal for block in blocks[1:]] == [b.next_ordinal for b in blocks[:-1]]
    assert all(300 <= block.raw_bytes < 600 for block in blocks[:-1])


def test_a_record_over_the_target_has_a_block_of_its_own() -> None:
    """F4."""
    lines = {"a": b'{"n":1}', "b": b'"%s"' % (b"x" * 1000), "c": b'{"n":3}', "d": b'{"n":4}'}
    data, _ = build(lines, block_target_bytes=500)
    assert [len(block.lengths) for block in _blocks(data)] == [1, 1, 2]
    assert lines_of(data) == list(lines.values())


def test_a_block_has_no_more_records_than_the_limit() -> None:
    """F5: a caller that never flushes."""
    lines = {f"{number:05x}": b"{}" for number in range(wire.MAX_BLOCK_RECORDS + 1)}
    data, _ = build(lines)
    assert [len(block.lengths) for block in _blocks(data)] == [wire.MAX_BLOCK_RECORDS, 1]


def test_order_and_content_digest_do_not_depend_on_threads_levels_or_blocks() -> None:
    """F6."""
    source = random.Random(6)
    lines = {
        f"{number}": b'"%s"' % source.randbytes(source.randrange(1, 3000)).hex().encode()
        for number in range(400)
    }
    digests = set()
    for options in ({}, {"threads": 4, "block_target_bytes": 1000}, {"level": 6, "threads": 1}):
        data, summary = build(lines, **options)
        assert lines_of(data) == list(lines.values())
        digests.add(summary.content_digest)
    rows = b"".join(
        len(line).to_bytes(8, "little") + hashlib.sha256(line).digest()[:16]
        for line in lines.values()
    )
    assert digests == {hashlib.sha256(rows).digest()}


def test_the_same_records_with_the_same_uuid_give_the_same_bytes() -> None:
    assert build(records(30), threads=3) == build(records(30), threads=1)


def test_streams_have_uuids_of_their_own() -> None:
    assert build({}, uuid=None)[0] != build({}, uuid=None)[0]


def test_a_content_digest_goes_on_over_several_streams() -> None:
    lines = records(20)
    content = hashlib.sha256()
    for start in (0, 12):
        build(dict(list(lines.items())[start : start + 12]), content=content)
    assert content.digest() == build(lines)[1].content_digest


def test_a_second_record_with_a_key_is_refused_at_once_and_the_stream_goes_on() -> None:
    """F8."""
    sink = io.BytesIO()
    with _writer(sink) as writer:
        writer.add("a", (b"1",))
        with pytest.raises(DuplicateKeyError) as caught:
            writer.add("a", (b"2",))
        assert caught.value.location.key == "a"
        writer.add("b", (b"3",))
        writer.close()
    assert lines_of(sink.getvalue()) == [b"1", b"3"]


@pytest.mark.parametrize("key", ["", "a" * 1025, "\N{SNOWMAN}" * 342, "\ud800"])
def test_a_key_that_cannot_be_stored_is_refused(key: str) -> None:
    with _writer(Disk()) as writer, pytest.raises(NameRefusedError):
        writer.add(key, (b"{}",))


@pytest.mark.parametrize("key", ["a", "a" * 1024, "\N{SNOWMAN}" * 341, "\N{GRINNING FACE}", "\0"])
def test_any_other_key_is_kept(key: str) -> None:
    data, _ = build({key: b"{}", "\ue000": b"1"})
    assert lines_of(data) == [b"{}", b"1"]


def test_a_line_over_the_limit_is_refused_without_being_touched() -> None:
    half = bytes(wire.MAX_RECORD_BYTES // 2)
    with _writer(Disk()) as writer, pytest.raises(SizeError):
        writer.add("a", (half, half, b"1"))


def test_an_empty_line_is_refused() -> None:
    with _writer(Disk()) as writer, pytest.raises(RefusedError):
        writer.add("a", (b"", b""))


@pytest.mark.parametrize("line", [(b"1\n",), (b"1", b"\r2"), (b"\n" + b"x" * (5 << 20),)])
def test_a_line_break_in_a_line_ends_the_stream(line: tuple[bytes, ...]) -> None:
    sink = Disk()
    with _writer(sink) as writer:
        writer.add("a", (b"1",))
        writer.add("b", line)
        with pytest.raises(RefusedError, match="line break") as caught:
            writer.close()
        assert caught.value.location.ordinal == 1
    assert wire.TAG_END not in sink.data


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "a/b"},
        {"instance": ""},
        {"checkpoint_id": "x" * 129},
        {"level": 20},
        {"block_target_bytes": 0},
        {"block_target_bytes": (8 << 20) + 1},
    ],
)
def test_arguments_out_of_range_are_refused_before_a_byte_is_written(
    options: dict[str, object],
) -> None:
    sink = Disk()
    with pytest.raises(RefusedError):
        _writer(sink, **options)
    assert sink.data == b""


@pytest.mark.parametrize("fails_at", range(1, 8))
@pytest.mark.parametrize("end", ["close", "flush"])
def test_the_first_error_of_the_sink_ends_the_stream(fails_at: int, end: str) -> None:
    sink = Disk(fails_at)

    def write(writer: StreamWriter) -> None:
        for key, line in records(12).items():
            writer.add(key, (line,))
        getattr(writer, end)()
        writer.close()

    with _writer(sink, block_target_bytes=64) as writer:
        with pytest.raises(StorageFailedError) as caught:
            write(writer)
        size = len(sink.data)
        for call in (lambda: writer.add("z", (b"1",)), writer.flush, writer.close):
            with pytest.raises(CkptError) as again:
                call()
            assert again.value is caught.value or isinstance(again.value, StateError)
    assert len(sink.data) == size
    assert wire.TAG_END not in sink.data


def test_a_sink_that_takes_less_than_all_is_an_error() -> None:
    class Short(Disk):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            return len(data) - 1

    with pytest.raises(StorageFailedError, match="took"):
        _writer(Short())


def test_flush_hands_over_all_records_and_flushes_the_sink() -> None:
    """F5: what another process finds after it is proved in test_salvage."""
    sink = Disk()
    with _writer(sink) as writer:
        writer.flush()
        assert sink.flushes == 1
        writer.add("a", (b"1",))
        writer.flush()
        blocks = sink.data.count(wire.TAG_BLOCK)
        assert (blocks, sink.flushes) == (1, 2)
        writer.add("b", (b"2",))
        writer.close()
    assert lines_of(sink.data) == [b"1", b"2"]


def test_an_exception_in_the_block_leaves_an_incomplete_file() -> None:
    sink = Disk()

    def fail() -> None:
        with _writer(sink) as writer:
            writer.add("a", (b"1",))
            writer.flush()
            raise KeyError("a bug elsewhere")

    with pytest.raises(KeyError):
        fail()
    assert wire.TAG_BLOCK in sink.data
    assert wire.TAG_INDEX not in sink.data


@pytest.mark.parametrize("end", [StreamWriter.close, StreamWriter.abandon])
def test_nothing_can_be_done_after_the_end(end: Callable[[StreamWriter], object]) -> None:
    sink = Disk()
    writer = _writer(sink)
    end(writer)
    size = len(sink.data)
    for call in (lambda: writer.add("a", (b"1",)), writer.flush, writer.close):
        with pytest.raises(StateError):
            call()
    writer.abandon()
    assert len(sink.data) == size


def test_abandoned_while_the_sink_is_slow_nothing_more_is_written() -> None:
    sink = Disk()
    writer = _writer(sink, block_target_bytes=16)
    sink.gate.clear()
    for key, line in records(50).items():
        writer.add(key, (line,))
    threading.Timer(0.05, sink.gate.set).start()
    writer.abandon()
    size = len(sink.data)
    assert sink.data.count(wire.TAG_BLOCK) <= 1
    assert not _worker_threads()
    assert len(sink.data) == size


def test_no_thread_outlives_the_writer() -> None:
    build(records(50), block_target_bytes=50)
    assert not _worker_threads()


def _worker_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("ckptfmt-")]


def test_a_thread_that_cannot_be_started_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that no thread takes is not left out of what goes on."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with _writer(Disk(), block_target_bytes=1) as writer:
        with monkeypatch.context() as patch:
            patch.setattr("threading.Thread.start", refuse)
            with pytest.raises(TransientError, match="thread"):
                writer.add("a", (b"1",))
        for attempt in (lambda: writer.add("b", (b"1",)), writer.flush, writer.close):
            with pytest.raises(TransientError, match="thread"):
                attempt()


def test_a_child_of_fork_is_refused_and_waits_for_nothing() -> None:
    """S33: the threads that it would wait for are not in it."""
    disk = Disk()
    with _writer(disk, block_target_bytes=1) as writer:
        disk.gate.clear()
        writer.add("a", (b"1",))

        def child() -> None:
            with writer:
                for attempt in (lambda: writer.add("b", (b"1",)), writer.flush, writer.close):
                    with pytest.raises(StateError):
                        attempt()

        assert forked(child) == 0
        disk.gate.set()
        assert writer.close().records == 1
