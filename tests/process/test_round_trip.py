"""Values and text come back through a file and a second process (F26)."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.testing.strategies import (
    AWKWARD_FLOATS,
    AWKWARD_INTEGERS,
    AWKWARD_STRINGS,
    exact_values,
    json_texts,
    random_value,
)
from tests.support.amounts import random_values
from tests.support.deep import nested
from tests.support.rewriting import Rewriter, read_lines, shown, write_lines

BATCH = 2000
_EPISODE = b'{"episode_id":{"rollout_id":"s","attempt":2}}'
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def rewriter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rewriter]:
    """The second process."""
    with Rewriter(tmp_path_factory.mktemp("streams")) as started:
        yield started


def _records(payloads: Sequence[JsonPayload]) -> list[Record]:
    return [
        Record(episode_id=EpisodeId(f"r{index}"), members={"x": payload})
        for index, payload in enumerate(payloads)
    ]


def _check_values(rewriter: Rewriter, values: Sequence[object]) -> None:
    records = _records([JsonPayload.from_value(value) for value in values])
    lines = [join_line(record.line()) for record in records]
    rewritten = rewriter.rewrite(records)
    assert rewritten.shown == [shown({"x": value}) for value in values]
    assert rewritten.unchanged == lines
    assert rewritten.spliced == lines
    assert rewritten.anew == lines


def _check_texts(rewriter: Rewriter, texts: Sequence[bytes]) -> None:
    records = _records([JsonPayload.from_json(text) for text in texts])
    lines = [join_line(record.line()) for record in records]
    rewritten = rewriter.rewrite(records)
    assert rewritten.shown == [shown({"x": json.loads(text)}) for text in texts]
    assert rewritten.unchanged == lines
    assert rewritten.spliced == lines
    read = [Record.from_line(line).members["x"].json_bytes() for line in rewritten.spliced]
    assert read == list(texts)


CASES: dict[str, list[Any]] = {
    "F10": [
        *AWKWARD_FLOATS, [*AWKWARD_FLOATS], dict.fromkeys("ab", NAN), [NAN] * 10, [0.5, NAN] * 50,
        {"a": [{"b": [-0.0, -INF, NAN]}]}, nested(400, -0.0),
        nested(400, NAN, lambda inner: {"k": inner}),
    ],
    "F11": [
        *AWKWARD_INTEGERS, [*AWKWARD_INTEGERS], {"a": 2**53 + 1, "b": 2**64 + 1, "c": -(2**65)},
    ],
    "F12": [0.1, 1e22, 5e-324, 1.0, 1, 1e16, 10**16, [1, 1.0, True], {"a": 1.0, "b": 1}],
    "F14": [(), [()], ((),), [[], ()], ([(1, [2, ()])],), {"a": ((), [])}, [(), (), (), (), []]],
    "F15": [
        {1: "a"}, {1.5: 1, -0.0: 2, NAN: 3, INF: 4}, {True: 1, False: 2, None: 3},
        {"1": 1, 1: 2, 2: 3}, {(): 1, (1, (NAN, "\ud800")): 2}, {2**70: [], -(2**70): ()},
        {"a": {0: {0: {}}}},
    ],
    "F16": [
        "\ud800", "a\udfffb", "\ud83d\ude00", "\ude00\ud83d", {"\ud800": "\udfff"},
        ["\ufffd\ud800"],
    ],
    "F17": [*AWKWARD_STRINGS, {text: text for text in AWKWARD_STRINGS}, ["\r\n", "\x85\u2028"]],
    "F18": [
        {"10": 1, "9": 2, "a": {"z": 1, "b": 2, "": 3}},
        {"b": 0, "a": 0, "B": 0, "\u00e9": 0, "e\u0301": 0},
    ],
    "F19": [{"$exact": {"x": [["", "nan"]]}}, {"$exact": (1, NAN), "x": {"$exact": None}}],
    "F20": [
        {"a": {0: 1.0, 1: NAN, 2: None}, "b": {0: "x", 2: None}},
        {"index": {5: 0, 3: 1}, "cells": [None, NAN]},
    ],
    "F22": [
        nested(499, 0), nested(499, 1, lambda inner: {"k": inner}), nested(498, (NAN,)),
        nested(249, "x", lambda inner: {7: inner}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cases_come_back_from_another_process(case: str, rewriter: Rewriter) -> None:
    _check_values(rewriter, CASES[case])


@given(st.lists(exact_values(), min_size=1, max_size=8))
def test_any_value_comes_back_from_another_process(
    rewriter: Rewriter, values: list[object]
) -> None:
    """In value, type, order, sign of zero and ``json.dumps`` bytes."""
    _check_values(rewriter, values)


@given(st.lists(json_texts(), min_size=1, max_size=8))
def test_any_json_text_comes_back_from_another_process(
    rewriter: Rewriter, texts: list[bytes]
) -> None:
    """F13: in bytes, and as ``json.loads`` gives it."""
    _check_texts(rewriter, texts)


@pytest.mark.fuzz
def test_many_random_values_come_back_from_another_process(rewriter: Rewriter) -> None:
    draw = random.Random(26)
    left = random_values(4000)
    while left:
        count = min(left, BATCH)
        _check_values(rewriter, [random_value(draw) for _ in range(count)])
        left -= count


def test_real_rollouts_come_back_from_another_process(
    rewriter: Rewriter, shared_data: Path
) -> None:
    """As text, and as values."""
    texts = [
        line
        for file in sorted((shared_data / "rollouts").iterdir())
        if file.suffix == ".jsonl"
        for line in file.read_bytes().splitlines()
    ]
    assert len(texts) > 10
    _check_texts(rewriter, texts)
    _check_values(rewriter, [json.loads(text) for text in texts])


def test_a_line_of_another_writer_is_written_again_as_it_was(
    rewriter: Rewriter, tmp_path: Path
) -> None:
    """Other order, spelling and white space; unknown members."""
    lines = [
        b'{ "x" : 1.50 , "episode_id":{"attempt":0, "rollout_id":"r"} }',
        b'{"$exact":{"x":[ ["","tuple"] ]},"x":[1E5],"new":null,' + _EPISODE[1:],
        b'{"episode_id":{"rollout_id":"\\u0074","attempt":0},"\\u0078":{"a":1,"a":2}}',
    ]
    write_lines(tmp_path / "foreign.zst", ((str(i), (line,)) for i, line in enumerate(lines)))
    records = [Record.from_line(line) for line in read_lines(tmp_path / "foreign.zst")]
    rewritten = rewriter.rewrite(records)
    assert rewritten.unchanged == lines
    assert rewritten.shown == [
        shown(values) for values in ({"x": 1.5}, {"x": (1e5,), "new": None}, {"x": {"a": 2}})
    ]
