"""``cat``: records as they are stored, the readable ones of damaged data too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Final

import typer

from ckptfmt.errors import CkptError, DataError, RefusedError
from ckptfmt.participant_reader import ParticipantReader
from inspector.address import Selection, parse, select
from inspector.exit_codes import Exit
from inspector.failures import location_members
from inspector.limits import Limit, told_cut
from inspector.options import command
from inspector.output.base import Format, Item, Verbatim, Views
from inspector.output.progress import Counter
from inspector.places import open_checkpoint
from inspector.quantities import number_of
from inspector.reading import Reading, open_reading
from inspector.records import Found, listed, readable
from inspector.session import Session

__all__ = ["VIEWS", "app", "cat"]


def _record_lines(item: Item) -> Iterator[str | Iterator[str]]:
    yield item["address"]
    yield chain(("  ",), (piece.decode() for piece in item["record"].pieces()))


VIEWS: Final[Views] = {
    "record": _record_lines,
    "lost": lambda item: [f"lost: {item['message']}"],
    "summary": told_cut,
}


def cat(
    session: Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A checkpoint's directory, or RUN@latest.")
    ],
    addresses: Annotated[
        list[str] | None, typer.Argument(metavar="ADDR", help="These records only.")
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="The stored lines alone, byte for byte.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="Show so many; says if that cut.")
    ] = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Also of a checkpoint that was never published.")
    ] = False,
) -> None:
    """Give records, one a line: {"type":"record","address":...,"record":...}.

    What is damaged is skipped and listed, and the exit code is 3.  In a record, NaN and
    the like are annotated by its member $exact.
    """
    if bare:
        if session.settings.format is not Format.NDJSON:
            raise RefusedError("--bare gives stored lines, which are NDJSON: leave --format out")
        session.only_raw()
    place = open_checkpoint(checkpoint)
    for notice in place.notices:
        session.talk.notice(notice)
    reading = open_reading(place, session.damage, incomplete=incomplete)
    parsed = [parse(text) for text in addresses or ()]
    if any(address.tokens is not None for address in parsed):
        raise RefusedError("cat gives whole records", advice="use get for a value within one")
    selections = [select(address, reading.participants) for address in parsed]
    _Cat(session, reading, Limit(limit), bare=bare).give(
        selections or [Selection(reading.participants)]
    )


app = command(VIEWS, default=Format.NDJSON)(cat)


class _Cat:
    def __init__(self, session: Session, reading: Reading, bound: Limit, *, bare: bool) -> None:
        self._session = session
        self._reading = reading
        self._bound = bound
        self._bare = bare
        self._lost = 0
        self._raw_bytes = 0

    def give(self, selections: list[Selection]) -> None:
        try:
            with self._session.progress("read") as counter:
                for selection in selections:
                    self._give(selection, counter)
        finally:
            self._session.summary |= {
                "records": self._bound.shown,
                "raw_bytes": self._raw_bytes,
                "lost": self._lost,
                "truncated": self._bound.cut,
                "shown": self._bound.shown,
                "total": None,
            }

    def _give(self, selection: Selection, counter: Counter) -> None:
        before = self._bound.shown
        for reader in self._reading.readers(selection.participants, self._lose):
            for found in self._bound.of(self._meant(reader, selection)):
                self._raw_bytes += found.size_bytes
                self._show(reader, found)
                counter.update(self._bound.shown, self._raw_bytes)
            if self._bound.cut:
                self._session.talk.notice(
                    f"--limit cut after {number_of(self._bound.shown, 'record')}"
                )
                return
        if selection.key is not None and self._bound.shown == before:
            self._session.note(Exit.NEGATIVE, f"no record matches {selection.key}")

    def _meant(self, reader: ParticipantReader, selection: Selection) -> Iterator[Found]:
        """The records that a selection means, through the index where that is whole."""
        given: set[str] = set()
        if selection.key is not None:
            try:
                for found in _through_index(reader, selection):
                    given.add(found.key)
                    yield found
                return
            except DataError:
                pass
        for item in readable(reader):
            if isinstance(item, CkptError):
                self._lose(item)
            elif selection.matches(item.key) and item.key not in given:
                yield item

    def _show(self, reader: ParticipantReader, found: Found) -> None:
        record = Verbatim(found.line)
        if self._bare:
            for piece in record.pieces():
                self._session.raw(piece)
            self._session.raw(b"\n")
        else:
            address = f"{reader.participant}/{found.key}"
            self._session.item("record", address=address, record=record)

    def _lose(self, error: CkptError) -> None:
        self._lost += 1
        self._session.damage(error)
        self._session.item(
            "lost",
            code=error.code,
            message=error.message,
            location=location_members(error.location),
        )


def _through_index(reader: ParticipantReader, selection: Selection) -> Iterator[Found]:
    """Read what the index names.

    Raises:
        DataError: something on the way is damaged.
    """
    for entry in listed(reader):
        if isinstance(entry, CkptError):
            raise entry
        if selection.matches(entry.key):
            with reader.find(entry.key) as (_, line):
                yield Found(entry.key, entry.ordinal, line)
