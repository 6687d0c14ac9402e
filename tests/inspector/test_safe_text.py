"""Text that came from outside and goes to a terminal."""

from __future__ import annotations

import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.safe_text import safe_json, safe_text, without_surrogates

ANY_TEXT = st.text(st.characters(codec=None))


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\x00\x7f", r"\x00\x7f"),
        ("evil\u202etxt.exe", r"evil\u202etxt.exe"),
        ("\u2066\u2069\u061c", r"\u2066\u2069\u061c"),
        ("a\u200bb\ufeff\u00ad", r"a\u200bb\ufeff\xad"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("\u3164\u115f", r"\u3164\u115f"),
        ("[/x] [00] v={'a[0]'}] :thumbs_up:", "[/x] [00] v={'a[0]'}] :thumbs_up:"),
        ("日本語 é 👍\ufe0f", "日本語 é 👍\ufe0f"),
        ("back\\slash", "back\\slash"),
    ],
)
def test_what_could_act_on_a_terminal_is_shown_as_an_escape(given_text: str, shown: str) -> None:
    """I13, I15."""
    assert safe_text(given_text) == shown


def test_every_control_and_format_character_of_unicode_is_escaped() -> None:
    """I13: the whole kind, by the interpreter's own tables."""
    acting = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    assert [character for character in acting if safe_text(character) == character] == []


def test_line_ends_stay_where_they_are_asked_for() -> None:
    assert safe_text("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(ANY_TEXT)
def test_safe_text_is_safe_and_stays(text: str) -> None:
    once = safe_text(text)
    assert safe_text(once) == once
    once.encode()


@given(st.text())
def test_safe_json_is_the_same_json(text: str) -> None:
    spelled = json.dumps([text, {text: 1}], ensure_ascii=False)
    safe = safe_json(spelled)
    assert json.loads(safe) == json.loads(spelled)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", safe)


@given(ANY_TEXT)
def test_text_without_surrogates_is_utf_8(text: str) -> None:
    assert without_surrogates(text).encode().decode() == without_surrogates(text)
