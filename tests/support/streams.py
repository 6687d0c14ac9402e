"""Streams for tests: built whole, taken apart into pieces, read through watching sources."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ckptfmt import wire
from ckptfmt.errors import TornError
from ckptfmt.stream import (
    BytesSource,
    LongLine,
    StreamFacts,
    StreamReader,
    StreamSummary,
    StreamWriter,
)
from ckptfmt.stream.framing import PREFIX_BYTES, BlockHeader, Prefix

__all__ = [
    "UUID",
    "Part",
    "WatchedSource",
    "build",
    "facts_of",
    "lines_of",
    "long_line",
    "parts_of",
    "records",
]

UUID = bytes(range(16))


def records(count: int) -> dict[str, bytes]:
    """``count`` small records; keys do not ascend with the ordinals."""
    return {
        f"{number * 7919 % count:03d}-key": b'{"n":%d,"text":"%s"}' % (number, b"ab" * (number % 9))
        for number in range(count)
    }


def build(lines: Mapping[str, bytes], **options: Any) -> tuple[bytes, StreamSummary]:
    """The bytes of a stream of these lines by key, and what its writer says of it."""
    out = io.BytesIO()
    identity = {"kind": "model", "instance": "vllm-0", "checkpoint_id": "step-12", "uuid": UUID}
    with StreamWriter(out, **(identity | options)) as writer:
        for key, line in lines.items():
            writer.add(key, (line[:3], line[3:]))
        summary = writer.close()
    return out.getvalue(), summary


def facts_of(summary: StreamSummary) -> StreamFacts:
    """What a manifest would keep of the summary."""
    return StreamFacts(
        **{field.name: getattr(summary, field.name) for field in fields(StreamFacts)}
    )


def lines_of(data: bytes, facts: StreamFacts | None = None) -> list[bytes]:
    """All lines, read strictly."""
    with StreamReader(BytesSource(data, "records.zst"), facts) as reader:
        return [stored.line for stored in reader.lines()]


def long_line(text: bytes, piece_chars: int) -> LongLine:
    """As a reader gives it, but of any text, in pieces of so many characters."""
    shown = text.decode(errors="surrogateescape")
    pieces = [
        shown[start : start + piece_chars].encode(errors="surrogateescape")
        for start in range(0, len(shown), piece_chars)
    ]
    return LongLine(0, 0, len(text), bytes(16), lambda: iter(pieces))


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a stream; ``end`` is behind the zstd frame, where one follows."""

    tag: bytes
    offset: int
    size_bytes: int
    end: int

    @property
    def frame_offset(self) -> int:
        """Where the zstd frame of a block begins."""
        return self.offset + self.size_bytes


def parts_of(data: bytes) -> list[Part]:
    """The pieces of a whole stream."""
    return list(_walk(data))


def _walk(data: bytes) -> Iterator[Part]:
    offset = len(wire.EMPTY_ZSTD_FRAME)
    while offset < len(data):
        prefix = Prefix.decode(data[offset : offset + PREFIX_BYTES])
        end = offset + prefix.size_bytes
        if prefix.tag == wire.TAG_BLOCK:
            end += BlockHeader.decode(data[offset:end]).stored_bytes
        yield Part(prefix.tag, offset, prefix.size_bytes, end)
        offset = end


class WatchedSource:
    """A remote file: counts requests and bytes, and gives short answers as errors."""

    def __init__(self, data: bytes, name: str = "records.zst") -> None:
        self._data = data
        self.name = name
        self.size_bytes = len(data)
        self.requests: list[tuple[int, int]] = []
        self.closed = False

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """See RangeSource."""
        self.requests.append((offset, size_bytes))
        if offset + size_bytes > len(self._data):
            raise TornError("the range is not there").at(file=self.name, offset=offset)
        return self._data[offset : offset + size_bytes]

    def close(self) -> None:
        """See RangeSource."""
        self.closed = True
