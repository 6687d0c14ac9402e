"""One file of Gym's records: in order, by key, damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from ckptfmt.errors import CkptError, CorruptError, MissingError, StateError, TornError
from ckptfmt.nemo_gym import stream as gym_stream
from ckptfmt.nemo_gym.lines import read_gym_line
from ckptfmt.nemo_gym.stream import GymFacts, GymIndex, GymStream, build_index
from ckptfmt.record import join_line
from ckptfmt.stream import BytesSource, Loss, RecordStream, StoredLine
from tests.support.checkpoints import agent_record
from tests.support.gym import agent_line

VALUES = [agent_line("r2"), agent_line("r10", attempt=1), agent_line("r1")]
LINES = [json.dumps(value).encode() for value in VALUES]
DATA = b"".join(line + b"\n" for line in LINES)


def stream(data: bytes = DATA, **facts: Any) -> GymStream:
    """A stream over these bytes that is stated to hold ``DATA``."""
    stated = {"records": len(VALUES), "sha256": hashlib.sha256(DATA).hexdigest(), **facts}
    kind = GymFacts("agent", **stated)

    def index() -> GymIndex:
        return build_index(GymStream(BytesSource(data), kind, GymIndex))

    return GymStream(BytesSource(data, "records.jsonl"), kind, index)


def test_records_come_in_the_order_of_the_file_and_in_the_lines_of_this_format() -> None:
    opened: RecordStream = stream()
    with opened:
        found = list(opened.lines())
        assert [item.ordinal for item in found] == [0, 1, 2]
        assert found[1].line == join_line(agent_record("r10", attempt=1).line())
        assert found[2].offset == DATA.index(LINES[2])
        assert opened.sha256 == hashlib.sha256(DATA).hexdigest()


def test_the_digest_is_known_once_everything_was_read() -> None:
    opened = stream()
    with pytest.raises(StateError):
        _ = opened.sha256


def test_the_index_that_the_layout_lacks() -> None:
    opened = stream()
    entries = list(opened.entries())
    assert [(entry.key, entry.ordinal) for entry in entries] == [
        ("r1/s", 2),
        ("r10-a1/s", 1),
        ("r2/s", 0),
    ]
    assert opened.get("r10-a1/s") == join_line(agent_record("r10", attempt=1).line())
    digests = [hashlib.sha256(item.line).digest()[:16] for item in opened.lines()]
    assert list(opened.digests()) == digests
    with pytest.raises(MissingError) as caught:
        opened.get("r3/s")
    assert caught.value.location.key == "r3/s"


def test_the_last_lf_may_be_left_out() -> None:
    data = DATA.removesuffix(b"\n")
    opened = stream(data, sha256=hashlib.sha256(data).hexdigest())
    assert len(list(opened.lines())) == 3
    assert opened.digest_fault() is None


def test_lines_are_put_together_across_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for size_bytes in (1, 7, len(LINES[0]), len(LINES[0]) + 1, len(DATA)):
        monkeypatch.setattr(gym_stream, "_CHUNK_BYTES", size_bytes)
        found = list(stream().lines())
        assert [item.line for item in found] == [read_gym_line("agent", t).line for t in LINES]


def test_a_line_beyond_the_limit_is_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym_stream, "_CHUNK_BYTES", 10)
    monkeypatch.setattr(gym_stream, "MAX_RECORD_BYTES", 100)
    with pytest.raises(CorruptError, match="100"):
        list(stream().lines())
    (loss,) = stream().salvage()
    assert isinstance(loss, Loss)


DAMAGE: list[tuple[Callable[[bytes], bytes], type[CkptError], int]] = [
    (lambda data: data[:-30], CorruptError, 2),
    (lambda data: data[: len(LINES[0]) + 30], CorruptError, 1),
    (lambda data: data.rpartition(LINES[2])[0], TornError, 2),
    (lambda data: data + LINES[0].replace(b"r2", b"r3") + b"\n", CorruptError, 4),
    (lambda data: data + b"\n", CorruptError, 3),
    (lambda data: b"\xff" + data[1:], CorruptError, 2),
    (lambda data: b"", TornError, 0),
]


@pytest.mark.parametrize(("damage", "error", "kept"), DAMAGE)
def test_damage_is_told_and_the_rest_is_salvaged(
    damage: Callable[[bytes], bytes], error: type[CkptError], kept: int
) -> None:
    data = damage(DATA)
    with pytest.raises(error) as caught:
        list(stream(data).lines())
    assert caught.value.location.file == "records.jsonl"
    found = list(stream(data).salvage())
    assert sum(isinstance(item, StoredLine) for item in found) == kept
    assert any(isinstance(item, Loss) for item in found)
    index = stream(data)
    with pytest.raises(CkptError):
        list(index.entries())
    with pytest.raises(CkptError):
        index.get("r2/s")


def test_a_changed_value_shows_in_the_digest_alone() -> None:
    data = DATA.replace(b"hello", b"hellO", 1)
    opened = stream(data)
    assert len(list(opened.lines())) == 3
    fault = opened.digest_fault()
    assert isinstance(fault, CorruptError)
    *records, loss = stream(data).salvage()
    assert len(records) == 3
    assert isinstance(loss, Loss)
    assert loss.message == fault.message
    with pytest.raises(CorruptError):
        stream(data).get("r1/s")


def test_what_nobody_states_is_not_missed() -> None:
    opened = stream(DATA.replace(b"hello", b"other"), records=None, sha256=None)
    assert all(isinstance(item, StoredLine) for item in opened.salvage())


def test_a_key_that_stands_twice_is_found() -> None:
    data = DATA + LINES[0] + b"\n"
    facts = {"records": 4, "sha256": hashlib.sha256(data).hexdigest()}
    with pytest.raises(CorruptError, match="same key"):
        list(stream(data, **facts).entries())
    with pytest.raises(CorruptError, match="same key"):
        stream(data, **facts).get("r2/s")


def test_the_order_of_members_is_noted_where_it_is_not_ours() -> None:
    other = json.dumps(dict(reversed(VALUES[0].items()))).encode()
    data = LINES[1] + b"\n" + other + b"\n"
    facts = GymFacts("agent", 2, hashlib.sha256(data).hexdigest())
    index = build_index(GymStream(BytesSource(data), facts, GymIndex))
    index.check_bytes()
    index.check_keys()
    assert list(index.orders) == [1]
    assert index.episode_ids == ["r10-a1", "r2"]
