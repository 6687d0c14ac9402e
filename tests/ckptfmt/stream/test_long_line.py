from __future__ import annotations

import random

import pytest

from ckptfmt import wire
from ckptfmt.errors import CkptError, CorruptError, DataError
from ckptfmt.stream import BytesSource, LongLine, Loss, StoredLine, StreamReader
from ckptfmt.stream.block import LARGE_BYTES
from tests.support.streams import WatchedSource, build, facts_of, parts_of

LONG = "aé€𝄞".encode() * (LARGE_BYTES // 8)
LINES = {
    "0": b'"short"',
    "1": b'"%b"' % LONG,
    "2": b'"%b"' % bytes(random.Random(2).choices(range(0x30, 0x7B), k=LARGE_BYTES)),
    "3": b"x" * (LARGE_BYTES - 1),
    "4": b"x" * LARGE_BYTES,
}
LONG_ORDINALS = [1, 2, 4]


def told(stream: StreamReader, *, held: bool) -> list[bytes] | type[CkptError]:
    """All lines, held or not, or what was raised for them."""
    try:
        if held:
            return [stored.line for stored in stream.lines()]
        return [b"".join(pieces_of(stored)) for stored in stream.lines_or_long()]
    except DataError as error:
        return type(error)


def pieces_of(stored: StoredLine | LongLine) -> list[bytes]:
    return list(stored.pieces()) if isinstance(stored, LongLine) else [stored.line]


def test_what_is_long_comes_in_pieces_and_is_the_same() -> None:
    data, summary = build(LINES)
    with StreamReader(BytesSource(data), facts_of(summary)) as reader:
        found = list(reader.lines_or_long())
        assert [stored.ordinal for stored in found if isinstance(stored, LongLine)] == LONG_ORDINALS
        assert [b"".join(pieces_of(stored)) for stored in found] == list(LINES.values())
        assert [stored.size_bytes for stored in found] == list(map(len, LINES.values()))
        assert reader.sha256 == summary.sha256
        for stored, (key, line) in zip(found, LINES.items(), strict=True):
            got = reader.get_or_long(key)
            assert isinstance(got, LongLine) is isinstance(stored, LongLine)
            assert (got.held().line if isinstance(got, LongLine) else got) == line


def test_pieces_are_small_and_cut_between_characters() -> None:
    data, _ = build(LINES)
    with StreamReader(BytesSource(data)) as reader:
        for stored in reader.lines_or_long():
            for piece in pieces_of(stored):
                assert isinstance(stored, StoredLine) or len(piece) <= (1 << 20) + 3
                piece.decode()


def test_of_a_long_line_little_is_read_at_once() -> None:
    source = WatchedSource(build(LINES)[0])
    with StreamReader(source) as reader:
        line = reader.get_or_long("2")
        assert isinstance(line, LongLine)
        assert b"".join(line.pieces()) == LINES["2"]
    assert max(size_bytes for _, size_bytes in source.requests) <= 1 << 20


def test_damage_is_found_where_a_line_is_not_held_as_well() -> None:
    """Every byte of the pieces and a sample of the frames."""
    data, summary = build({"0": b"1", "1": LINES["1"]})
    places = random.Random(3).sample(range(len(data)), 80)
    frame = next(part for part in parts_of(data) if part.tag == wire.TAG_BLOCK)
    for place in [*places, *range(frame.offset, frame.frame_offset)]:
        bad = bytearray(data)
        bad[place] ^= 1 << place % 8
        for facts in (None, facts_of(summary)):
            with StreamReader(BytesSource(bytes(bad)), facts) as reader:
                assert told(reader, held=False) == told(reader, held=True), place


@pytest.mark.parametrize("back", [1, 5, 4_000])
def test_what_salvage_finds_of_a_long_line_is_the_same(back: int) -> None:
    """The frame's own checksum is its last four bytes; without it a line can be whole."""
    data, _ = build({"0": b"1", "1": LINES["2"], "2": b"2"})
    block = [part for part in parts_of(data) if part.tag == wire.TAG_BLOCK][1]
    bad = bytearray(data)
    bad[block.end - back] ^= 0xFF
    with StreamReader(BytesSource(bytes(bad))) as reader:
        held = list(reader.salvage())
        found = [
            item.held() if isinstance(item, LongLine) else item for item in reader.salvage_or_long()
        ]
    assert found == held
    lines = [item.line for item in held if isinstance(item, StoredLine)]
    assert lines == ([b"1", LINES["2"], b"2"] if back == 1 else [b"1", b"2"])
    losses = [item.location.ordinal for item in held if isinstance(item, Loss)]
    assert losses == ([] if back == 1 else [1])


def test_a_frame_that_is_cut_off_is_a_loss() -> None:
    data, _ = build({"1": LINES["2"]})
    with StreamReader(BytesSource(data[: len(data) // 2])) as reader:
        assert all(isinstance(item, Loss) for item in reader.salvage_or_long())


def test_a_file_that_changes_after_the_check_is_an_error_in_the_end() -> None:
    data, _ = build(LINES)

    class Changing(WatchedSource):
        def read_at(self, offset: int, size_bytes: int) -> bytes:
            self._data = changed if line is not None else data
            return super().read_at(offset, size_bytes)

    block = [part for part in parts_of(data) if part.tag == wire.TAG_BLOCK][2]
    changed = data[: block.end - 1000] + bytes(1000) + data[block.end :]
    line: bytes | LongLine | None = None
    with StreamReader(Changing(data)) as reader:
        line = reader.get_or_long("2")
        assert isinstance(line, LongLine)
        with pytest.raises(CorruptError, match="frame") as caught:
            list(line.pieces())
    assert caught.value.location.ordinal == 2
