"""Fingerprints: what they cover, in three dialects, byte by byte."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ckptfmt.errors import ValueRefusedError
from ckptfmt.ledger.fingerprint import assistant_fingerprint, conversation_digest

Items = list[dict[str, Any]]


def hashed(domain: str, *fields: tuple[int, str]) -> str:
    """The hash of tagged fields, as docs/ledger.md and the module's text say."""
    data = domain.encode()
    for tag, text in fields:
        data += bytes((tag,)) + len(text.encode()).to_bytes(8, "big") + text.encode()
    return hashlib.sha256(data).hexdigest()


ARGUMENTS = '{"b":1,"a":"\u00e9"}'
CANONICAL = '{"a":"\u00e9","b":1}'

CHAT: Items = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": "Let me see",
        "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": ARGUMENTS}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
]
RESPONSES: Items = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see"}]},
    {"type": "reasoning", "content": None},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": ARGUMENTS},
    {"type": "function_call_output", "call_id": "c1", "output": "found"},
]
MESSAGES: Items = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": "\u00e9", "b": 1}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]},
]
SEEN = [(0, "text"), (1, "Let me see"), (2, "c1"), (3, "look"), (4, CANONICAL)]


@pytest.mark.parametrize("items", [CHAT, RESPONSES, MESSAGES])
def test_three_dialects_have_one_assistant_fingerprint(items: Items) -> None:
    assert assistant_fingerprint(items) == hashed("nemo-gym-lineage", *SEEN)


def test_the_conversation_digest_covers_every_turn() -> None:
    assert conversation_digest(CHAT) == hashed(
        "nemo-gym-lineage-context",
        (0, "user"),
        (1, "text"),
        (2, "Hi"),
        (0, "assistant"),
        *((tag + 1, text) for tag, text in SEEN),
        (0, "tool"),
        (1, "text"),
        (2, "found"),
        (6, "c1"),
        (7, "found"),
    )


def test_instructions_count_by_role_and_place_only() -> None:
    """L36."""
    for role in ("system", "developer"):
        one = [{"role": role, "content": "Monday"}, *CHAT]
        other = [{"role": role, "content": [{"type": "text", "text": "Tuesday"}]}, *CHAT]
        assert conversation_digest(one) == conversation_digest(other)
        assert conversation_digest(one) != conversation_digest(CHAT)
        assert conversation_digest(one) != conversation_digest([*CHAT, one[0]])


def test_nothing_written_by_the_model_has_no_fingerprint() -> None:
    assert assistant_fingerprint([]) == assistant_fingerprint(CHAT[:1]) == ""
    assert assistant_fingerprint([{"role": "assistant"}]) == hashed("nemo-gym-lineage")


def test_what_is_no_text_counts_whole() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    one = [{"role": "assistant", "content": ["a", "", image]}]
    assert assistant_fingerprint(one) == hashed(
        "nemo-gym-lineage",
        (0, "text"),
        (1, "a"),
        (0, "image_url"),
        (1, '{"image_url":{"url":"data:x"},"type":"image_url"}'),
    )


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("{bad", " {bad ", True),
        ('{"a": 1}', '{"a":1}', True),
        ("[1, 2]", "[1,2]", True),
        (None, "", True),
        ("1", "1.0", False),
    ],
)
def test_arguments_count_by_value(one: str | None, other: str, alike: bool) -> None:
    call = {"type": "function_call", "name": "f", "namespace": "n"}
    first, second = (
        assistant_fingerprint([{**call, "arguments": arguments}]) for arguments in (one, other)
    )
    assert (first == second) is alike


@pytest.mark.parametrize(
    "items",
    [
        ["text"],
        [{"role": "assistant", "content": 5}],
        [{"role": "assistant", "content": [5]}],
        [{"role": "assistant", "content": [{"text": 5}]}],
        [{"role": "assistant", "content": "\ud800"}],
        [{"role": "assistant", "tool_calls": ["x"]}],
        [{"role": "assistant", "content": [{"type": "odd", "value": {1, 2}}]}],
    ],
)
def test_an_item_of_no_known_shape_is_refused(items: Any) -> None:
    with pytest.raises(ValueRefusedError):
        assistant_fingerprint(items)
