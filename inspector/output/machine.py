"""JSON and NDJSON: strict RFC 8259, whatever the data holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from inspector.output.base import Item, Verbatim
from inspector.output.sink import Sink
from inspector.safe_text import safe_json, without_surrogates

__all__ = ["JsonWriter", "NdjsonWriter", "spelled"]


def spelled(item: Item) -> bytes:
    """An item as compact JSON.  Lone surrogates, which UTF-8 cannot hold, become escapes."""
    try:
        return orjson.dumps(item)
    except TypeError:
        return orjson.dumps(_spellable(item))


def _pieces(item: Item) -> Iterator[bytes]:
    """An item as compact JSON, large texts by themselves."""
    plain: dict[str, Any] = {}
    separator = b"{"
    for name, value in item.items():
        if not isinstance(value, Verbatim):
            plain[name] = value
            continue
        if plain:
            yield separator + spelled(plain)[1:-1]
            plain, separator = {}, b","
        yield separator + spelled({name: None})[1:].removesuffix(b"null}")
        yield from value.pieces()
        separator = b","
    if plain:
        yield separator + spelled(plain)[1:-1]
    yield b"}"


def _spellable(value: Any) -> Any:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, Mapping):
        return {without_surrogates(str(name)): _spellable(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_spellable(member) for member in value]
    return value


class _Machine:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def _write(self, text: bytes) -> None:
        # A terminal gets the same JSON with everything escaped that it could obey.
        if self._sink.is_terminal:
            text = safe_json(text.decode(errors="replace")).encode()
        self._sink.write(text)

    def _write_item(self, item: Item) -> None:
        for piece in _pieces(item):
            self._write(piece)


class NdjsonWriter(_Machine):
    """One line an item, the summary last."""

    def item(self, item: Item) -> None:
        """As :meth:`inspector.output.base.Writer.item`."""
        self._write_item(item)
        self._write(b"\n")

    def end(self, summary: Item) -> None:
        """As :meth:`inspector.output.base.Writer.end`."""
        self.item(summary)


class JsonWriter(_Machine):
    """One document: ``{"schema": ..., "items": [...], "summary": {...}}``.

    It is written as it comes; cut off in between it is no JSON.
    """

    def __init__(self, sink: Sink, schema: str) -> None:
        super().__init__(sink)
        self._schema = schema
        self._begun = False

    def item(self, item: Item) -> None:
        """As :meth:`inspector.output.base.Writer.item`."""
        self._write(b",\n" if self._begun else self._head())
        self._write_item(item)
        self._begun = True

    def end(self, summary: Item) -> None:
        """As :meth:`inspector.output.base.Writer.end`."""
        head = b"" if self._begun else self._head()
        self._write(head + b'],"summary":' + spelled(summary) + b"}\n")

    def _head(self) -> bytes:
        return b'{"schema":' + orjson.dumps(self._schema) + b',"items":['
