"""JSON text: judged by RFC 8259, and decoded without loss.

The fast decoder (msgspec) is exact but narrower than ``json.loads``: it refuses
numbers beyond a double and lone-surrogate escapes.  Whatever it refuses,
``json.loads`` decides.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from ckptfmt.errors import DepthError, JsonSyntaxError
from ckptfmt.exact import pointer
from ckptfmt.exact.encode import MAX_VALUE_DEPTH
from ckptfmt.exact.integers import from_digits
from ckptfmt.gc_pause import gc_paused
from ckptfmt.threads import submit
from ckptfmt.wire import MAX_INLINE_DEPTH

__all__ = [
    "Buffer",
    "check_json",
    "decode_json",
    "from_any_stack",
    "nesting_depth",
    "on_fresh_stack",
]

Buffer = bytes | msgspec.Raw
"""JSON text: bytes, or a slice of the line that holds it."""
_T = TypeVar("_T")

_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_STRING_OR_CONSTANT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)
_TOKEN: Final = re.compile(rb'[\[\]{},]|"((?:[^"\\]|\\.)*)"', re.DOTALL)


def decode_json(text: Buffer) -> Any:
    """The value that ``json.loads`` would give for ``text``, whatever its depth and ours.

    The last of duplicate members wins, ``1e400`` is infinite, lone surrogates are kept.

    Raises:
        JsonSyntaxError: not RFC 8259 JSON in UTF-8, with the byte offset.
        DepthError: deeper than the format permits and the interpreter can decode.
        IntegerError: an integer of more than 4,300 digits.
    """
    with gc_paused():
        try:
            return msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return on_fresh_stack(_decode_slowly, bytes(text))


def check_json(data: bytes) -> bool:
    """Judge a JSON text that will be kept as it is; whether it may stand inside a line.

    False means that it must be stored as a string (tag ``text``): it holds CR or LF, a
    lone-surrogate escape, more than 250 levels, or white space around the value.

    Raises:
        JsonSyntaxError: not RFC 8259 JSON in UTF-8, with the byte offset.
        DepthError: nested more than 499 levels, with the pointer.
    """
    if not data.isascii():
        _utf8(data)
    depth = nesting_depth(data)
    if depth > MAX_VALUE_DEPTH:
        offset, where = _too_deep_at(data)
        raise DepthError(f"JSON text is nested more than {MAX_VALUE_DEPTH} levels").at(
            offset=offset, pointer=where
        )
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        on_fresh_stack(_judge_slowly, data)
    return (
        depth <= MAX_INLINE_DEPTH
        and b"\n" not in data
        and b"\r" not in data
        and data[0] not in b" \t"
        and data[-1] not in b" \t"
        and not _has_lone_surrogate(data)
    )


def from_any_stack(call: Callable[[bytes], _T], data: bytes) -> _T:
    """``call(data)``, on a fresh stack where the caller's leaves no room for it.

    Raises:
        DepthError: as :func:`on_fresh_stack`.
    """
    try:
        return call(data)
    except RecursionError:
        return on_fresh_stack(call, data)


def on_fresh_stack(call: Callable[[bytes], _T], data: bytes) -> _T:
    """``call(data)`` on a thread of its own, where the caller's stack depth does not count.

    Raises:
        DepthError: the text is nested deeper than even there can be decoded.
        TransientError: no thread can be started.
    """
    with ThreadPoolExecutor(1) as executor:
        try:
            return submit(executor, call, data).result()
        except RecursionError:
            raise DepthError(
                f"JSON text is nested {nesting_depth(data)} levels, beyond the recursion limit",
                advice=f"{MAX_VALUE_DEPTH} levels need the default, sys.setrecursionlimit(1000)",
            ) from None


def _decode_slowly(data: bytes) -> Any:
    return _loads(data, parse_int=from_digits)


def _judge_slowly(data: bytes) -> None:
    # Numbers are not converted: in text that is kept they may be of any length.
    _loads(data, parse_int=len, parse_float=len, parse_constant=_refuse_constant)


def _loads(data: bytes, **options: Any) -> Any:
    text = _utf8(data)
    try:
        return json.loads(text, **{"parse_constant": _refuse_constant, **options})
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        raise JsonSyntaxError(f"not JSON: {error.msg}").at(offset=offset) from None
    except _ConstantError as error:
        outside = (
            match.start()
            for match in _STRING_OR_CONSTANT.finditer(data)
            if not match[0].startswith(b'"')
        )
        raise JsonSyntaxError(f"not JSON: the constant {error}").at(
            offset=next(outside, None)
        ) from None


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(name)


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JsonSyntaxError(f"not UTF-8: {error.reason}").at(offset=error.start) from None


def nesting_depth(data: bytes) -> int:
    """Levels of nesting; of invalid JSON, some number that is no smaller for nested openings."""
    if data.count(b"[") + data.count(b"{") <= MAX_INLINE_DEPTH:
        return MAX_INLINE_DEPTH
    # Escapes go first, so that every quote left opens or closes a string.
    bare = data.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NOT_BRACKETS)
    outside = b"".join(bare.split(b'"')[::2])
    return max(accumulate(array("b", outside.translate(_STEPS))), default=0)


def _too_deep_at(data: bytes) -> tuple[int, str]:
    """Offset and pointer of the first container beyond the permitted depth."""
    tokens: list[str | int] = []
    in_object: list[bool] = []
    name = ""
    for match in _TOKEN.finditer(data):
        mark = match[0]
        if mark in b"[{":
            if len(in_object) == MAX_VALUE_DEPTH:
                tokens[-1] = name if in_object[-1] else tokens[-1]
                return match.start(), pointer.join(tokens)
            if in_object and in_object[-1]:
                tokens[-1] = name
            in_object.append(mark == b"{")
            tokens.append("" if in_object[-1] else 0)
        elif mark in b"]}" and in_object:
            in_object.pop()
            tokens.pop()
        elif mark == b"," and in_object and not in_object[-1]:
            tokens[-1] = int(tokens[-1]) + 1
        elif mark.startswith(b'"'):
            name = _unescaped(mark)
    return 0, ""


def _unescaped(string: bytes) -> str:
    try:
        return str(json.loads(string.decode(errors="replace")))
    except ValueError:
        return string.decode(errors="replace")


def _has_lone_surrogate(data: bytes) -> bool:
    if _SURROGATE_ESCAPE.search(data) is None:
        return False
    high_end = -1
    for match in _ESCAPE.finditer(data):
        code = int(match[1] or b"0", 16)
        pending, high_end = high_end, -1
        if 0xDC00 <= code <= 0xDFFF:
            if pending != match.start():
                return True
        elif pending >= 0:
            return True
        if 0xD800 <= code <= 0xDBFF:
            high_end = match.end()
    return high_end >= 0
