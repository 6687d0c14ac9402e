"""Text for people."""

from __future__ import annotations

from rich.cells import cell_len

from inspector.output.base import Column, Item, Table, Views
from inspector.output.text import TextWriter


class Page:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""
        self.is_terminal = False

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self) -> None:
        pass

    @property
    def lines(self) -> list[str]:
        return self.data.decode().splitlines()


TABLE = Table(
    (
        Column("NAME", lambda item: item["name"], style=lambda cell: "bold red" if cell else ""),
        Column("SIZE", lambda item: str(item["size"]), right=True),
    )
)
VIEWS: Views = {"row": TABLE, "note": lambda item: [item["text"]]}


def written(*items: Item, color: bool = False) -> list[str]:
    page = Page()
    writer = TextWriter(page, VIEWS, color=color)
    for item in items:
        writer.item(item)
    writer.end({"type": "summary"})
    return page.lines


def row(name: str, size: object = 1) -> Item:
    return {"type": "row", "name": name, "size": size}


def test_columns_are_aligned_and_nothing_is_cut() -> None:
    assert written(row("a", 5), row("b" * 300, 12345)) == [
        "NAME" + " " * 299 + "SIZE",
        "a" + " " * 299 + "      5",
        "b" * 300 + "  12345",
    ]


def test_rows_beyond_those_measured_stand_out_and_do_not_wait() -> None:
    page = Page()
    writer = TextWriter(page, VIEWS, color=False)
    for number in range(200):
        writer.item(row("a", number))
    assert len(page.lines) == 201
    writer.item(row("long name", 7))
    assert page.lines[-1].split() == ["long", "name", "7"]


def test_a_cell_is_as_wide_as_the_terminal_shows_it() -> None:
    """I16."""
    lines = written(row("日本語"), row("👍\ufe0f"), row("é"), row("plain"))
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}


def test_every_string_is_made_safe() -> None:
    """I13, I14, I15."""
    bad = "\x1b[2J\u202e[/x]:thumbs_up:\n"
    lines = written(row(bad, bad), {"type": "note", "text": bad})
    assert len(lines) == 3
    assert not {"\x1b", "\u202e"} & set("".join(lines))
    assert lines[2] == "\\x1b[2J\\u202e[/x]:thumbs_up:\\n"
    assert "\\x1b[2J\\u202e[/x]:thumbs_up:\\n" in lines[1]


def test_colour_changes_no_text_and_holds_only_its_own_escapes() -> None:
    """I66: no meaning by colour alone."""
    plain = written(row("a\x1b[2J"), row("b"))
    coloured = written(row("a\x1b[2J"), row("b"), color=True)
    assert "\x1b[1;31ma\\x1b[2J\x1b[0m" in coloured[1]
    bare = [line.replace("\x1b[1;31m", "").replace("\x1b[0m", "") for line in coloured]
    assert bare == plain


def test_what_has_no_view_is_not_shown() -> None:
    assert written({"type": "other"}) == []
