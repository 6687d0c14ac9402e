"""The records of a participant, one after the other, past whatever is damaged."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ckptfmt.errors import CkptError, CorruptError, DataError
from ckptfmt.manifest import DataObject
from ckptfmt.outline import outline
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.stream import Entry, LongLine, Loss, StoredLine

__all__ = ["Found", "Listed", "listed", "readable", "sound"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found:
    """A record: its key, its ordinal among all of the participant, and its line as stored.

    A long line can be read until the next record is asked for.
    """

    key: str
    ordinal: int
    line: bytes | LongLine

    @property
    def size_bytes(self) -> int:
        """The length of the line."""
        return self.line.size_bytes if isinstance(self.line, LongLine) else len(self.line)


@dataclass(frozen=True, slots=True)
class Listed:
    """A record without its content; ``size_bytes`` is that of its line."""

    key: str
    ordinal: int
    size_bytes: int


def readable(reader: ParticipantReader) -> Generator[Found | CkptError, None, None]:
    """Every record that can be read, in order, and an error for each damage in between.

    All checksums are verified on the way.  Where the strict reader stops, the rest of the
    object is salvaged block by block.  Of records of a schema that is not known here there
    is one error for all.
    """
    try:
        reader.check_schema()
    except CkptError as error:
        yield error
        return
    for item in reader.manifest.objects:
        for found in _lines(reader, item):
            if isinstance(found, CkptError):
                yield found.at(file=reader.data_name(item), **reader.place())
            else:
                yield _record(reader, item, found)


def _lines(
    reader: ParticipantReader, item: DataObject
) -> Iterator[StoredLine | LongLine | CkptError]:
    last = -1
    try:
        with reader.stream(item) as stream:
            for stored in stream.lines_or_long():
                last = stored.ordinal
                yield stored
            if stream.sha256 != item.sha256:
                raise CorruptError("the file's SHA-256 is not the one in the manifest")
        return
    except CkptError as error:
        first = error
    yield first
    if isinstance(first, DataError):
        yield from _salvaged(reader, item, last, first)


def _salvaged(
    reader: ParticipantReader, item: DataObject, last: int, first: CkptError
) -> Iterator[StoredLine | LongLine | CkptError]:
    """What comes after the record ``last``; ``first`` was told already."""
    try:
        stream = reader.stream(item)
    except CkptError:
        return
    with stream:
        for found in stream.salvage_or_long():
            if not isinstance(found, Loss):
                if found.ordinal > last:
                    yield found
            elif not first.location.covers(found.location):
                yield found.error


def _record(
    reader: ParticipantReader, item: DataObject, stored: StoredLine | LongLine
) -> Found | CkptError:
    ordinal = item.first_ordinal + stored.ordinal
    line = stored if isinstance(stored, LongLine) else stored.line
    try:
        key = reader.read(outline(line) if isinstance(line, LongLine) else line).key
        if isinstance(line, bytes):
            _check_text(line)
    except CkptError as error:
        place = {"file": reader.data_name(item), **reader.place()}
        return error.at(block=stored.block, ordinal=stored.ordinal, **place)
    return Found(key, ordinal, line)


def _check_text(line: bytes) -> None:
    """Refuse what no JSON reader would take; splitting a line does not look at every byte."""
    if line.isascii():
        return
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise CorruptError("the line is not UTF-8") from error


def listed(reader: ParticipantReader) -> Iterator[Listed | CkptError]:
    """Key, ordinal and size of every record, from the index, in key order within an object.

    Where an index is damaged, the records themselves are read instead.
    """
    for item in reader.manifest.objects:
        last = None
        try:
            with reader.stream(item) as stream:
                for entry in stream.entries():
                    last = entry.key
                    yield _listed(item, entry)
        except CkptError as error:
            yield error.at(file=reader.data_name(item), **reader.place())
            if isinstance(error, DataError):
                yield from _listed_by_reading(reader, item, last)


def _listed(item: DataObject, entry: Entry) -> Listed:
    return Listed(entry.key, item.first_ordinal + entry.ordinal, entry.length)


def _listed_by_reading(
    reader: ParticipantReader, item: DataObject, last: str | None
) -> Iterator[Listed]:
    """The records of one object that an index in key order did not come to after ``last``."""
    for found in _lines(reader, item):
        if isinstance(found, CkptError):
            continue
        record = _record(reader, item, found)
        if isinstance(record, Found) and (last is None or record.key > last):
            yield Listed(record.key, record.ordinal, record.size_bytes)


def sound(found: Iterator[_T | CkptError], damage: Callable[[CkptError], None]) -> Iterator[_T]:
    """What is no error; the errors go to ``damage``."""
    for item in found:
        if isinstance(item, CkptError):
            damage(item)
        else:
            yield item
