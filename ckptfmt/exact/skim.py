"""JSON text that comes in pieces: judged by RFC 8259, and where its values stand.

For text that is too long to be held.  Runs of scalars and of flat containers are matched at
once, so that a step in Python is taken for nested containers only.  What is kept between two
pieces is what is open, and a token that the border cuts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from ckptfmt.errors import DepthError, JsonSyntaxError, SizeError
from ckptfmt.wire import MAX_DEPTH

__all__ = ["Path", "Skim"]

Path: TypeAlias = tuple[str | int, ...]
"""Names and indexes from the root to a value."""

# Possessive throughout, so that nothing is ever tried a second time.
_SPACE: Final = rb"[ \t\r\n]*+"
_BODY: Final = rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_STRING: Final = rb'"%b"' % _BODY
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+"
_WORD: Final = rb"(?:%b|true|false|null)" % _NUMBER
_SCALAR: Final = rb"(?:%b|%b)" % (_STRING, _WORD)


def _repeated(item: bytes) -> bytes:
    return rb"%b(?:%b%b(?:,%b%b%b)*+)?+" % (_SPACE, item, _SPACE, _SPACE, item, _SPACE)


def _member(item: bytes) -> bytes:
    return rb"%b%b:%b%b" % (_STRING, _SPACE, _SPACE, item)


def _run(item: bytes) -> re.Pattern[bytes]:
    """As many as there are, each with the comma that shows that it is whole."""
    return re.compile(rb"(?:%b%b,%b)++" % (item, _SPACE, _SPACE))


_ITEM: Final = rb"(?:%b|\[%b\]|\{%b\})" % (_SCALAR, _repeated(_SCALAR), _repeated(_member(_SCALAR)))
_RUNS: Final = {False: _run(_ITEM), True: _run(_member(_ITEM))}
_BLANK: Final = re.compile(_SPACE)
_IN_STRING: Final = re.compile(_BODY)
_WHOLE_STRING: Final = re.compile(_STRING)
_WHOLE_WORD: Final = re.compile(_WORD)
_WORD_BYTES: Final = re.compile(rb"[-+.0-9A-Za-z]++")
# Of digits in a row, two tell what they are worth here: a leading zero has to stay one.
_MORE_DIGITS: Final = re.compile(rb"(?<=[0-9]{2})[0-9]+")
_LONGEST_WORD_BYTES: Final = 32
_LONGEST_ESCAPE_BYTES: Final = 6
_MAX_NAME_BYTES: Final = 1 << 20


class _Next(Enum):
    VALUE = auto()
    VALUE_OR_END = auto()
    NAME = auto()
    NAME_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


@dataclass(slots=True)
class _Open:
    """A container that is not closed; ``path`` is None where its children are not told."""

    is_object: bool
    path: Path | None
    step: str | int = 0
    child_start: int = 0


class Skim:
    """Takes JSON text in pieces.

    ``tell`` takes path, begin and end of the whole value, and of the children of each container
    that ``watches`` says yes to; what is in a container comes before it.
    """

    def __init__(
        self, watches: Callable[[Path], bool], tell: Callable[[Path, int, int], None]
    ) -> None:
        self._watches = watches
        self._tell = tell
        self._open: list[_Open] = []
        self._next = _Next.VALUE
        self._in_string = False
        self._data = b""
        self._at = 0
        self._base = 0
        self._start = 0
        self._dropped = 0

    def feed(self, piece: bytes) -> None:
        """The next piece.

        Raises:
            JsonSyntaxError: not JSON, with the byte offset.  UTF-8 is not looked at.
            DepthError: nested more than 500 levels.
            SizeError: the name of a child that is told is longer than a mebibyte.
        """
        self._base += self._at
        self._data = self._data[self._at :] + piece
        self._at = 0
        self._go_on()

    def end(self) -> None:
        """There are no more pieces.

        Raises:
            JsonSyntaxError: the text is cut off.
        """
        # White space closes a number and changes nothing else.
        self.feed(b"" if self._in_string else b" ")
        if self._next is not _Next.NOTHING or self._in_string or self._at < len(self._data):
            raise self._wrong(len(self._data))

    def _go_on(self) -> None:
        while self._at < len(self._data) and self._step():
            pass

    def _step(self) -> bool:
        """Take the next token or run of them; False if it is cut off."""
        if self._in_string:
            return self._rest_of_string()
        match = _BLANK.match(self._data, self._at)
        assert match is not None
        self._at = match.end()
        if self._at == len(self._data):
            return False
        mark = self._data[self._at : self._at + 1]
        match self._next:
            case _Next.VALUE | _Next.VALUE_OR_END:
                return self._value(mark)
            case _Next.NAME | _Next.NAME_OR_END:
                return self._name(mark)
            case _Next.COLON if mark == b":":
                self._next = _Next.VALUE
            case _Next.COMMA_OR_END if mark == b",":
                top = self._open[-1]
                self._next = _Next.NAME if top.is_object else _Next.VALUE
                if not top.is_object:
                    top.step = int(top.step) + 1
            case _Next.COMMA_OR_END if mark == (b"}" if self._open[-1].is_object else b"]"):
                return self._close()
            case _:
                raise self._wrong(self._at)
        self._at += 1
        return True

    def _value(self, mark: bytes) -> bool:
        top = self._open[-1] if self._open else None
        if mark == b"]" and self._next is _Next.VALUE_OR_END:
            return self._close()
        if top is not None and not top.is_object and self._take_run(top):
            return True
        start = self._base + self._at - self._dropped
        if top is None:
            self._start = start
        else:
            top.child_start = start
        if mark in b"[{":
            return self._descend(mark == b"{")
        if mark == b'"':
            return self._string()
        return self._word()

    def _name(self, mark: bytes) -> bool:
        top = self._open[-1]
        if mark == b"}" and self._next is _Next.NAME_OR_END:
            return self._close()
        if mark != b'"':
            raise self._wrong(self._at)
        if self._take_run(top):
            return True
        if top.path is None:
            self._next = _Next.COLON
            return self._string()
        match = _WHOLE_STRING.match(self._data, self._at)
        if match is None:
            return self._wait_for_name()
        top.step = json.loads(match[0].decode(errors="replace"))
        self._at = match.end()
        self._next = _Next.COLON
        return True

    def _wait_for_name(self) -> bool:
        self._body_end(self._at + 1)
        if len(self._data) - self._at > _MAX_NAME_BYTES:
            raise SizeError(f"a member's name of more than {_MAX_NAME_BYTES:,} bytes")
        return False

    def _take_run(self, top: _Open) -> bool:
        run = None if top.path is not None else _RUNS[top.is_object].match(self._data, self._at)
        if run is None:
            return False
        self._at = run.end()
        self._next = _Next.NAME if top.is_object else _Next.VALUE
        return True

    def _string(self) -> bool:
        """A string from its quote on; what comes behind a name was set by the caller."""
        self._at += 1
        self._in_string = True
        return self._rest_of_string()

    def _rest_of_string(self) -> bool:
        self._at = self._body_end(self._at)
        if self._data[self._at : self._at + 1] != b'"':
            return False
        self._at += 1
        self._in_string = False
        if self._next is not _Next.COLON:
            self._ended()
        return True

    def _body_end(self, start: int) -> int:
        """Where a string's content ends: at its quote, or where the piece cuts it."""
        match = _IN_STRING.match(self._data, start)
        assert match is not None
        end = match.end()
        rest = len(self._data) - end
        if not rest or self._data[end] == 0x22:
            return end
        if self._data[end] == 0x5C and rest < _LONGEST_ESCAPE_BYTES:
            return end
        raise self._wrong(end)

    def _word(self) -> bool:
        match = _WORD_BYTES.match(self._data, self._at)
        if match is None:
            raise self._wrong(self._at)
        if match.end() == len(self._data):
            short = _MORE_DIGITS.sub(b"", match[0])
            if len(short) > _LONGEST_WORD_BYTES:
                raise self._wrong(self._at)
            dropped = len(match[0]) - len(short)
            self._dropped += dropped
            self._base += dropped
            self._data = self._data[: self._at] + short
            return False
        if _WHOLE_WORD.fullmatch(match[0]) is None:
            raise self._wrong(self._at)
        self._at = match.end()
        self._dropped = 0
        self._ended()
        return True

    def _descend(self, is_object: bool) -> bool:
        if len(self._open) == MAX_DEPTH:
            raise DepthError(f"JSON text is nested more than {MAX_DEPTH} levels").at(
                offset=self._base + self._at
            )
        path: Path | None = ()
        if self._open:
            top = self._open[-1]
            path = None if top.path is None else (*top.path, top.step)
        if path is not None and not self._watches(path):
            path = None
        self._open.append(_Open(is_object, path))
        self._next = _Next.NAME_OR_END if is_object else _Next.VALUE_OR_END
        self._at += 1
        return True

    def _close(self) -> bool:
        self._open.pop()
        self._at += 1
        self._ended()
        return True

    def _ended(self) -> None:
        """A value ends before the next byte."""
        if not self._open:
            self._next = _Next.NOTHING
            self._tell((), self._start, self._base + self._at)
            return
        self._next = _Next.COMMA_OR_END
        top = self._open[-1]
        if top.path is not None:
            self._tell((*top.path, top.step), top.child_start, self._base + self._at)

    def _wrong(self, at: int) -> JsonSyntaxError:
        return JsonSyntaxError("not JSON").at(offset=self._base + at)
