"""What goes to standard error: errors, notices, progress.  Never data."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from ckptfmt.errors import CkptError
from inspector.exit_codes import Exit
from inspector.failures import location_members
from inspector.output.base import Format
from inspector.output.machine import spelled
from inspector.output.progress import Bar, Counter, JsonCounter, PlainCounter, silent
from inspector.safe_text import safe_text

__all__ = ["JsonTalk", "Talk", "TextTalk", "open_talk"]

_PROGRAM: Final = "ckpt-inspect"


class Talk(Protocol):
    """What a command says beside its output."""

    def error(self, error: CkptError) -> None:
        """Something that is wrong with the call or the data."""

    def notice(self, text: str) -> None:
        """Something worth knowing; silent under ``-q``."""

    def bug(self, error: BaseException) -> None:
        """A traceback."""

    def last_word(self, code: Exit, reason: str) -> None:
        """Why the process ends with this code; silent under ``-q``, since errors were told."""

    def progress(self, what: str, total_records: int | None) -> Counter:
        """Signs of life of long work; to be stopped."""


class TextTalk:
    """For people."""

    def __init__(self, command: str, *, quiet: bool, verbose: bool, bar: bool) -> None:
        self._prefix = f"{_PROGRAM} {command}: " if command else f"{_PROGRAM}: "
        self._quiet = quiet
        self._verbose = verbose
        self._bar = bar

    def error(self, error: CkptError) -> None:
        """As :meth:`Talk.error`."""
        _say(self._prefix + safe_text(error))
        if self._verbose:
            for cause in _causes(error):
                _say(f"  caused by {type(cause).__name__}: {safe_text(cause)}")

    def notice(self, text: str) -> None:
        """As :meth:`Talk.notice`."""
        if not self._quiet:
            _say(self._prefix + safe_text(text))

    def bug(self, error: BaseException) -> None:
        """As :meth:`Talk.bug`."""
        _say(safe_text("".join(traceback.format_exception(error)).rstrip(), keep="\n"))
        _say(f"{self._prefix}this is a bug in ckpt-inspect; please report it")

    def last_word(self, code: Exit, reason: str) -> None:
        """As :meth:`Talk.last_word`."""
        if not self._quiet:
            _say(f"{self._prefix}{safe_text(reason)} (exit {code:d})")

    def progress(self, what: str, total_records: int | None) -> Counter:
        """As :meth:`Talk.progress`."""
        if self._quiet:
            return silent()
        if self._bar:
            return Bar(what, total_records)
        return PlainCounter(lambda line: _say(self._prefix + line), what, total_records)


class JsonTalk:
    """For programs: one object a line, with a type."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self._quiet = quiet
        self._verbose = verbose

    def error(self, error: CkptError) -> None:
        """As :meth:`Talk.error`."""
        item: dict[str, Any] = {
            "type": "error",
            "code": error.code,
            "message": error.message,
            "location": location_members(error.location),
            "advice": error.advice,
        }
        if self._verbose:
            item["causes"] = [f"{type(cause).__name__}: {cause}" for cause in _causes(error)]
        _say_json(item)

    def notice(self, text: str) -> None:
        """As :meth:`Talk.notice`."""
        if not self._quiet:
            _say_json({"type": "notice", "message": text})

    def bug(self, error: BaseException) -> None:
        """As :meth:`Talk.bug`."""
        trace = "".join(traceback.format_exception(error))
        _say_json({"type": "error", "code": "bug", "message": str(error), "traceback": trace})

    def last_word(self, code: Exit, reason: str) -> None:
        """The summary says it."""

    def progress(self, what: str, total_records: int | None) -> Counter:
        """As :meth:`Talk.progress`."""
        return silent() if self._quiet else JsonCounter(_say_json, what, total_records)


def open_talk(
    command: str, output_format: Format, *, quiet: bool, verbose: bool, bar: bool
) -> Talk:
    """The talk that belongs to an output format; ``bar`` permits a moving line."""
    if output_format is Format.TEXT:
        return TextTalk(command, quiet=quiet, verbose=verbose, bar=bar)
    return JsonTalk(quiet=quiet, verbose=verbose)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = {id(error)}
    while (cause := error.__cause__) is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        error = cause


def _say(line: str) -> None:
    # Whoever closed standard error does not want to hear; the output goes on.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _say_json(item: Mapping[str, Any]) -> None:
    _say(spelled(item).decode())
