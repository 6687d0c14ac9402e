"""JSON and NDJSON: strict RFC 8259, whatever the data holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from inspector.output.base import Item
from inspector.output.sink import Sink
from inspector.safe_text import safe_json, without_surrogates

__all__ = ["JsonWriter", "NdjsonWriter", "spelled"]


def spelled(item: Item) -> bytes:
    """An item as compact JSON.  Lone surrogates, which UTF-8 cannot hold, become escapes."""
    try:
        return orjson.dumps(item)
    except TypeError:
        return orjson.dumps(_spellable(item))


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


class NdjsonWriter(_Machine):
    """One line an item, the summary last."""

    def item(self, item: Item) -> None:
        """As :meth:`inspector.output.base.Writer.item`."""
        # Not joined: a record may be a large part of the memory that there is.
        self._write(spelled(item))
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
        self._write(spelled(item))
        self._begun = True

    def end(self, summary: Item) -> None:
        """As :meth:`inspector.output.base.Writer.end`."""
        head = b"" if self._begun else self._head()
        self._write(head + b'],"summary":' + spelled(summary) + b"}\n")

    def _head(self) -> bytes:
        return b'{"schema":' + orjson.dumps(self._schema) + b',"items":['
