"""The strict walk over a whole stream.

A thread works ahead of the consumer: it reads, hashes the file, decodes blocks, and
cuts and checks their lines.  A block that is too large to be held twice, and what
follows the blocks, is left to the consumer's own thread; the walk pauses before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ckptfmt.errors import CkptError, CorruptError, DataError
from ckptfmt.stream.block import LARGE_BYTES, cut_lines, is_large, open_block, single_line
from ckptfmt.stream.diagnosis import check_size
from ckptfmt.stream.feed import Feed
from ckptfmt.stream.framing import PREFIX_BYTES, BlockHeader, Head, Prefix
from ckptfmt.stream.records import StoredLine, StreamFacts
from ckptfmt.stream.source import RangeSource
from ckptfmt.stream.tail import check_tail
from ckptfmt.stream.tally import Tally
from ckptfmt.wire import EMPTY_ZSTD_FRAME, TAG_BLOCK

__all__ = ["Scan", "read_head"]

# Blocks ahead of the consumer; with LARGE_BYTES this bounds what is held for it.
_AHEAD_BLOCKS: Final = 2


@dataclass(frozen=True, slots=True)
class _Block:
    """Where a block lies; as a step, one whose frame is still to be read."""

    header: BlockHeader
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a block up to the first that is damaged, and what is wrong with that."""

    lines: deque[StoredLine]
    error: CorruptError | None


class _EndOfBlocks:
    """What the walk gives when it meets another piece than BLCK."""


_Step = _Lines | _Block | _EndOfBlocks | None
"""None: the walk has paused."""


def read_head(feed: Feed) -> Head:
    """Take the empty frame and HEAD.

    Raises:
        TornError: the file ends before they do.
        CorruptError: they are damaged, or this is no stream at all.
        UnsupportedError: see :meth:`Head.decode`.
    """
    if feed.take(len(EMPTY_ZSTD_FRAME)) != EMPTY_ZSTD_FRAME:
        raise CorruptError("the file does not begin as a stream does").at(offset=0)
    offset = feed.offset
    try:
        piece, _ = feed.take_piece()
        return Head.decode(piece)
    except DataError as error:
        error.at(offset=offset)
        raise


class Scan:
    """One strict read of a stream from its first byte to its last."""

    def __init__(self, source: RangeSource, facts: StreamFacts | None, *, digests: bool) -> None:
        self._source = source
        self._facts = facts
        self._feed = Feed(source, whole=facts is not None)
        self._tally = Tally(digests=digests)
        self._uuid = b""
        self._paused = False
        self._next_block = 0
        self._next_ordinal = 0

    @property
    def sha256(self) -> str:
        """SHA-256 of the file in hex, once :meth:`lines` has ended."""
        return self._feed.sha256

    def lines(self) -> Iterator[StoredLine]:
        """The lines in order.

        Raises:
            DataError: at the first damage; where only the last piece is reached, of the index.
            StorageError: the store failed.
        """
        try:
            check_size(self._source, self._facts)
            self._uuid = read_head(self._feed).uuid
            yield from self._blocks()
            check_tail(self._feed, self._source, self._uuid, self._tally, self._facts)
        except CkptError as error:
            error.at(file=self._source.name)
            raise

    def _blocks(self) -> Iterator[StoredLine]:
        worker = ThreadPoolExecutor(1, "ckptfmt-read")
        ahead: deque[Future[_Step]] = deque()
        try:
            while True:
                while len(ahead) < _AHEAD_BLOCKS:
                    begun = threading.Event()
                    ahead.append(worker.submit(self._step, begun))
                # Decoding needs no interpreter lock, but the way there does, and a busy
                # consumer would not let go of it before its switch interval is over.
                begun.wait()
                item = ahead.popleft().result()
                if isinstance(item, _EndOfBlocks):
                    return
                if isinstance(item, _Block):
                    # The walk has paused, so what is ahead holds nothing; it ends before the
                    # feed is used from here.
                    while ahead:
                        ahead.popleft().result()
                    item = self._decode_here(item)
                    self._paused = False
                if item is not None:
                    yield from _drain(item)
        finally:
            worker.shutdown(cancel_futures=True)

    def _step(self, begun: threading.Event) -> _Step:
        # On the worker's thread.  Paused until proven that the next step may follow at
        # once: an error, a large block and the end of the blocks leave it so.
        offset = self._feed.offset
        try:
            if self._paused:
                return None
            self._paused = True
            if Prefix.decode(self._feed.peek(PREFIX_BYTES)).tag != TAG_BLOCK:
                return _EndOfBlocks()
            piece, _ = self._feed.take_piece()
            header = BlockHeader.decode(piece)
            self._check_sequence(header)
            self._feed.require(header.stored_bytes)
            block = _Block(header, offset, len(piece) + header.stored_bytes)
            if header.raw_bytes > LARGE_BYTES:
                return block
            frame = self._feed.take(header.stored_bytes)
            begun.set()
            lines = cut_lines(header, open_block(header, frame))
            self._paused = False
        except DataError as error:
            error.at(offset=offset)
            raise
        finally:
            begun.set()
        return self._judge(block, lines)

    def _check_sequence(self, header: BlockHeader) -> None:
        if header.uuid != self._uuid:
            raise CorruptError(
                f"a block of stream {header.uuid.hex()} in stream {self._uuid.hex()}"
            ).at(block=self._next_block)
        if (header.number, header.first_ordinal) != (self._next_block, self._next_ordinal):
            raise CorruptError(
                f"block {header.number} from ordinal {header.first_ordinal} on stands where block "
                f"{self._next_block} from ordinal {self._next_ordinal} on belongs"
            ).at(block=self._next_block)
        self._next_block += 1
        self._next_ordinal = header.next_ordinal

    def _decode_here(self, block: _Block) -> _Lines:
        header = block.header
        try:
            if is_large(header):
                return self._judge(block, [single_line(header, self._feed.take)])
            raw = open_block(header, self._feed.take(header.stored_bytes))
        except DataError as error:
            error.at(offset=block.offset)
            raise
        return self._judge(block, cut_lines(header, raw))

    def _judge(self, block: _Block, found: list[bytes | CorruptError]) -> _Lines:
        lines: list[bytes] = []
        error = None
        for line in found:
            if isinstance(line, CorruptError):
                error = line.at(offset=block.offset)
                break
            lines.append(line)
        else:
            self._tally.add(block.header, block.offset, block.size_bytes, lines)
        return _Lines(_stored(block.header, lines), error)


def _drain(block: _Lines) -> Iterator[StoredLine]:
    # One by one, so that a line that the consumer has let go is not kept here.
    while block.lines:
        yield block.lines.popleft()
    if block.error is not None:
        raise block.error


def _stored(header: BlockHeader, lines: list[bytes]) -> deque[StoredLine]:
    stored: deque[StoredLine] = deque()
    offset = 0
    for ordinal, line in enumerate(lines, header.first_ordinal):
        stored.append(StoredLine(ordinal, header.number, offset, line))
        offset += len(line) + 1
    return stored
