"""From a Python value to strict JSON and its annotations.

Two encoders that are each exact for a different set of types judge a value
together; where both accept it and no float can be NaN or infinite, the value
has no surprises and the JSON encoder's text stands as it is.  Everything else
is walked, and what JSON cannot spell is annotated.  Both ways give the same
text for the same value, since ``orjson`` writes it in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
import ormsgpack

from ckptfmt.errors import CycleError, DepthError, IntegerError, SizeError, ValueRefusedError
from ckptfmt.exact import pointer
from ckptfmt.exact.annotations import STARRED, Tag, encode_runs
from ckptfmt.exact.integers import fits_64_bits, to_digits
from ckptfmt.wire import MAX_ANNOTATION_BYTES, MAX_DEPTH, STARRED_FROM

__all__ = ["MAX_VALUE_DEPTH", "Encoded", "encode", "is_plain_text"]

MAX_VALUE_DEPTH: Final = MAX_DEPTH - 1
"""Levels of a value; the record that holds it is one more."""

# With these, ormsgpack refuses every type that JSON would change, but for byte strings
# and Ext, which orjson refuses (tests/ckptfmt/exact/test_fast_path.py pins the list).
_STRICT: Final = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_PASSTHROUGH_ENUM
)
# In MessagePack a float is 0xCB and eight bytes; all exponent bits set is NaN or infinity.
# UTF-8 text cannot hold 0xCB before 0x7F or 0xFF, so a match elsewhere is rare.
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_NULL: Final = re.compile(b"null")
# Where it is that frequent, a scan is cheaper: measured on text and on arrays of floats.
_HOPS: Final = 64
# orjson writes 254 levels; a subtree this high is written first and spliced.
_SPLICE_HEIGHT: Final = 200
_INF: Final = float("inf")
# Of a list of numbers, how many are summed up at once: measured.
_PART: Final = 64
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NUMBERS: Final = frozenset({float, int, bool, type(None)})
# The order of entries within one container, so that equal values give equal lines.
_TAG_ORDER: Final = (Tag.NAN, Tag.INF, Tag.NEG_INF, Tag.SURROGATES, Tag.MAP, Tag.TUPLE)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Strict JSON text in UTF-8, and the JSON list of annotations that it needs, if any."""

    text: bytes
    annotations: bytes | None = None


def encode(value: object) -> Encoded:
    """Check ``value`` and spell it.

    Accepted: ``None``, ``bool``, ``int`` of at most 4,300 digits, ``float``, ``str``,
    ``list``, ``tuple`` and ``dict`` of these, exactly these types, nested at most 499
    levels (a dict with keys other than plain strings takes two).

    A container that holds itself is found only after its content was gone through some
    250 times, and takes memory to match.

    Raises:
        ValueRefusedError: another type, with its pointer; nothing is coerced.
        CycleError: a container that holds itself.
        DepthError: too many levels.
        IntegerError: too many digits.
        SizeError: the pointers of the annotations come to more than 64 MiB.
    """
    text = _fast_text(value)
    if text is None:
        return _Walk().encode(value)
    return _Walk().encode(value, text.json) if text.suspicious else Encoded(text.json)


@dataclass(frozen=True, slots=True)
class _FastText:
    """The text of a value that both encoders take; ``suspicious``: a float may not be finite."""

    json: bytes
    suspicious: bool


def _fast_text(value: object) -> _FastText | None:
    try:
        packed = ormsgpack.packb(value, option=_STRICT)
        text = orjson.dumps(value)
    except (ormsgpack.MsgpackEncodeError, orjson.JSONEncodeError):
        return None
    return _FastText(text, _is_suspicious(packed, text))


def _is_suspicious(packed: bytes, text: bytes) -> bool:
    """Whether a float of a value that both encoders took may be NaN or infinite."""
    # What is not finite stands as null in the text, so that both must have it.
    packed_at = _may_hold(packed, b"\xcb", _NOT_FINITE)
    if packed_at < 0:
        return False
    text_at = _may_hold(text, b"n", _NULL)
    if text_at < 0 or _NULL.search(text, text_at) is None:
        return False
    return _NOT_FINITE.search(packed, packed_at) is not None


def _may_hold(data: bytes, first: bytes, pattern: re.Pattern[bytes]) -> int:
    """Where a search for ``pattern``, which begins with ``first``, has to begin; -1: nowhere."""
    # Where that byte is rare, hopping from one to the next beats any scan.
    at = data.find(first)
    for _ in range(_HOPS):
        if at < 0 or pattern.match(data, at):
            break
        at = data.find(first, at + 1)
    return at


class _Pair(list[Any]):
    """Key and value of a dict that is stored as an array of pairs."""

    __slots__ = ()


_CONTAINERS: Final = (list, tuple, dict, _Pair)


class _Open:
    """A container being walked, and its stored form as far as it is known."""

    __slots__ = ("changed", "children", "height", "keys", "marks", "out", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.keys: list[str] | None = None
        self.changed = False
        if type(source) is not dict:
            self.children: Iterator[Any] = iter(source)
        elif all(map(is_plain_text, source)):
            self.keys = list(source)
            self.children = iter(source.values())
        else:
            self.changed = True
            self.children = map(_Pair, source.items())
        self.out: list[Any] = []
        self.height = 1
        self.marks: dict[Tag, list[tuple[str | int, list[int] | None]]] = {}

    @property
    def tag(self) -> Tag | None:
        """What the parent must say of this container."""
        if type(self.source) is tuple:
            return Tag.TUPLE
        return Tag.MAP if type(self.source) is dict and self.keys is None else None

    @property
    def token(self) -> str | int:
        """The pointer token of the child being looked at."""
        place = len(self.out)
        return place if self.keys is None else self.keys[place]

    def mark(self, tag: Tag, arg: list[int] | None = None) -> None:
        """Note that the child being looked at needs ``tag``."""
        self.marks.setdefault(tag, []).append((self.token, arg))

    def stored(self) -> Any:
        if not self.changed:
            return self.source
        return self.out if self.keys is None else dict(zip(self.keys, self.out, strict=True))


class _Walk:
    """One iterative walk: no recursion, so neither depth nor the caller's stack matters."""

    def __init__(self) -> None:
        self._is_spelt = False
        self._open: list[_Open] = []
        self._above: set[int] = set()
        self._entries: list[list[object]] = []
        self._annotation_bytes = 0

    def encode(self, value: object, text: bytes | None = None) -> Encoded:
        """``text`` is what the JSON encoder makes of the value, where that is known."""
        holder = _Open([value])
        self._is_spelt = text is not None
        self._open.append(holder)
        while True:
            frame = self._open[-1]
            if self._open_next(frame):
                continue
            self._emit(frame)
            self._open.pop()
            if frame is holder:
                break
            self._above.discard(id(frame.source))
            self._attach(frame)
        annotations = orjson.dumps(self._entries) if self._entries else None
        if text is None or holder.changed:
            text = orjson.dumps(holder.out[0])
        return Encoded(text, annotations)

    def _open_next(self, frame: _Open) -> bool:
        """Take children until one is a container to walk; false when none is left."""
        for child in frame.children:
            if type(child) not in _CONTAINERS:
                self._take(frame, child)
            elif self._is_spelt and type(child) is list and (total := _sum(child)) is not None:
                # Numbers that both encoders took; where their sum is finite, so are they.
                if total - total == 0.0:
                    frame.out.append(child)
                else:
                    self._take_numbers(child, {float})
            elif (kinds := _kinds_of_short_numbers(child)) and len(self._open) <= MAX_VALUE_DEPTH:
                self._take_numbers(child, kinds)
            else:
                self._descend(child)
                return True
        return False

    def _descend(self, child: Any) -> None:
        # The holder is not a level of the value, the child to be opened is one.
        if len(self._open) > MAX_VALUE_DEPTH:
            raise DepthError(f"nesting exceeds {MAX_DEPTH} levels, the record's own included").at(
                pointer=self._pointer()
            )
        if id(child) in self._above:
            raise CycleError("a container holds itself").at(pointer=self._pointer())
        self._above.add(id(child))
        self._open.append(_Open(child))

    def _take(self, frame: _Open, child: Any) -> None:
        kind = type(child)
        if kind is str:
            stored: Any = child
            if not is_plain_text(child):
                stored, codes = _without_surrogates(str(child))
                frame.mark(Tag.SURROGATES, codes)
        elif kind is float:
            stored = child
            if tag := _special(child):
                frame.mark(tag)
        elif kind is int:
            stored = child if fits_64_bits(child) else self._long_integer(child)
        elif child is None or kind is bool:
            stored = child
        else:
            raise ValueRefusedError(
                f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored exactly",
                advice="export None, bool, int, float, str, list, tuple or dict, no subclasses",
            ).at(pointer=self._pointer())
        frame.changed |= stored is not child
        frame.out.append(stored)

    def _long_integer(self, number: int) -> orjson.Fragment:
        try:
            return orjson.Fragment(to_digits(number).encode())
        except IntegerError as error:
            raise error.at(pointer=self._pointer()) from None

    def _take_numbers(self, numbers: list[Any] | tuple[Any, ...], kinds: set[type]) -> None:
        """Take a flat array in one go: states are full of long lists of floats."""
        inner = _Open(numbers)
        for index in _not_finite(numbers, kinds):
            if tag := _special(numbers[index]):
                inner.marks.setdefault(tag, []).append((index, None))
        self._open.append(inner)
        self._emit(inner)
        self._open.pop()
        self._attach(inner)

    def _attach(self, frame: _Open) -> None:
        """Hand a finished container to its parent."""
        parent = self._open[-1]
        if frame.tag is not None:
            parent.mark(frame.tag)
        stored, height = frame.stored(), frame.height
        if height >= _SPLICE_HEIGHT:
            stored, height = orjson.Fragment(orjson.dumps(stored)), 0
        parent.changed |= stored is not frame.source
        parent.height = max(parent.height, height + 1)
        parent.out.append(stored)

    def _emit(self, frame: _Open) -> None:
        """Write the entries of a container's own children, after those of everything below."""
        if not frame.marks:
            return
        if len(self._open) == 1:
            for tag, marks in frame.marks.items():
                self._annotate("", tag, marks[0][1])
            return
        base = pointer.join(above.token for above in self._open[1:-1])
        for tag in _TAG_ORDER:
            if tag not in frame.marks:
                continue
            marks = frame.marks[tag]
            if frame.keys is None and len(marks) >= STARRED_FROM and f"{tag}*" in STARRED:
                self._annotate(base, f"{tag}*", encode_runs(int(token) for token, _ in marks))
                continue
            for token, arg in marks:
                self._annotate(base + pointer.join([token]), tag, arg)

    def _annotate(self, target: str, tag: str, arg: list[int] | None) -> None:
        self._annotation_bytes += len(target) + len(tag)
        if self._annotation_bytes > MAX_ANNOTATION_BYTES:
            raise SizeError(
                f"the annotations of a value exceed {MAX_ANNOTATION_BYTES:,} bytes",
                advice="export fewer values that JSON cannot spell under long keys",
            ).at(pointer=target[:1000])
        self._entries.append([target, tag] if arg is None else [target, tag, arg])

    def _pointer(self) -> str:
        return pointer.join(frame.token for frame in self._open[1:])


def is_plain_text(text: object) -> bool:
    """Whether ``text`` is exactly a ``str`` and UTF-8 can spell it (no lone surrogate)."""
    if type(text) is not str:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_surrogates(text: str) -> tuple[str, list[int]]:
    """``text`` with U+FFFD for each surrogate, and ``[code-point index, code, ...]`` of them."""
    codes: list[int] = []
    for match in _SURROGATE.finditer(text):
        codes += (match.start(), ord(match[0]))
    return _SURROGATE.sub("\ufffd", text), codes


def _special(number: float) -> Tag | None:
    if number != number:
        return Tag.NAN
    if number in (_INF, -_INF):
        return Tag.INF if number > 0 else Tag.NEG_INF
    return None


def _sum(items: list[float]) -> float | None:
    """The sum of an array of nothing but numbers, which is finite only if they all are."""
    try:
        return sum(items)
    except TypeError:
        return None


def _not_finite(numbers: list[Any] | tuple[Any, ...], kinds: set[type]) -> list[int]:
    """Where floats stand that are NaN or infinite; integers here have at most 64 bits."""
    if float not in kinds:
        return []
    if type(None) in kinds:
        return [
            index
            for index, number in enumerate(numbers)
            if type(number) is float and number - number != 0.0
        ]
    # They come in clusters, so that most parts have a finite sum.
    return [
        index
        for start in range(0, len(numbers), _PART)
        if (total := sum(part := numbers[start : start + _PART])) - total != 0.0
        for index, number in enumerate(part, start)
        if number - number != 0.0
    ]


def _kinds_of_short_numbers(container: Any) -> set[type] | None:
    """The types in an array of nothing but numbers of at most 64 bits, bools and None."""
    if type(container) not in (list, tuple):
        return None
    kinds = set(map(type, container))
    if kinds == {int}:
        short = fits_64_bits(min(container)) and fits_64_bits(max(container))
    else:
        short = kinds <= _NUMBERS and (
            int not in kinds
            or all(fits_64_bits(number) for number in container if type(number) is int)
        )
    return kinds if short else None
