"""Judges a job that was interrupted by one that was not: equal to the last byte, or wrong.

A *life* is what happened from a start of the servers until they were killed.  Steps (of the
resources server) and calls (of the model server) are numbered within their episode from 1.
A life that was restored begins where its checkpoint committed: so in every life the numbers
of an episode follow each other without a gap and without a repeat, from the first one that
was not committed.  Each must say what it said in the uninterrupted job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckptfmt.checkpoint import open_checkpoint
from ckptfmt.schema import EnvironmentRecord, ModelRecord, ResourcesRecord
from examples.job.setup import Journal

__all__ = ["Life", "MismatchError", "Verdict", "judge"]

_WRITERS: Final = {"steps": "resources", "calls": "model"}

_Lines = dict[str, list[Any]]
"""What was said, in order, by rollout."""


class MismatchError(Exception):
    """The interrupted job is not what the uninterrupted one was."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life: the ids of its processes by kind, and what it began with.

    That is a checkpoint, or nothing; ``finished`` are the rollouts that had a result by
    then, and were not continued.
    """

    processes: Mapping[str, int]
    checkpoint: Path | None = None
    finished: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was equal, and what was in flight at a kill and so was done again."""

    episodes: int
    steps: int
    calls: int
    lost_steps: int
    lost_calls: int


def judge(
    expected: Path, actual: Path, lives: Sequence[Life], most_lost: int | None = 1
) -> Verdict:
    """Compare the folder of an interrupted job with that of an uninterrupted one.

    Results (transcripts and rewards) have to be equal, and so has every line of the two
    journals.  Of an episode each kill may have lost ``most_lost`` lines of a journal, None
    any number; none of them was committed.

    Raises:
        MismatchError: with the first difference.
    """
    results = _results(expected)
    _compare_results(results, _results(actual))
    whole = {journal: _lines_of_one_life(expected, journal) for journal in _WRITERS}
    begins = [_begin(life, whole) for life in lives]
    lost = dict.fromkeys(_WRITERS, 0)
    for journal, kind in _WRITERS.items():
        pids = [life.processes[kind] for life in lives]
        written = _lines_by_process(actual, journal, pids)
        for rollout_id in whole[journal].keys() | set().union(*written.values()):
            said = whole[journal].get(rollout_id, [])
            parts = [
                (begin[journal][rollout_id], written[pid][rollout_id])
                for begin, pid in zip(begins, pids, strict=True)
            ]
            where = f"{journal} of {rollout_id}"
            lost[journal] += _compare_episode(where, said, parts, most_lost)
    steps, calls = (sum(map(len, whole[journal].values())) for journal in _WRITERS)
    return Verdict(len(results), steps, calls, lost["steps"], lost["calls"])


def _results(folder: Path) -> dict[str, Any]:
    lines = Journal.read(folder / "results.jsonl")
    results = {line["rollout"]: line["result"] for line in lines}
    if len(results) < len(lines):
        raise MismatchError(f"an episode has two results in {folder}")
    return results


def _compare_results(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
    if expected.keys() != actual.keys():
        raise MismatchError(f"only one has {sorted(expected.keys() ^ actual.keys())[:3]}")
    for rollout_id, result in expected.items():
        # As text: 1, 1.0 and True are not the same, and neither is the order of keys.
        for part in result.keys() | actual[rollout_id].keys():
            if repr(result.get(part)) != repr(actual[rollout_id].get(part)):
                raise MismatchError(f"{rollout_id} has other {part}")


def _lines_of_one_life(folder: Path, journal: str) -> _Lines:
    pids = sorted({line["process"] for line in Journal.read(folder / f"{journal}.jsonl")})
    if len(pids) != 1:
        raise MismatchError(f"{len(pids)} processes wrote {journal} of the uninterrupted job")
    lines = _lines_by_process(folder, journal, pids)[pids[0]]
    for rollout_id, said in lines.items():
        _check_numbers(f"{journal} of {rollout_id}", said, 0)
    return {rollout_id: [what for _, what in said] for rollout_id, said in lines.items()}


def _lines_by_process(
    folder: Path, journal: str, pids: Sequence[int]
) -> dict[int, defaultdict[str, list[tuple[int, Any]]]]:
    lines: dict[int, defaultdict[str, list[tuple[int, Any]]]]
    lines = {pid: defaultdict(list) for pid in pids}
    for line in Journal.read(folder / f"{journal}.jsonl"):
        if line["process"] not in lines:
            raise MismatchError(f"process {line['process']} wrote {journal}, and is of no life")
        lines[line["process"]][line["rollout"]].append((line["number"], line["what"]))
    return lines


def _check_numbers(where: str, lines: Sequence[tuple[int, Any]], start: int) -> None:
    numbers = [number for number, _ in lines]
    wanted = list(range(start + 1, start + 1 + len(lines)))
    if numbers != wanted:
        raise MismatchError(f"{where} are {numbers} where {start} are committed")


def _compare_episode(
    where: str,
    whole: Sequence[Any],
    lives: Sequence[tuple[int, Sequence[tuple[int, Any]]]],
    most_lost: int | None,
) -> int:
    """How many lines of an episode were lost; ``lives`` are its start and lines in each."""
    reached = end = lost = 0
    for place, (start, lines) in enumerate(lives):
        if start > reached:
            raise MismatchError(f"{where}: {start} are committed, and only {reached} were done")
        _check_numbers(where, lines, start)
        for number, what in lines:
            if number > len(whole) or repr(what) != repr(whole[number - 1]):
                raise MismatchError(f"number {number} of the {where} is not what it was")
        end = start + len(lines)
        next_start = lives[place + 1][0] if place + 1 < len(lives) else len(whole)
        gone = max(0, end - next_start)
        if most_lost is not None and gone > most_lost:
            raise MismatchError(f"{where}: {gone} were lost, and not {most_lost} at most")
        lost += gone
        reached = max(reached, end)
    if end != len(whole):
        raise MismatchError(f"{where} end at {end} instead of {len(whole)}")
    return lost


def _begin(life: Life, whole: Mapping[str, _Lines]) -> dict[str, defaultdict[str, int]]:
    """How many steps and calls of each rollout are committed where a life begins.

    Read from the checkpoint itself: from what the servers stored, not from what they say.
    """
    steps: defaultdict[str, int] = defaultdict(int)
    calls: defaultdict[str, int] = defaultdict(int)
    for rollout_id in life.finished:
        steps[rollout_id] = len(whole["steps"][rollout_id])
        calls[rollout_id] = len(whole["calls"][rollout_id])
    opened = None if life.checkpoint is None else open_checkpoint(life.checkpoint)
    for participant in opened.participants if opened else ():
        assert opened is not None
        for record in opened.participant(participant).load():
            rollout_id = record.episode_id.rollout_id
            if rollout_id in life.finished:
                continue
            if isinstance(record, ResourcesRecord) and record.state is not None:
                steps[rollout_id] = record.state.value()["steps"]
            elif isinstance(record, ModelRecord):
                calls[rollout_id] = len(record.rows.value())
            elif isinstance(record, EnvironmentRecord) and _is_verified(record):
                # Its session is over: all its steps are done.
                steps[rollout_id] = len(whole["steps"][rollout_id])
    return {"steps": steps, "calls": calls}


def _is_verified(record: EnvironmentRecord) -> bool:
    return record.boundary is not None and record.boundary.value()["reward"] is not None
