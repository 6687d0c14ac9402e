"""The two data sets: sessions made of real rollouts, and sessions full of numbers.

Every session is decoded from its own text, so that no two share an object: encoders
that cache by identity, and the collector, then see what a server would show them.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, Final

from ckptfmt.identity import EpisodeId

__all__ = ["NAMES", "Session", "build", "generated_rollouts", "rollouts", "texts"]

NAMES: Final = ("real", "numeric")
"""``real`` is text, numbers, nulls and escapes; ``numeric`` is floats and token ids."""

_SESSION_BYTES: Final = 350_000
_SEED: Final = 20_251
_ROOT: Final = Path(__file__).resolve().parents[1]
_FAMILIES: Final = 7
_GENERATED_ROLLOUTS: Final = 31
# Sessions of one text lie this far apart, which is several blocks of a stream.
_NUMERIC_TEXTS: Final = 20
_TOKENS_PER_TURN: Final = 400
_VALUES_PER_TURN: Final = 100
_VOCABULARY_SIZE: Final = 152_000


@dataclass(frozen=True, slots=True)
class Session:
    """What a server holds when a checkpoint begins: built before any clock starts."""

    episode_id: EpisodeId
    session_id: str
    state: dict[str, Any]


def build(name: str, sessions: int) -> list[Session]:
    """``sessions`` sessions of about 350 KB, alike in every run."""
    return [
        Session(EpisodeId(f"{index // 8}-{index % 8}"), f"session-{index:05}", json.loads(text))
        for index, text in enumerate(texts(name, sessions))
    ]


def texts(name: str, sessions: int) -> Iterator[bytes]:
    """The JSON text of each session's state; NaN is spelt as ``json`` spells it."""
    bodies = _real_bodies() if name == "real" else _numeric_bodies()
    for index, body in enumerate(islice(bodies, sessions)):
        yield b'{"session":%d,%s}' % (index, body)


def rollouts() -> list[bytes]:
    """One JSON object each: those beside the project, round robin over the files, or made ones."""
    shared = Path(os.environ.get("CKPTFMT_SHARED") or _ROOT.parent / "shared")
    files = sorted((shared / "data" / "rollouts").glob("*.jsonl"))
    if not files:
        return generated_rollouts()
    lines = [file.read_bytes().splitlines() for file in files]
    return [own[row] for row in range(max(map(len, lines))) for own in lines if row < len(own)]


def _real_bodies() -> Iterator[bytes]:
    """Whole rollouts, round robin, until one more would lead further from the size."""
    parts: list[bytes] = []
    size = 0
    for rollout in cycle(rollouts()):
        if parts and size + len(rollout) // 2 > _SESSION_BYTES:
            yield b'"rollouts":[' + b",".join(parts) + b"]"
            parts, size = [], 0
        parts.append(rollout)
        size += len(rollout)


def generated_rollouts() -> list[bytes]:
    """Rollouts of the shape of real ones: messages, tool calls with JSON in strings, nulls.

    They repeat themselves about as much: rollouts of one family share tools and phrases.
    """
    dice = random.Random(_SEED)
    words = [
        "".join(dice.choices("abcdefghijklmnoprstuvw", k=dice.randint(1, 11))) for _ in range(4000)
    ]
    words += ["naïve", "Größe", "検索", "→", "🙂", '"quoted"', "C:\\temp", "\n    def", "\n\n"] * 40
    families = [
        ["".join(f"{word} " for word in dice.choices(words, k=12)) for _ in range(400)]
        for _ in range(_FAMILIES)
    ]
    return [_rollout(dice, families[i % _FAMILIES], i) for i in range(_GENERATED_ROLLOUTS)]


def _rollout(dice: random.Random, phrases: list[str], number: int) -> bytes:
    target_bytes = dice.choice([30_000, 45_000, 60_000, 90_000, 130_000])
    messages: list[dict[str, Any]] = []
    size = 0
    for turn in count():
        if size > target_bytes:
            break
        messages.append(_message(dice, phrases, turn))
        size += len(json.dumps(messages[-1]))
    rollout = {
        "id": f"task-{number}",
        "reward": round(dice.random(), 3),
        "error": None,
        "tools": [{"name": f"tool_{i}", "description": phrases[i]} for i in range(30)],
        "messages": messages,
        "usage": {"input_tokens": dice.randrange(10**5), "cost": dice.random(), "cached": None},
    }
    # Both spellings occur in real files: as json writes it, and compact.
    separators = (", ", ": ") if number % 2 else (",", ":")
    return json.dumps(rollout, separators=separators, ensure_ascii=number % 3 == 0).encode()


def _message(dice: random.Random, phrases: list[str], turn: int) -> dict[str, Any]:
    arguments = json.dumps({"path": f"/src/{dice.getrandbits(16)}.py", "lines": [turn, turn + 40]})
    call = {"id": f"call_{dice.getrandbits(64):016x}", "name": "read", "arguments": arguments}
    return {
        "role": ("user", "assistant", "tool")[turn % 3],
        "content": "".join(dice.choices(phrases, k=dice.randint(1, 60))),
        "tool_calls": [call] if turn % 3 == 1 else None,
        "created_at": 1_760_000_000 + turn * dice.random(),
        "flags": {"truncated": False, "cached": turn % 2 == 0, "score": None},
    }


def _numeric_bodies() -> Iterator[bytes]:
    """Turns of token ids, log probabilities and values; NaN in every tenth session."""
    dice = random.Random(_SEED)
    return cycle([_numeric_body(dice, with_nan=i % 10 == 9) for i in range(_NUMERIC_TEXTS)])


def _numeric_body(dice: random.Random, *, with_nan: bool) -> bytes:
    turns: list[str] = []
    while sum(map(len, turns)) < _SESSION_BYTES:
        logprobs = [-dice.expovariate(1.5) for _ in range(_TOKENS_PER_TURN)]
        values = [dice.gauss(0.0, 1.0) for _ in range(_VALUES_PER_TURN)]
        if with_nan:
            # A prompt's first token has no probability; the values of padding are NaN.
            logprobs[0] = float("nan")
            values[-16:] = [float("nan")] * 16
        turn = {
            "token_ids": [dice.randrange(_VOCABULARY_SIZE) for _ in range(_TOKENS_PER_TURN)],
            "logprobs": logprobs,
            "values": values,
        }
        turns.append(json.dumps(turn, separators=(",", ":")))
    return b'"turns":[' + ",".join(turns).encode() + b"]"
