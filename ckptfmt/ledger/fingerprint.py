"""Fingerprints of a conversation, by which a request finds the call that it continues.

Two hashes over the items of a request, in any of the three dialects that model servers
speak (Chat Completions, Responses, Messages):

* the *assistant fingerprint* covers what the model wrote, and nothing else; it is the
  key by which a call is looked up;
* the *conversation digest* covers every turn; it proves that the context of a call was
  not rewritten.  Of instructions (system, developer) only place and role count, since
  programs put the day's date there: a call that crosses midnight has the same context.

Both are those of NeMo Gym, version 3: SHA-256 over a domain and then fields, each a tag
byte, its length as a 64-bit big-endian integer, and UTF-8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from ckptfmt.errors import ValueRefusedError

__all__ = ["Item", "assistant_fingerprint", "conversation_digest"]

Item: TypeAlias = Mapping[str, Any]

_ASSISTANT_DOMAIN: Final = b"nemo-gym-lineage"
_CONTEXT_DOMAIN: Final = b"nemo-gym-lineage-context"
_INSTRUCTIONS: Final = ("system", "developer")
_TEXT_BLOCKS: Final = ("", "text", "input_text", "output_text")
_TOOL_BLOCKS: Final = ("tool_use", "tool_result")


class _Fields:
    """A hash of tagged fields."""

    def __init__(self, domain: bytes, first_tag: int) -> None:
        self._hash = hashlib.sha256(domain)
        self._first_tag = first_tag

    def add(self, offset: int, *texts: str) -> None:
        """Hash texts under consecutive tags."""
        for tag, text in enumerate(texts, self._first_tag + offset):
            try:
                data = text.encode()
            except UnicodeEncodeError:
                raise ValueRefusedError("a request item holds a lone surrogate") from None
            self._hash.update(bytes((tag,)) + len(data).to_bytes(8, "big"))
            self._hash.update(data)

    def add_turn(self, item: Item) -> None:
        """Hash what a turn says and which tools it calls."""
        for kind, text in _contents(item.get("content")):
            self.add(0, kind, text)
        for call in _tool_calls(item):
            self.add(2, *call)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def assistant_fingerprint(items: Sequence[Item]) -> str:
    """The fingerprint of what the model wrote, 64 hex digits; empty if it wrote nothing.

    Raises:
        ValueRefusedError: an item is not of a shape that any of the dialects has.
    """
    fields = _Fields(_ASSISTANT_DOMAIN, 0)
    written = [item for item in map(_checked, items) if _is_written_by_model(item)]
    for item in written:
        fields.add_turn(item)
    return fields.hexdigest() if written else ""


def conversation_digest(items: Sequence[Item]) -> str:
    """The digest of all turns, 64 hex digits.

    Raises:
        ValueRefusedError: an item is not of a shape that any of the dialects has.
    """
    fields = _Fields(_CONTEXT_DOMAIN, 1)
    for item in map(_checked, items):
        fields.add(-1, str(item.get("role") or item.get("type") or ""))
        if item.get("role") not in _INSTRUCTIONS:
            fields.add_turn(item)
            for result in _tool_results(item):
                fields.add(5, *result)
    return fields.hexdigest()


def _checked(item: Any) -> Item:
    if not isinstance(item, Mapping):
        raise ValueRefusedError(f"a request item is no object but {type(item).__name__}")
    return item


def _is_written_by_model(item: Item) -> bool:
    # Reasoning is left out: not every program hands it back.
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _contents(content: Any) -> Iterator[tuple[str, str]]:
    """Kind and text of each part of a turn, tools aside; empty texts do not count."""
    if content is None:
        return
    if not isinstance(content, str | list):
        raise ValueRefusedError(f"content of a request item is {type(content).__name__}")
    for block in [content] if isinstance(content, str) else content:
        kind, text = ("text", block) if isinstance(block, str) else _block(_checked(block))
        if text:
            yield kind, text


def _block(block: Item) -> tuple[str, str]:
    kind = str(block.get("type") or "")
    if kind in _TOOL_BLOCKS:
        return kind, ""
    text = block.get("text")
    if isinstance(text, str) and kind in _TEXT_BLOCKS:
        return "text", text
    if not kind:
        raise ValueRefusedError("a content block of a request item has no type")
    return kind, _canonical(block)


def _tool_calls(item: Item) -> Iterator[tuple[str, str, str]]:
    """Id, name and arguments of each tool call of a turn."""
    if item.get("type") == "function_call":
        name = str(item.get("name", ""))
        if item.get("namespace"):
            name = f"{item['namespace']}__{name}"
        yield _id_of(item, "call_id", "id"), name, _arguments(item.get("arguments"))
    for block in _blocks(item.get("content")):
        if isinstance(block, Mapping) and block.get("type") == "tool_use":
            yield _id_of(block, "id"), str(block.get("name", "")), _arguments(block.get("input"))
    for call in item.get("tool_calls") or ():
        call = _checked(call or {})
        function = _checked(call.get("function") or {})
        yield (
            _id_of(call, "id"),
            str(function.get("name", "")),
            _arguments(function.get("arguments")),
        )


def _tool_results(item: Item) -> Iterator[tuple[str, str]]:
    """Id and text of each tool result of a turn."""
    if item.get("type") == "function_call_output":
        yield _id_of(item, "call_id", "id"), _text(item.get("output"))
    elif item.get("role") == "tool":
        yield _id_of(item, "tool_call_id"), _text(item.get("content"))
    for block in _blocks(item.get("content")):
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            yield _id_of(block, "tool_use_id", "id"), _text(block.get("content"))


def _id_of(item: Item, *names: str) -> str:
    return next((str(item[name]) for name in names if item.get(name)), "")


def _arguments(value: Any) -> str:
    """Arguments in one spelling: programs hand them back with other spaces and key order."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return _canonical(value)
    try:
        return _canonical(json.loads(value))
    except (ValueError, RecursionError):
        return value.strip()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _canonical(value)


def _canonical(value: Any) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError as error:
        raise ValueRefusedError(f"a request item that JSON does not carry: {error}") from error
