"""JSON and NDJSON."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from inspector.output.base import Verbatim
from inspector.output.machine import JsonWriter, NdjsonWriter, spelled
from tests.support.inspecting import strict


class Page:
    """A sink that keeps what it gets."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self.data = b""
        self.is_terminal = is_terminal

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self) -> None:
        pass


def test_a_document_without_items() -> None:
    page = Page()
    JsonWriter(page, "s/1").end({"type": "summary"})
    assert strict(page.data) == {"schema": "s/1", "items": [], "summary": {"type": "summary"}}


def test_a_document_that_was_cut_off_cannot_be_taken_for_a_whole_one() -> None:
    """I37."""
    page = Page()
    writer = JsonWriter(page, "s/1")
    writer.item({"type": "a", "x": orjson.Fragment(b"[1, 2]")})
    try:
        strict(page.data)
    except ValueError:
        pass
    else:
        raise AssertionError("half a document is JSON")
    writer.item({"type": "b"})
    writer.end({"type": "summary"})
    assert [item["type"] for item in strict(page.data)["items"]] == ["a", "b"]


@given(st.text(st.characters(codec=None)), st.booleans())
def test_any_text_gives_strict_json(text: str, is_terminal: bool) -> None:
    """I7, I13."""
    page = Page(is_terminal=is_terminal)
    writer = JsonWriter(page, "s/1")
    writer.item({"type": text, "members": {text: [text, (text,)]}})
    writer.end({"type": "summary"})
    document = strict(page.data)
    assert document["summary"]["type"] == "summary"
    if is_terminal:
        assert not {"\x1b", "\x9b", "\u202e"} & set(page.data.decode())


def test_names_that_are_no_text_become_escapes() -> None:
    assert spelled({"file": "b\udcff"}) == b'{"file":"b\\\\udcff"}'


def test_a_large_text_is_spliced_wherever_it_stands() -> None:
    large = Verbatim(b'{"a" : 1.00}')
    for members in (
        {"x": large},
        {"x": large, "y": 1},
        {"y": 1, "x": large},
        {"y": 1, '"\u2028': large, "z": large, "w": "\ud800"},
    ):
        page = Page()
        NdjsonWriter(page).item({"type": "a", **members})
        NdjsonWriter(page).item(members)
        first, second = map(strict, page.data.splitlines())
        assert first == {"type": "a", **second}
        assert list(second) == list(members)
        assert page.data.count(large.text) == 2 * list(members.values()).count(large)
