"""The strict walk over a whole stream.

Two threads work ahead of the consumer: one reads, hashes the file and decodes
blocks, the other cuts them into lines and checks those.  A block that is too
large to be held twice, and what follows the blocks, is left to the consumer's
own thread; the walk pauses before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from ckptfmt.errors import CkptError, CorruptError, DataError
from ckptfmt.stream.block import LARGE_BYTES, cut_lines, is_large, open_block, single_line
from ckptfmt.stream.framing import PREFIX_BYTES, BlockHeader, Head, Prefix
from ckptfmt.stream.records import StoredLine, StreamFacts
from ckptfmt.stream.source import Feed, RangeSource
from ckptfmt.stream.tail import check_tail
from ckptfmt.stream.tally import Tally
from ckptfmt.wire import EMPTY_ZSTD_FRAME, TAG_BLOCK

__all__ = ["Scan", "read_head"]

# Blocks ahead of the consumer; with LARGE_BYTES this bounds what is held for it.
_AHEAD_BLOCKS: Final = 4


@dataclass(frozen=True, slots=True)
class _Block:
    """A block on its way; ``raw`` is None where the frame is still to be read."""

    header: BlockHeader
    offset: int
    size_bytes: int
    raw: bytes | None


@dataclass(frozen=True, slots=True)
class _Lines:
    """The lines of a block up to the first that is damaged, and what is wrong with that."""

    lines: list[StoredLine]
    error: CkptError | None


class _EndOfBlocks:
    """What the walk gives when it meets another piece than BLCK."""


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

    def __init__(self, source: RangeSource, facts: StreamFacts | None) -> None:
        self._source = source
        self._facts = facts
        self._feed = Feed(source, whole=facts is not None)
        self._tally = Tally()
        self._uuid = b""
        self._paused = False
        self._next_block = 0
        self._next_ordinal = 0
        self.complete = False

    @property
    def sha256(self) -> str:
        """SHA-256 of the file in hex, once the scan is complete."""
        return self._feed.sha256

    def lines(self) -> Iterator[StoredLine]:
        """The lines in order.

        Raises:
            DataError: at the first damage; where only the last piece is reached, of the index.
            StorageError: the store failed.
        """
        try:
            self._uuid = read_head(self._feed).uuid
            yield from self._blocks()
            check_tail(self._feed, self._source, self._uuid, self._tally, self._facts)
            self.complete = True
        except CkptError as error:
            error.at(file=self._source.name)
            raise

    def _blocks(self) -> Iterator[StoredLine]:
        walker = ThreadPoolExecutor(1, "ckptfmt-read")
        checker = ThreadPoolExecutor(1, "ckptfmt-check")
        ahead: deque[Future[_Lines | _Block | _EndOfBlocks | None]] = deque()
        try:
            while True:
                while len(ahead) < _AHEAD_BLOCKS:
                    ahead.append(checker.submit(self._check, walker.submit(self._step)))
                item = ahead.popleft().result()
                if isinstance(item, _EndOfBlocks):
                    return
                if isinstance(item, _Block):
                    # The walk has paused: what is ahead is empty.
                    while ahead:
                        ahead.popleft().result()
                    item = self._check_now(item)
                    self._paused = False
                if isinstance(item, _Lines):
                    yield from item.lines
                    if item.error is not None:
                        raise item.error
        finally:
            walker.shutdown(cancel_futures=True)
            checker.shutdown(cancel_futures=True)

    def _step(self) -> _Block | _EndOfBlocks | None:
        """On the walker's thread: the next block, or None where the walk has paused."""
        if self._paused:
            return None
        # Until proven that the next step may follow at once.
        self._paused = True
        offset = self._feed.offset
        if Prefix.decode(self._feed.peek(PREFIX_BYTES)).tag != TAG_BLOCK:
            return _EndOfBlocks()
        return None

    def _check(
        self, step: Future[_Block | _EndOfBlocks | None]
    ) -> _Lines | _Block | _EndOfBlocks | None:
        raise NotImplementedError

    def _check_now(self, block: _Block) -> _Lines:
        raise NotImplementedError
