"""Text from outside, made harmless for a terminal.

Payloads, keys, file names and error messages that quote them come from models, tools and
damaged files.  What moves a cursor, hides itself or reorders its neighbours is shown as an
escape instead; everything else stays as it is.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["safe_json", "safe_text", "without_surrogates"]

# Unicode categories Cc, Cf, Cs, Zl and Zp, and what is invisible without being in them
# (joiner, fillers, tags); tests compare the list with the interpreter's own tables.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def safe_text(text: object, *, keep: str = "") -> str:
    r"""``text`` with every character that could act on a terminal as a visible escape.

    Line ends are among them, so that a value stays on its line, unless ``keep`` names
    them; a backslash is not, so that text which only looks like an escape stays as it is.
    """

    def shown(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in keep else _SHORT.get(character) or _escape(character)

    return _UNSAFE.sub(shown, str(text))


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe_json(text: str) -> str:
    r"""JSON text with the same characters as ``\u`` escapes: the same value, harmless.

    White space between tokens stays, as far as it is space and line end.
    """
    return _UNSAFE.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\n\t":
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def without_surrogates(text: str) -> str:
    """``text`` as UTF-8 can spell it: lone surrogates, of file names say, become escapes."""
    return _SURROGATE.sub(lambda match: _escape(match[0]), text)
