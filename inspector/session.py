"""One run of a command: its output, its talk, and what it ends with."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckptfmt.errors import CkptError, Location
from inspector.address import address_of
from inspector.exit_codes import Exit, worst
from inspector.failures import code_of_damage, exit_code_of
from inspector.output.base import Color, Format, Item, Views, Writer
from inspector.output.machine import JsonWriter, NdjsonWriter
from inspector.output.progress import Counter, silent
from inspector.output.sink import FileSink, Sink, open_sink
from inspector.output.talk import Talk, open_talk
from inspector.output.terminal import wants_color
from inspector.safe_text import safe_json, safe_text
from inspector.signals import Terminated

__all__ = ["Body", "Session", "Settings", "execute", "schema_of"]

# Damages that are not told again.
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options that all commands share."""

    format: Format
    output: Path | None = None
    quiet: bool = False
    verbose: bool = False
    color: Color = Color.AUTO


def schema_of(command: str) -> str:
    """The name of a command's JSON contract."""
    return f"ckpt-inspect/{command}/1"


@dataclass(slots=True)
class _Noted:
    """The first reason for an exit code, and how many there were."""

    reason: str
    count: int = 0


class _NoWriter:
    def item(self, item: Item) -> None:
        pass

    def end(self, summary: Item) -> None:
        pass


class Session:
    """What a command's body works with.

    ``summary`` takes the command's own totals.  ``note`` says what the process will end
    with; several notes are settled by the published order.
    """

    def __init__(self, settings: Settings, writer: Writer, talk: Talk, sink: Sink) -> None:
        self.settings = settings
        self.talk = talk
        self.summary: dict[str, Any] = {}
        self.is_terminal = sink.is_terminal
        self._writer = writer
        self._sink = sink
        self._notes: dict[Exit, _Noted] = {}
        self._told: deque[tuple[str, str, Location]] = deque(maxlen=_REMEMBERED)
        self._counter = silent()

    @property
    def is_text(self) -> bool:
        """Whether people read the output."""
        return self.settings.format is Format.TEXT

    def item(self, kind: str, /, **members: Any) -> None:
        """Give an item of the output."""
        self._counter.pause()
        self._writer.item({"type": kind, **members})

    def only_raw(self) -> None:
        """From here on nothing but :meth:`raw` gives output, the summary included."""
        self._writer = _NoWriter()

    def raw(self, json_text: bytes | memoryview) -> None:
        """Give JSON text byte for byte; on a terminal escaped where it could act on it."""
        self._counter.pause()
        if self.is_terminal:
            json_text = safe_json(bytes(json_text).decode(errors="replace")).encode()
        self._sink.write(json_text)

    def raw_text(self, text: bytes) -> None:
        """Give text byte for byte; on a terminal with visible escapes."""
        if self.is_terminal:
            text = safe_text(text.decode(errors="replace"), keep="\n\t").encode()
        self._sink.write(text)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary."""
        self._writer.end(summary)

    def note(self, code: Exit, reason: str) -> None:
        """The process ends with ``code``, unless something weightier happens."""
        self._notes.setdefault(code, _Noted(reason)).count += 1

    def damage(self, error: CkptError) -> None:
        """Tell of a part that cannot be read, once; the command goes on without it."""
        # Whoever looks twice, through the index and past it, meets the same damage again.
        met = (error.code, error.message, error.location)
        if met in self._told:
            return
        self._told.append(met)
        self._counter.pause()
        self.talk.error(error)
        where = address_of(error.location)
        self.note(code_of_damage(error), f"{where}: {error.message}" if where else error.message)

    def fail(self, error: CkptError) -> None:
        """Tell of what ends the command."""
        self._counter.pause()
        self.talk.error(error)
        self.note(exit_code_of(error), error.message)

    @contextlib.contextmanager
    def progress(self, what: str, total_records: int | None = None) -> Iterator[Counter]:
        """Count the records of long work on standard error."""
        self._counter = self.talk.progress(what, total_records)
        try:
            yield self._counter
        finally:
            self._counter.stop()

    @property
    def code(self) -> Exit:
        """What the process ends with, by what is known so far."""
        return worst(self._notes)

    @property
    def reason(self) -> str | None:
        """The first reason for that code."""
        noted = self._notes.get(self.code)
        if noted is None or self.code is Exit.DONE:
            return None
        more = f" (and {noted.count - 1:,} more)" if noted.count > 1 else ""
        return noted.reason + more


Body = Callable[[Session], None]
"""A command: it gives items, and raises what ends it."""


def execute(command: str, settings: Settings, views: Views, body: Body) -> Exit:
    """Run a command and give its exit code; the summary is written whatever happens.

    Raises:
        BrokenPipeError: the reader of standard output went away; nothing more is to be said.
    """
    bar = sys.stderr is not None and sys.stderr.isatty()
    talk = open_talk(
        command, settings.format, quiet=settings.quiet, verbose=settings.verbose, bar=bar
    )
    try:
        sink = open_sink(settings.output)
    except CkptError as error:
        talk.error(error)
        return Exit.UNAVAILABLE
    try:
        session = Session(settings, _writer(command, settings, views, sink), talk, sink)
        _run(session, body)
        return _conclude(command, session, sink)
    finally:
        if isinstance(sink, FileSink):
            sink.abandon()


def _writer(command: str, settings: Settings, views: Views, sink: Sink) -> Writer:
    match settings.format:
        case Format.JSON:
            return JsonWriter(sink, schema_of(command))
        case Format.NDJSON:
            return NdjsonWriter(sink)
        case _:
            from inspector.output.text import TextWriter

            color = wants_color(settings.color, os.environ, is_terminal=sink.is_terminal)
            return TextWriter(sink, views, color=color)


def _run(session: Session, body: Body) -> None:
    try:
        body(session)
    except CkptError as error:
        session.fail(error)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        session.note(Exit.INTERRUPTED, "interrupted; what is above was done")
    except Terminated:
        session.note(Exit.TERMINATED, "terminated; what is above was done")
    except Exception as error:  # noqa: BLE001 - whatever it is, it must end as 70 and be told
        session.talk.bug(error)
        session.note(Exit.BUG, f"a bug in ckpt-inspect: {type(error).__name__}")


def _conclude(command: str, session: Session, sink: Sink) -> Exit:
    code, reason = session.code, session.reason
    told = {"exit_code": int(code), "reason": reason}
    try:
        session.finish({"type": "summary", "schema": schema_of(command), **session.summary, **told})
        sink.finish()
    except CkptError as error:
        session.fail(error)
        return session.code
    if reason is not None:
        session.talk.last_word(code, reason)
    return code
