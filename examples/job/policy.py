"""The policy: a deterministic generator of tokens, and how its calls are recorded.

What it writes depends on the whole conversation and on the number of the call within its
episode.  So an episode in which any call, tool or turn were lost or repeated would say
something else from there on.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import Any, Final

from ckptfmt.ledger.fingerprint import assistant_fingerprint, conversation_digest
from ckptfmt.ledger.limits import FINGERPRINT_VERSION
from ckptfmt.ledger.row import Row, RowMembers

__all__ = ["Message", "generate", "row_of", "tokens_of"]

Message = dict[str, Any]

_WORDS: Final = (
    "look", "at", "the", "next", "passage", "and", "compare", "it", "with", "what", "was",
    "noted", "before", "then", "say", "why", "that", "holds", "in", "short", "caf\u00e9",
)  # fmt: skip
_MAX_TOOL_ROUNDS: Final = 3


def generate(messages: Sequence[Message], number: int) -> Message:
    """The reply of the ``number``-th call of an episode (from 1) to a conversation."""
    text = json.dumps([number, list(messages)], sort_keys=True)
    dice = random.Random(hashlib.sha256(text.encode()).digest())
    words = [f"({number})", *dice.choices(_WORDS, k=dice.randint(6, 12))]
    reply: Message = {"role": "assistant", "content": " ".join(words)}
    if _rounds_in_turn(messages) < _rounds_wanted(messages):
        name = dice.choice(("look", "note"))
        arguments = json.dumps({"text": " ".join(words[:4]), "weight": round(dice.random(), 3)})
        function = {"name": name, "arguments": arguments}
        reply["tool_calls"] = [{"id": f"call-{number}", "type": "function", "function": function}]
    return reply


def tokens_of(message: Message) -> list[str]:
    """The tokens of a message, tool calls included; never none."""
    called = [json.dumps(call["function"]) for call in message.get("tool_calls") or ()]
    return [*str(message["content"]).split(), *called, "<end>"]


def _turn(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages from the user's last one on."""
    start = max(place for place, m in enumerate(messages) if m["role"] == "user")
    return messages[start:]


def _rounds_in_turn(messages: Sequence[Message]) -> int:
    return sum(message["role"] == "tool" for message in _turn(messages))


def _rounds_wanted(messages: Sequence[Message]) -> int:
    asked = hashlib.sha256(_turn(messages)[0]["content"].encode()).digest()
    return 1 + asked[0] % _MAX_TOOL_ROUNDS


def row_of(
    call_id: str,
    messages: Sequence[Message],
    reply: Message,
    parent: RowMembers | None,
    admitted_at: float,
) -> Row:
    """The ledger row of a call that continues ``parent``, or nothing."""
    before = messages if parent is None else messages[parent["context_len"] + 1 :]
    tokens = [token for message in (*before, reply) for token in tokens_of(message)]
    previous = parent or {"digest": "", "chain_hash": "", "cum_len": 0, "staging_chain": []}
    digest = _sha256(previous["digest"], *tokens)
    staging_key = f"stage/{call_id}"
    return Row(
        model_call_id=call_id,
        fingerprint=assistant_fingerprint([*messages, reply]),
        context_len=len(messages),
        context_digest=conversation_digest(messages),
        digest=digest,
        parent_call_id=None if parent is None else parent["model_call_id"],
        staging_key=staging_key,
        weight_version=1,
        prev_len=previous["cum_len"],
        delta_len=len(tokens),
        cum_len=previous["cum_len"] + len(tokens),
        staging_digest=_sha256(*tokens),
        extras_digest=_sha256(),
        mode="text" if parent is None else "token_in",
        admitted_at=admitted_at,
        staging_chain=[*previous["staging_chain"], staging_key],
        chain_hash=_sha256(previous["chain_hash"], staging_key),
        cumulative_hash=digest,
        response_id=f"response-{call_id}",
        output_fingerprint=None,
        continuation_fingerprint=None,
        fingerprint_version=FINGERPRINT_VERSION,
    )


def _sha256(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
