"""Torn, or corrupt?  What the sizes of a file say about it.

With the size that a manifest states the answer is plain.  Without it a file is torn
where its structure needs more than there is, unless an intact END closes it.
"""

from __future__ import annotations

from ckptfmt.errors import CorruptError, DataError, TornError
from ckptfmt.stream.framing import END_BYTES, PREFIX_BYTES, BlockHeader, End, Prefix
from ckptfmt.stream.records import StreamFacts
from ckptfmt.stream.source import RangeSource
from ckptfmt.wire import EMPTY_ZSTD_FRAME, TAG_BLOCK, TAG_END

__all__ = ["check_size", "diagnose", "past_end", "trailing"]


def check_size(source: RangeSource, facts: StreamFacts | None) -> None:
    """Hold the size against the manifest's.

    Raises:
        TornError: the file is shorter.
        CorruptError: it is longer; the offset is that of the first byte too many.
    """
    size = source.size_bytes
    if facts is None or size == facts.size_bytes:
        return
    says = f"the file has {size} bytes, and the manifest says {facts.size_bytes}"
    error = TornError(says) if size < facts.size_bytes else CorruptError(says)
    raise error.at(file=source.name, offset=min(size, facts.size_bytes))


def past_end(source: RangeSource, offset: int, end: int, *, whole: bool) -> DataError:
    """The error for content at ``offset`` that would end at ``end``, past the end of the file.

    ``whole`` says that the size of the file is known to be the right one; then the
    length that led there is wrong.
    """
    size = source.size_bytes
    if whole or _ends_well(source):
        error: DataError = CorruptError(
            f"what begins here would end at {end}, and the file, which is whole, has {size} bytes"
        )
    else:
        error = TornError(f"the file has {size} bytes, and what begins here ends at {end} or later")
    return error.at(file=source.name, offset=offset)


def trailing(source: RangeSource, end: int) -> CorruptError:
    """The error for bytes behind END, which ends at ``end``."""
    return CorruptError(
        f"known content ends at {end}, and the file has {source.size_bytes} bytes"
    ).at(file=source.name, offset=end)


def _ends_well(source: RangeSource) -> bool:
    size = source.size_bytes
    if size < END_BYTES:
        return False
    try:
        end = End.decode(source.read_at(size - END_BYTES, END_BYTES))
    except CorruptError:
        return False
    return end.size_bytes == size


def diagnose(source: RangeSource) -> DataError:
    """Why no END closes the file: the structure is walked from the front, and only that."""
    offset = 0
    try:
        if _read(source, 0, len(EMPTY_ZSTD_FRAME)) != EMPTY_ZSTD_FRAME:
            raise CorruptError("the file does not begin as a stream does")
        offset = len(EMPTY_ZSTD_FRAME)
        while (prefix := Prefix.decode(_read(source, offset, PREFIX_BYTES))).tag != TAG_END:
            offset_after = offset + prefix.size_bytes
            if prefix.tag == TAG_BLOCK:
                header = BlockHeader.decode(_read(source, offset, prefix.size_bytes))
                offset_after += header.stored_bytes
            offset = offset_after
        end = End.decode(_read(source, offset, END_BYTES))
        if offset + END_BYTES < source.size_bytes:
            return trailing(source, offset + END_BYTES)
    except DataError as error:
        return error.at(file=source.name, offset=offset)
    return CorruptError(
        f"END says that the file has {end.size_bytes} bytes, and it has {source.size_bytes}"
    ).at(file=source.name, offset=offset)


def _read(source: RangeSource, offset: int, size_bytes: int) -> bytes:
    if offset + size_bytes > source.size_bytes:
        raise past_end(source, offset, offset + size_bytes, whole=False)
    return source.read_at(offset, size_bytes)
