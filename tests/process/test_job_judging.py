"""The comparison of an interrupted job with an uninterrupted one is exact: it notices tampering."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.job.judging import MismatchError, Verdict
from examples.job.setup import Journal
from tests.support.job_lives import Lives, run_to_its_checkpoint, small_tasks

Line = dict[str, Any]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, whole_job: Path) -> Lives:
    """A job of two lives that is as good as the uninterrupted one."""
    job = Lives(tmp_path_factory.mktemp("two-lives"), small_tasks(6))
    run_to_its_checkpoint(job)
    with job.life("ck-1") as processes:
        job.play(processes, "--restore", "back")
    verdict = job.judge(whole_job, most_lost=1)
    steps = len(Journal.read(whole_job / "steps.jsonl"))
    calls = len(Journal.read(whole_job / "calls.jsonl"))
    assert (verdict.episodes, verdict.steps, verdict.calls) == (6, steps, calls)
    assert verdict.lost_steps == 0
    assert len(Journal.read(job.folder / "calls.jsonl")) == calls + verdict.lost_calls
    return job


def of_life(lines: list[Line], number: int) -> list[Line]:
    """The lines that one life wrote."""
    pids = list(dict.fromkeys(line["process"] for line in lines))
    assert len(pids) == 2
    return [line for line in lines if line["process"] == pids[number]]


def runs_a_committed_one_again(lines: list[Line]) -> None:
    restored = of_life(lines, 1)[0]
    first = next(line for line in lines if line["rollout"] == restored["rollout"])
    lines.insert(lines.index(restored), {**restored, "number": 1, "what": first["what"]})


def runs_one_twice(lines: list[Line]) -> None:
    lines.append(lines[-1])


def skips_the_first_of_a_life(lines: list[Line]) -> None:
    lines.remove(of_life(lines, 1)[0])


def ends_too_early(lines: list[Line]) -> None:
    lines.pop()


def goes_on_too_long(lines: list[Line]) -> None:
    lines.append({**lines[-1], "number": lines[-1]["number"] + 1})


def says_something_else(lines: list[Line]) -> None:
    lines[3] = {**lines[3], "what": {"other": 1}}


def says_it_in_another_type(lines: list[Line]) -> None:
    place = next(n for n, line in enumerate(lines) if line["what"] == ["seed", line["what"][1]])
    lines[place] = {**lines[place], "what": ["seed", float(lines[place]["what"][1])]}


def is_of_a_process_of_no_life(lines: list[Line]) -> None:
    lines[-1] = {**lines[-1], "process": -1}


def is_of_an_episode_that_nobody_knows(lines: list[Line]) -> None:
    lines.append({**lines[-1], "rollout": "of-nobody", "number": 1})


def loses_two(lines: list[Line]) -> None:
    """The first life did two steps of an episode more than its checkpoint has."""
    pid = of_life(lines, 0)[0]["process"]
    again: dict[str, list[Line]] = defaultdict(list)
    for line in of_life(lines, 1):
        again[line["rollout"]].append({**line, "process": pid})
    lines.extend(next(done for done in again.values() if len(done) > 2)[:2])


TAMPERING: list[tuple[str, Callable[[list[Line]], None], str]] = [
    ("steps", runs_a_committed_one_again, "are committed"),
    ("calls", runs_a_committed_one_again, "are committed"),
    ("steps", runs_one_twice, "are committed"),
    ("steps", skips_the_first_of_a_life, "are committed"),
    ("calls", skips_the_first_of_a_life, "are committed"),
    ("steps", ends_too_early, "end at"),
    ("calls", goes_on_too_long, "is not what it was"),
    ("steps", says_something_else, "is not what it was"),
    ("calls", says_something_else, "is not what it was"),
    ("steps", says_it_in_another_type, "is not what it was"),
    ("calls", is_of_a_process_of_no_life, "is of no life"),
    ("steps", is_of_an_episode_that_nobody_knows, "is not what it was"),
    ("steps", loses_two, "2 were lost"),
]


@pytest.mark.parametrize(("journal", "tamper", "complaint"), TAMPERING)
def test_a_journal_that_was_tampered_with(
    journal: str,
    tamper: Callable[[list[Line]], None],
    complaint: str,
    job: Lives,
    whole_job: Path,
) -> None:
    tampered = job.copy(f"{journal}-{tamper.__name__}")
    rewrite(tampered.folder / f"{journal}.jsonl", tamper)
    with pytest.raises(MismatchError, match=complaint):
        tampered.judge(whole_job, most_lost=1)


def has_another_reward(lines: list[Line]) -> None:
    result = lines[2]["result"]
    result["reward"] = math.nextafter(result["reward"], 2.0)


def has_another_word(lines: list[Line]) -> None:
    lines[1]["result"]["messages"][-1]["content"] += "."


def lacks_a_message(lines: list[Line]) -> None:
    lines[1]["result"]["messages"].pop()


def lacks_a_result(lines: list[Line]) -> None:
    lines.pop(1)


def has_two_results_of_one(lines: list[Line]) -> None:
    lines.append(lines[0])


@pytest.mark.parametrize(
    "tamper",
    [
        has_another_reward, has_another_word, lacks_a_message, lacks_a_result,
        has_two_results_of_one,
    ],
)  # fmt: skip
def test_results_that_were_tampered_with(
    tamper: Callable[[list[Line]], None], job: Lives, whole_job: Path
) -> None:
    tampered = job.copy(tamper.__name__)
    rewrite(tampered.folder / "results.jsonl", tamper)
    with pytest.raises(MismatchError):
        tampered.judge(whole_job, most_lost=1)


def rewrite(file: Path, tamper: Callable[[list[Line]], None]) -> None:
    """The lines of a file, tampered with."""
    lines = Journal.read(file)
    tamper(lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_an_untouched_copy_is_good(job: Lives, whole_job: Path) -> None:
    copied = job.copy("untouched")
    for name in ("steps", "calls", "results"):
        rewrite(copied.folder / f"{name}.jsonl", lambda lines: None)
    assert isinstance(copied.judge(whole_job, most_lost=1), Verdict)
