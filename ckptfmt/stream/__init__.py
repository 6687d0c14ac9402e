"""The record stream ``*.jsonl.zst``: framing, writer, reader, index, salvage.

``docs/format.md`` section 2 is the specification.  The layers, lowest first:

===============  ================================================================
``cursor``       bounded reading of integers and byte strings, varints
``checksum``     crc32c and the record and content digests
``framing``      HEAD, BLCK and END, and the envelope that all pieces share
``codec``        zstd, the only importer of ``zstandard``
``index``        PAGE, DGST and INDX
``source``       where stored bytes come from; sequential reading with a hash
``block``        one block of records, encoded and decoded
``long_line``    a line that is too long to be held: :class:`LongLine`
``writer``       :class:`StreamWriter`
``scan``         the strict walk over a whole stream, on two threads
``lookup``       one record by key or ordinal, through the index
``reader``       :class:`StreamReader`
``salvage``      every readable record of a damaged stream
===============  ================================================================
"""

from __future__ import annotations

from ckptfmt.stream.framing import Head
from ckptfmt.stream.index import Entry
from ckptfmt.stream.long_line import LongLine
from ckptfmt.stream.reader import RecordStream, StreamReader
from ckptfmt.stream.records import Line, StoredLine, StreamFacts, StreamSummary
from ckptfmt.stream.salvage import Loss, salvage
from ckptfmt.stream.source import BytesSource, FileSource, RangeSource
from ckptfmt.stream.writer import Sink, StreamWriter

__all__ = [
    "BytesSource",
    "Entry",
    "FileSource",
    "Head",
    "Line",
    "LongLine",
    "Loss",
    "RangeSource",
    "RecordStream",
    "Sink",
    "StoredLine",
    "StreamFacts",
    "StreamReader",
    "StreamSummary",
    "StreamWriter",
    "salvage",
]
