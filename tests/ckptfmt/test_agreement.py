"""Records, indexes and manifests that contradict each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pytest

from ckptfmt.agreement import Agreement
from ckptfmt.errors import CorruptError
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from ckptfmt.stream import Entry, Loss, StoredLine


def record(rollout: str) -> Record:
    state = JsonPayload.from_value(0)
    return Record(episode_id=EpisodeId(rollout, 0), members={"state": state})


@dataclass
class Stream:
    """An object that says what a test wants it to say."""

    records: list[Record]
    keys: list[str]
    digest_count: int
    sha256: str = ""

    def lines(self, *, digests: bool = True) -> Iterator[StoredLine]:
        for ordinal, item in enumerate(self.records):
            yield StoredLine(ordinal, 0, 0, join_line(item.line()))

    def digests(self) -> Iterator[bytes]:
        yield from [bytes(16)] * self.digest_count

    def entries(self) -> Iterator[Entry]:
        for ordinal, key in sorted(enumerate(self.keys), key=lambda pair: pair[1]):
            yield Entry(key, ordinal, 0, 0, 0, 0)

    def get(self, key: str) -> bytes:
        raise NotImplementedError

    def salvage(self) -> Iterator[StoredLine | Loss]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


def content_digest(*records: Record) -> str:
    rows = (len(join_line(item.line())).to_bytes(8, "little") + bytes(16) for item in records)
    return hashlib.sha256(b"".join(rows)).hexdigest()


def take_in(agreement: Agreement, stream: Stream) -> None:
    for stored in agreement.lines(stream):
        item = Record.from_line(stored.line)
        if agreement.concerns(stored.line):
            agreement.add(stored.ordinal, item)
    agreement.check_index(stream)


def test_what_agrees_has_no_faults() -> None:
    one, two, three = map(record, ("b", "a", "c"))
    agreement = Agreement()
    take_in(agreement, Stream([one, two], ["b", "a"], 2))
    take_in(agreement, Stream([three], ["c"], 1))
    keys = [iter(["a", "b"]), iter(["c"])]
    assert list(agreement.faults(content_digest(one, two, three), ["a", "b", "c"], keys)) == []


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_index_without_one_digest_a_record_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptError, match="one digest"):
        take_in(Agreement(), Stream([record("a"), record("b")], ["a", "b"], count))


@pytest.mark.parametrize("keys", [["b", "a"], ["a"], ["a", "b", "c"], ["a", "c"], []], ids=str)
def test_an_index_with_other_keys_is_corrupt(keys: list[str]) -> None:
    with pytest.raises(CorruptError, match="index"):
        take_in(Agreement(), Stream([record("a"), record("b")], keys, 2))


def test_keys_of_one_object_do_not_make_up_for_another() -> None:
    agreement = Agreement()
    with pytest.raises(CorruptError, match="index"):
        take_in(agreement, Stream([record("a")], ["b"], 1))
    with pytest.raises(CorruptError, match="index"):
        take_in(agreement, Stream([record("b")], ["a"], 1))


def test_in_a_scope_only_its_keys_are_compared() -> None:
    agreement = Agreement([EpisodeId("a", 0)])
    take_in(agreement, Stream([record("a"), record("b"), record("c")], ["a", "c", "b"], 3))
    with pytest.raises(CorruptError, match="index"):
        take_in(agreement, Stream([record("a"), record("b")], ["b", "a"], 2))


def test_every_fault_has_the_rule_that_is_broken() -> None:
    one = record("a")
    agreement = Agreement()
    take_in(agreement, Stream([one], ["a"], 1))
    take_in(agreement, Stream([one], ["a"], 1))
    keys = [iter(["a"]), iter(["a"])]
    faults = list(agreement.faults("0" * 64, ["b"], keys))
    assert [rule for rule, _ in faults] == ["digest", "episodes", "key"]
    assert "a, b" in str(faults[1][1])
    assert faults[2][1].location.key == "a"
