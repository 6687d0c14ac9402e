"""The tasks of the job: a document each, and what a user says about it, turn by turn."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["Task", "make_tasks", "passages"]

Task = dict[str, Any]

_SHORTEST_CHARACTERS: Final = 20
_LONGEST_CHARACTERS: Final = 400
_MOST_TURNS: Final = 3


def make_tasks(
    documents: list[bytes], episodes: int, seed: int, *, token_s: float, step_s: float = 0.0
) -> dict[str, Task]:
    """The task of each rollout, by its id, on documents of JSON text, round robin.

    A token takes ``token_s``, the use of a tool ``step_s``.
    """
    dice = random.Random(seed)
    tasks = {}
    for number in range(episodes):
        document = json.loads(documents[number % len(documents)])
        said = dice.choices(passages(document), k=dice.randint(2, _MOST_TURNS))
        tasks[f"{number}-0"] = {
            "turns": [text[:_LONGEST_CHARACTERS] for text in said],
            "document": document,
            "seed": dice.getrandbits(64),
            "token_s": token_s,
            "step_s": step_s,
        }
    return tasks


def passages(document: Any) -> list[str]:
    """The longer texts of a document, in order; never none."""
    return [text for text in _texts(document) if len(text) >= _SHORTEST_CHARACTERS] or ["nothing"]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
