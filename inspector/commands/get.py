"""``get``: one value, for scripts."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Annotated, Any, Final

import orjson
import typer

from ckptfmt.errors import (
    CkptError,
    DataError,
    JsonSyntaxError,
    MissingError,
    NameRefusedError,
    RefusedError,
    SizeError,
    UnsupportedError,
)
from ckptfmt.exact import check_json
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.stream import LongLine
from inspector.address import Address, Selection, join_pointer, parse, select
from inspector.exit_codes import Exit
from inspector.long_value import long_value
from inspector.options import command
from inspector.output.base import Views
from inspector.places import open_checkpoint
from inspector.reading import Reading, open_reading
from inspector.records import Found, listed, readable, sound
from inspector.session import Session
from inspector.value import StoredValue, find_value

__all__ = ["VIEWS", "app", "get"]

VIEWS: Final[Views] = {}


@dataclass(frozen=True, slots=True)
class _Record:
    address: str
    line: bytes | LongLine


def get(
    session: Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A checkpoint's directory, or RUN@latest.")
    ],
    address: Annotated[
        str, typer.Argument(metavar="ADDR", help="kind/instance/record-key#/json/pointer")
    ],
    raw: Annotated[bool, typer.Option("--raw", help="The stored bytes, nothing else.")] = False,
    string: Annotated[bool, typer.Option("--string", help="The text of a string.")] = False,
    default: Annotated[
        str | None, typer.Option("--default", help="Give this where the address does not exist.")
    ] = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Also of a checkpoint that was never published.")
    ] = False,
) -> None:
    """Give the value at an address.

    As text it is JSON with NaN and Infinity spelt out; --format json gives the tagged form.
    Exit code 1 and no output: there is no such value.  A stored null is a value.
    """
    _check_options(session, raw=raw, string=string, default=default)
    if session.is_text:
        session.only_raw()
    place = open_checkpoint(checkpoint)
    for notice in place.notices:
        session.talk.notice(notice)
    parsed = parse(address)
    reading = open_reading(place, session.damage, incomplete=incomplete)
    with ExitStack() as opened:
        record = _find(session, reading, parsed, opened)
        if raw and record is not None and isinstance(record.line, LongLine):
            _give_long(session, record.line, parsed, default)
        else:
            _give(session, record, parsed, raw=raw, string=string, default=default)


app = command(VIEWS)(get)


def _check_options(session: Session, *, raw: bool, string: bool, default: str | None) -> None:
    if raw and string:
        raise RefusedError("--raw and --string contradict each other")
    if session.is_text:
        return
    if raw or string:
        raise RefusedError("--raw and --string give text: leave --format out")
    if default is not None:
        try:
            check_json(default.encode(errors="surrogateescape"))
        except (JsonSyntaxError, RefusedError) as error:
            raise RefusedError(
                f"with --format json, --default is JSON text: {error.message}"
            ) from error


def _find(
    session: Session, reading: Reading, address: Address, opened: ExitStack
) -> _Record | None:
    """The record that is meant; None where there is none, which is an answer."""
    try:
        selection = select(address, reading.participants)
    except MissingError as error:
        session.talk.notice(str(error))
        return None
    if selection.key is None:
        raise NameRefusedError(
            f"address {str(address)[:200]!a} names no record",
            advice="an address is kind/instance/record-key#/json/pointer",
        )
    (participant,) = selection.participants
    try:
        reader = reading.reader(participant)
    except UnsupportedError:
        raise
    except DataError as error:
        session.damage(error)
        return None
    found = _read(session, reader, selection, opened)
    return None if found is None else _Record(f"{participant}/{found.key}", found.line)


def _read(
    session: Session, reader: ParticipantReader, selection: Selection, opened: ExitStack
) -> Found | None:
    """The record with the key, or the only one of the episode.

    Raises:
        UnsupportedError: the schema of the records is not known here.
    """
    assert selection.key is not None
    reader.check_schema()
    if (line := _line(session, reader, selection.key, opened)) is not None:
        return Found(selection.key, -1, line)
    keys = [
        item.key for item in sound(listed(reader), session.damage) if selection.matches(item.key)
    ]
    if selection.key in keys:
        # It is the one that was meant, and is damaged.
        return None
    if len(keys) > 1:
        raise NameRefusedError(
            f"{selection.key!a} could mean {len(keys):,} records",
            advice=f"name one of {', '.join(keys[:10])}",
        )
    if not keys or (line := _line(session, reader, keys[0], opened)) is None:
        return None
    return Found(keys[0], -1, line)


def _line(
    session: Session, reader: ParticipantReader, key: str, opened: ExitStack
) -> bytes | LongLine | None:
    """Through the index; where that is damaged, by reading everything.

    What a long line is read from goes into ``opened``.
    """
    try:
        _, line = opened.enter_context(reader.find(key))
        return line
    except MissingError as error:
        if error.location.key is not None:
            return None
        session.damage(error)
    except SizeError as error:
        session.damage(error)
        return None
    except DataError as error:
        session.damage(error)
    for found in opened.enter_context(closing(readable(reader))):
        if not isinstance(found, CkptError) and found.key == key:
            return found.line
    return None


def _give(
    session: Session,
    record: _Record | None,
    address: Address,
    *,
    raw: bool,
    string: bool,
    default: str | None,
) -> None:
    value = None if record is None else find_value(_held(record.line), address.tokens or ())
    session.summary["found"] = value is not None
    if record is None or value is None:
        _give_none(session, address, default)
    elif not session.is_text:
        where = record.address + ("" if address.tokens is None else join_pointer(address.tokens))
        session.item("value", address=where, **_tagged(value))
    elif raw:
        session.raw(value.text)
    elif string:
        _give_string(session, value)
    else:
        _give_text(session, value)


def _held(line: bytes | LongLine) -> bytes:
    return line.held().line if isinstance(line, LongLine) else line


def _give_long(session: Session, line: LongLine, address: Address, default: str | None) -> None:
    pieces = long_value(line, address.tokens or ())
    session.summary["found"] = pieces is not None
    if pieces is None:
        _give_none(session, address, default)
        return
    for piece in pieces:
        session.raw(piece)


def _give_none(session: Session, address: Address, default: str | None) -> None:
    if session.code is not Exit.DONE:
        # Damage: that nothing was found says nothing.
        return
    if default is None:
        session.note(Exit.NEGATIVE, f"not found: {address}")
    elif session.is_text:
        session.raw_text(default.encode(errors="surrogateescape") + b"\n")
    else:
        value = orjson.Fragment(default)
        session.item("value", address=str(address), value=value, exact=[], default=True)


def _tagged(value: StoredValue) -> dict[str, Any]:
    payload = value.payload()
    notes = payload.annotations
    exact = [] if notes is None else orjson.Fragment(bytes(notes))
    return {"value": orjson.Fragment(bytes(payload.text)), "exact": exact, "default": False}


def _give_string(session: Session, value: StoredValue) -> None:
    text = value.payload().value()
    if not isinstance(text, str):
        session.note(Exit.NEGATIVE, "the value is not a string; leave --string out")
        return
    try:
        session.raw_text(text.encode() + b"\n")
    except UnicodeEncodeError:
        session.note(
            Exit.NEGATIVE, "the string holds lone surrogates, which UTF-8 cannot spell; use --raw"
        )


def _give_text(session: Session, value: StoredValue) -> None:
    session.raw(value.python_text())
    session.raw(b"\n")
    if beyond := value.beyond_json():
        session.talk.notice(
            f"JSON cannot spell all of it ({', '.join(beyond)}); --format json shows the rest"
        )
