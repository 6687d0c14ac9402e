"""The strict walk over a whole stream.

A thread works ahead of the consumer: it reads, hashes the file, decodes blocks and
digests their lines; the consumer's own cuts and checks them.  A block that is too large
to be held twice, and what follows the blocks, is left to the consumer's thread altogether;
the walk pauses before it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, count
from typing import Final, TypeVar

from ckptfmt.errors import CkptError, CorruptError, DataError
from ckptfmt.stream.block import LARGE_BYTES, cut_lines, is_large, open_block, single_line
from ckptfmt.stream.diagnosis import check_size
from ckptfmt.stream.feed import Feed
from ckptfmt.stream.framing import PREFIX_BYTES, BlockHeader, Head, Prefix
from ckptfmt.stream.long_line import LongLine, verify_long
from ckptfmt.stream.records import StoredLine, StreamFacts
from ckptfmt.stream.source import RangeSource
from ckptfmt.stream.tail import check_tail
from ckptfmt.stream.tally import Tally
from ckptfmt.threads import HomeProcess, submit
from ckptfmt.wire import EMPTY_ZSTD_FRAME, TAG_BLOCK

__all__ = ["Scan", "read_head"]

_T = TypeVar("_T")

# Blocks ahead of the consumer; with LARGE_BYTES this bounds what is held for it.
_AHEAD_BLOCKS: Final = 2


@dataclass(frozen=True, slots=True)
class _Block:
    """Where a block lies, and its decoded bytes; None: its frame is still to be read."""

    header: BlockHeader
    offset: int
    size_bytes: int
    raw: bytes | None = None


class _EndOfBlocks:
    """What the walk gives when it meets another piece than BLCK."""


_Step = _Block | _EndOfBlocks | None
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
            StorageError: the store failed, or no thread can be started.
            StateError: in a child of fork, where it was begun in the parent.
        """
        return self._all(self._line_here)

    def lines_or_long(self) -> Iterator[StoredLine | LongLine]:
        """As :meth:`lines`; what is large is not held, but given once it was verified."""
        return self._all(self._long_here)

    def _all(self, large: Callable[[_Block], Iterator[_T]]) -> Iterator[StoredLine | _T]:
        try:
            check_size(self._source, self._facts)
            self._uuid = read_head(self._feed).uuid
            yield from self._blocks(large)
            check_tail(self._feed, self._source, self._uuid, self._tally, self._facts)
        except CkptError as error:
            error.at(file=self._source.name)
            raise

    def _blocks(self, large: Callable[[_Block], Iterator[_T]]) -> Iterator[StoredLine | _T]:
        worker = ThreadPoolExecutor(1, "ckptfmt-read")
        ahead: deque[Future[_Step]] = deque()
        home = HomeProcess()
        try:
            while True:
                home.check()
                while len(ahead) < _AHEAD_BLOCKS:
                    begun = threading.Event()
                    ahead.append(submit(worker, self._step, begun))
                # Decoding needs no interpreter lock, but the way there does, and a busy
                # consumer would not let go of it before its switch interval is over.
                begun.wait()
                item = ahead.popleft().result()
                if isinstance(item, _EndOfBlocks):
                    return
                if item is None:
                    continue
                if item.raw is not None:
                    yield from _lines(item, cut_lines(item.header, item.raw))
                    continue
                # The walk has paused, so what is ahead holds nothing; it ends before the
                # feed is used from here.
                while ahead:
                    ahead.popleft().result()
                if is_large(item.header):
                    yield from large(item)
                else:
                    yield from _lines(item, self._decode_here(item))
                self._paused = False
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
            raw = open_block(header, frame)
            self._take_in(block, raw)
            self._paused = False
            return replace(block, raw=raw)
        except DataError as error:
            error.at(offset=offset)
            raise
        finally:
            begun.set()

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

    def _decode_here(self, block: _Block) -> Iterator[bytes | CorruptError]:
        with _placed(block):
            raw = open_block(block.header, self._feed.take(block.header.stored_bytes))
        self._take_in(block, raw)
        yield from cut_lines(block.header, raw)

    def _line_here(self, block: _Block) -> Iterator[StoredLine]:
        with _placed(block):
            line = single_line(block.header, self._feed.take)
        if isinstance(line, bytes):
            self._take_in(block, line)
        # Kept by nobody but the consumer.
        return _lines(block, iter([line]))

    def _long_here(self, block: _Block) -> Iterator[LongLine]:
        header, frame_offset = block.header, self._feed.offset
        with _placed(block):
            line = verify_long(header, self._source, frame_offset, read=self._feed.take)
        self._tally.add_long(header, block.offset, block.size_bytes, line.digest)
        yield line

    def _take_in(self, block: _Block, raw: bytes) -> None:
        self._tally.add(block.header, block.offset, block.size_bytes, raw)


@contextmanager
def _placed(block: _Block) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        error.at(offset=block.offset)
        raise


def _lines(block: _Block, found: Iterator[bytes | CorruptError]) -> Iterator[StoredLine]:
    """The lines of a block up to the first that is damaged, which is raised.

    They are cut where they are consumed: cutting needs the interpreter's lock, and a
    worker that waits for it stands still.  None is kept here.
    """
    header = block.header

    def stored(ordinal: int, start: int, line: bytes | CorruptError) -> StoredLine:
        if isinstance(line, CorruptError):
            raise line.at(offset=block.offset)
        return StoredLine(ordinal, header.number, start, line)

    starts = accumulate((length + 1 for length in header.lengths), initial=0)
    return map(stored, count(header.first_ordinal), starts, found)
