"""Writes a stream: records in, blocks compressed and hashed on worker threads.

Three kinds of threads work at once.  The caller's checksums lines and gathers
them into blocks; the workers compress blocks, out of order; one emitter takes them in
order, hashes the file and writes.  What is in flight is bounded, and the first
error in stream order stops everything behind it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from ckptfmt.errors import (
    DuplicateKeyError,
    NameRefusedError,
    RefusedError,
    SizeError,
    StateError,
    TransientError,
)
from ckptfmt.identity import check_name
from ckptfmt.stream.block import EncodedBlock, encode_block, line_length
from ckptfmt.stream.checksum import LineChecks, line_checks
from ckptfmt.stream.codec import Compressor
from ckptfmt.stream.framing import Head
from ckptfmt.stream.output import Output, Sink
from ckptfmt.stream.records import Line, StreamSummary
from ckptfmt.threads import HomeProcess, submit, worker_count
from ckptfmt.wire import (
    BLOCK_TARGET_BYTES,
    MAX_BLOCK_RAW_BYTES,
    MAX_BLOCK_RECORDS,
    MAX_KEY_BYTES,
    MAX_RECORD_BYTES,
    UUID_BYTES,
)

__all__ = ["Sink", "StreamWriter"]

# A block larger than this is waited for before the caller may go on to the next line.
_IN_FLIGHT_BYTES: Final = 8 << 20


class StreamWriter:
    """Appends records to one stream; the sink stays the caller's to open and close.

    Use it as a context manager: a block that ends without :meth:`close` abandons the
    stream, which is then incomplete and cannot be taken for a whole one.  Not to be
    called from several threads at once.

    Memory beyond the lines that the caller holds: about 64 MiB and twice the longest
    line at the most, and some 100 bytes and the key for each record.

    Args:
        sink: takes the bytes, on another thread.
        level: zstd level, -7 to 19.
        block_target_bytes: a block is closed once it holds as much; up to 8 MiB.
        threads: how many blocks are compressed at once; by default two, and one where two
            would take the caller's own processor away.
        content: a running SHA-256 fed with the rows of :func:`content_rows`, for a content
            digest over several streams; not to be read before :meth:`close` or :meth:`flush`.
        uuid: 16 bytes, where the file has to be reproducible; random otherwise.

    Raises:
        NameRefusedError: kind, instance or checkpoint id is malformed.
        RefusedError: another argument is out of range.
        StateError: in a child of fork, by the same; the stream is its parent's.
        TransientError: no thread can be started, by the same; the stream is lost.
        whatever the sink raises, here and in :meth:`add`, :meth:`flush` and :meth:`close`.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        kind: str,
        instance: str,
        checkpoint_id: str,
        level: int = 1,
        block_target_bytes: int = BLOCK_TARGET_BYTES,
        threads: int | None = None,
        content: hashlib._Hash | None = None,
        uuid: bytes | None = None,
    ) -> None:
        if not 1 <= block_target_bytes <= MAX_BLOCK_RAW_BYTES // 2:
            raise RefusedError(
                f"a block target of {block_target_bytes} bytes, not 1 to {MAX_BLOCK_RAW_BYTES // 2}"
            )
        self._uuid = secrets.token_bytes(UUID_BYTES) if uuid is None else uuid
        self._compressor = Compressor(level)
        head = Head(
            self._uuid,
            check_name(kind, "kind"),
            check_name(instance, "instance"),
            check_name(checkpoint_id, "checkpoint id"),
            level,
        )
        self._block_target_bytes = block_target_bytes
        self._ordinals: dict[str, int] = {}
        self._lines: list[Line] = []
        self._checks: list[LineChecks] = []
        self._raw_bytes = 0
        self._next_block = 0
        self._pending: deque[tuple[Future[None], int]] = deque()
        self._in_flight_bytes = 0
        self._failure: BaseException | None = None
        self._stopped = False
        self._done = False
        self._home = HomeProcess()
        self._output = Output(sink, head, content)
        workers = worker_count() if threads is None else threads
        self._workers = ThreadPoolExecutor(workers, "ckptfmt-encode")
        self._emitter = ThreadPoolExecutor(1, "ckptfmt-emit")

    def add(self, key: str, line: Line) -> None:
        """Append a record; the pieces of ``line`` must not change before it is written.

        Raises:
            DuplicateKeyError: a record with this key was added before.
            NameRefusedError: the key is empty, over 1,024 bytes, or no Unicode text.
            SizeError: the line is over 1 GiB.
            RefusedError: the line is empty; or, here or later, one holds a line break.
            StateError: the stream was closed or abandoned.
        """
        self._check_open()
        length = _checked_length(line, key)
        if key in self._ordinals:
            raise DuplicateKeyError("two records have the same key").at(key=key)
        alone = length >= self._block_target_bytes
        if alone:
            self._close_block()
        # Here and not on a worker: hashing lets go of the interpreter's lock, which an
        # encoding caller otherwise never does, so that the workers get their turns.
        checks = line_checks(line)
        self._ordinals[key] = len(self._ordinals)
        self._lines.append(line)
        self._checks.append(checks)
        self._raw_bytes += length + 1
        if self._raw_bytes >= self._block_target_bytes or len(self._lines) == MAX_BLOCK_RECORDS:
            self._close_block()

    def flush(self) -> None:
        """Close the current block, and hand all records so far to the sink and flush it.

        From then on salvage finds them, whatever becomes of the stream.

        Raises:
            StateError: the stream was closed or abandoned.
        """
        self._check_open()
        self._close_block()
        self._collect(0)
        self._output.flush()

    def close(self) -> StreamSummary:
        """Write what is left, the index and END, and flush the sink.

        Raises:
            SizeError: the index directory has outgrown its limit.
            StateError: the stream was closed or abandoned.
        """
        self._check_open()
        try:
            self._close_block()
            self._collect(0)
            return self._output.finish(self._ordinals, self._compressor)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop where the stream is; nothing is written any more.  May be repeated."""
        self._done = True
        self._lines, self._checks = [], []
        if not self._home.is_here:
            return
        self._emitter.shutdown(cancel_futures=True)
        self._workers.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._done:
            raise StateError("the stream was closed or abandoned")
        self._collect(_IN_FLIGHT_BYTES)

    def _close_block(self) -> None:
        self._home.check()
        if not self._lines:
            return
        lines, checks, raw_bytes = self._lines, self._checks, self._raw_bytes
        self._lines, self._checks, self._raw_bytes = [], [], 0
        self._collect(max(_IN_FLIGHT_BYTES - raw_bytes, 0))
        first_ordinal = len(self._ordinals) - len(lines)
        try:
            encoded = submit(
                self._workers,
                encode_block,
                self._compressor,
                self._uuid,
                self._next_block,
                first_ordinal,
                lines,
                checks,
            )
            emitted = submit(self._emitter, self._emit, encoded)
        except TransientError as error:
            self._failure = error
            raise
        self._next_block += 1
        self._pending.append((emitted, raw_bytes))
        self._in_flight_bytes += raw_bytes
        self._collect(_IN_FLIGHT_BYTES)

    def _emit(self, encoded: Future[EncodedBlock]) -> None:
        # On the emitter's thread.  Stopped until proven otherwise: an error in here leaves
        # it so, and nothing that comes behind it is written.
        if self._stopped:
            return
        self._stopped = True
        self._output.put_block(encoded.result())
        self._stopped = False

    def _collect(self, limit_bytes: int) -> None:
        """Take in what is done, and wait until no more than ``limit_bytes`` are in flight."""
        while self._pending:
            emitted, raw_bytes = self._pending[0]
            if self._in_flight_bytes <= limit_bytes and not emitted.done():
                return
            self._pending.popleft()
            self._in_flight_bytes -= raw_bytes
            try:
                emitted.result()
            except BaseException as error:
                self._failure = error
                raise


def _checked_length(line: Line, key: str) -> int:
    try:
        key_bytes = len(key.encode())
    except UnicodeEncodeError:
        raise NameRefusedError("a record key holds a lone surrogate") from None
    if not 1 <= key_bytes <= MAX_KEY_BYTES:
        raise NameRefusedError(f"a record key of {key_bytes} bytes, not 1 to {MAX_KEY_BYTES}")
    length = line_length(line)
    if length > MAX_RECORD_BYTES:
        raise SizeError(f"a record of {length} bytes; {MAX_RECORD_BYTES} are permitted").at(key=key)
    if length == 0:
        raise RefusedError("a record line of 0 bytes").at(key=key)
    return length
