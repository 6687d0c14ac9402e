"""Judging some records of a checkpoint only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckptfmt.payload import JsonPayload
from ckptfmt.record import join_line
from ckptfmt.rules import Finding
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.verify import Level, Progress, verify
from tests.ckptfmt.test_verify import CK, Crafted, crafted, plain, put
from tests.support.checkpoints import write_small
from tests.support.damage import data_file, flip

BAD: dict[str, tuple[Level, Crafted, str]] = {
    "no episode": (Level.FULL, crafted(plain("r2"), data=b'{"state":1}'), "record"),
    "no json": (Level.FULL, crafted(plain("r2"), data=b"{"), "record"),
    "not utf-8": (
        Level.FULL,
        crafted(
            plain("r2"), data=join_line(plain("r2").line()).replace(b'"of":"r2"', b'"of":"\xff2"')
        ),
        "record",
    ),
    "another key": (Level.FULL, crafted(plain("r3"), key="r2"), "key"),
    "member twice": (
        Level.DEEP,
        crafted(plain("r2", state=JsonPayload.from_json(b'{"a":1,"a":2}'))),
        "duplicate-member",
    ),
    "an annotation spelt otherwise": (
        Level.DEEP,
        crafted(plain("r2", state=JsonPayload.stored(b"[null]", b'[["/0", "nan"]]'))),
        "round-trip",
    ),
}


def sampled(
    store: MemoryStore | LocalStore, chosen: Callable[[], bool], level: Level = Level.FULL
) -> list[Finding]:
    return list(verify(store, CK, level=level, sample=chosen))


def only(number: int) -> Callable[[], bool]:
    """Chooses one record."""
    asked = iter(range(1_000_000))
    return lambda: next(asked) == number


@pytest.mark.parametrize("object_target_bytes", [1, 1 << 20])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_found_where_it_is_chosen(name: str, object_target_bytes: int) -> None:
    level, bad, rule = BAD[name]
    store = MemoryStore()
    put(store, [plain("r1"), bad, plain("r9")], object_target_bytes=object_target_bytes)
    (found,) = sampled(store, only(1), level)
    assert (found.rule.rule_id, found.location.participant) == (rule, "controller/c")
    assert sampled(store, only(0), level) == sampled(store, only(2), level) == []
    assert found in sampled(store, lambda: True, level)


@pytest.mark.parametrize("level", [Level.FULL, Level.DEEP])
def test_each_record_is_asked_for_once_and_those_chosen_are_counted(
    tmp_path: Path, level: Level
) -> None:
    write_small(LocalStore(tmp_path)).require()
    asked, progress = [], Progress()

    def every_other() -> bool:
        asked.append(1)
        return len(asked) % 2 == 0

    assert (
        list(verify(LocalStore(tmp_path), CK, level=level, progress=progress, sample=every_other))
        == []
    )
    assert (len(asked), progress.participants, progress.records) == (6, 2, 3)


def test_damage_ends_no_sample_of_other_objects(tmp_path: Path) -> None:
    """Every byte of a data object: nothing raises, and other participants are read."""
    write_small(LocalStore(tmp_path)).require()
    file = data_file(tmp_path / CK.prefix, "agent/a1")
    for offset in range(0, file.stat().st_size, 7):
        flip(file, offset)
        progress = Progress()
        found = list(verify(LocalStore(tmp_path), CK, progress=progress, sample=lambda: True))
        assert {finding.location.participant for finding in found} <= {"agent/a1"}
        assert {finding.rule.rule_id for finding in found} <= {"stream"}
        assert progress.records >= 3
        flip(file, offset)


def test_what_a_report_raises_ends_it(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(_: Progress) -> None:
        raise StopError

    write_small(LocalStore(tmp_path)).require()
    for sample in (None, lambda: True):
        with pytest.raises(StopError):
            list(verify(LocalStore(tmp_path), CK, progress=Progress(report=stop), sample=sample))
