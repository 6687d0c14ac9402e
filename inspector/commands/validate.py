"""``validate``: everything that is wrong with checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Annotated, Final, TypeAlias

import typer

from ckptfmt import layouts
from ckptfmt.errors import CkptError, RefusedError
from ckptfmt.ledger import LEDGER_RULES
from ckptfmt.nemo_gym.layout import gym_folder
from ckptfmt.participant_reader import ParticipantReader
from ckptfmt.rules import RULES, Finding, Rule, Severity
from ckptfmt.verify import Level, Progress, verify
from inspector.address import address_of
from inspector.exit_codes import Exit
from inspector.extent import OutOfTimeError, Sample, TimeLimit, sample_size
from inspector.findings import (
    Tally,
    advice_lines,
    finding_lines,
    finding_members,
    placed_message,
    trouble_of,
)
from inspector.options import command
from inspector.output.base import Column, Item, Table, Views
from inspector.output.reports import Entry, Report, ReportFile
from inspector.places import Place, check_directory, open_checkpoint
from inspector.quantities import number_of, size
from inspector.session import Session

__all__ = ["VIEWS", "FailOn", "app", "validate"]

# With what the program takes itself, validate stays below 300 MB.
_MEMORY_BYTES: Final = 200 << 20


_Sample: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sample",
        metavar="N|P%",
        help="Read so many of each checkpoint's records only, evenly spread.",
    ),
]
_MaxTime: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-time", metavar="SECONDS", min=1, help="Stop at the first record after that."
    ),
]
_Reports: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="KIND=FILE",
        help="Write a report too, junit, github or md; may be repeated.",
    ),
]


class FailOn(StrEnum):
    """Which findings make the exit code 1."""

    WARNING = "warning"
    ERROR = "error"


def _finding_lines(item: Item) -> Iterator[str]:
    return finding_lines(item, item["address"] or item["input"], leave_out="checkpoint")


def _input_lines(item: Item) -> Iterator[str]:
    verdict = {True: "valid", False: "INVALID", None: "no errors so far"}[item["valid"]]
    looked_at = f"{number_of(item['participants'], 'participant')}"
    if item["level"] != Level.QUICK:
        of_all = f"{item['records']:,} of " if item["partial"] else ""
        records = item["total_records"] if item["partial"] else item["records"]
        looked_at += f", {of_all}{number_of(records, 'record')}, {size(item['raw_bytes'])}"
    yield f"{item['input']}: {verdict} ({item['level']}: {looked_at})"


VIEWS: Final[Views] = {
    "finding": _finding_lines,
    "input": _input_lines,
    "rule": Table(
        (
            Column("RULE", lambda item: item["rule"]),
            Column("SEVERITY", lambda item: item["severity"]),
            Column("EXPLANATION", lambda item: item["explanation"]),
        )
    ),
    "explanation": lambda item: [
        f"{item['rule']} ({item['severity']})",
        item["explanation"],
        f"What to do: {item['advice']}.",
    ],
    "summary": advice_lines,
}


def validate(
    session: Session,
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(metavar="CKPT", help="Checkpoints' directories, or RUN@latest."),
    ] = None,
    level: Annotated[
        Level,
        typer.Option(
            "--level",
            help="quick: manifests and sizes; full: every checksum; "
            "deep: every record decoded, encoded again and compared.",
        ),
    ] = Level.FULL,
    large: Annotated[
        bool,
        typer.Option("--large", help="With deep: decode records too that take much memory for it."),
    ] = False,
    ledgers: Annotated[
        str | None,
        typer.Option(
            "--ledgers", metavar="DIR", help="Hold capture ledgers against what manifests pin."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Whether warnings make the exit code 1 too.")
    ] = FailOn.ERROR,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Report findings, but end with 0 for them.")
    ] = False,
    sample: _Sample = None,
    max_time_s: _MaxTime = None,
    report: _Reports = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="List all rules.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="RULE", help="Explain a rule.")
    ] = None,
) -> None:
    """Find everything that is wrong with checkpoints.

    Exit code 1: there are errors.  Damage is always an error.  Exit code 3: not everything
    was looked at.
    """
    if list_rules or explain is not None:
        _tell_rules(session, explain)
        return
    if not checkpoints:
        raise RefusedError("name at least one checkpoint")
    if ledgers is not None:
        check_directory(ledgers)
    if sample is not None:
        _check_sample(sample, level)
    asked = _Asked(level, ledgers, None if large else _MEMORY_BYTES, sample, TimeLimit(max_time_s))
    judged = _Judged(fail_on)
    with contextlib.ExitStack() as opened:
        files = [_opened(opened, item) for item in report or ()]
        try:
            for name in checkpoints:
                _validate(session, name, asked, judged)
            judged.finished = not judged.stopped
        finally:
            _conclude(session, judged, exit_zero=exit_zero)
        for file in files:
            try:
                file.write(judged.report)
            except CkptError as error:
                session.fail(error)


app = command(VIEWS)(validate)


def _tell_rules(session: Session, explain: str | None) -> None:
    if explain is None:
        for rule in RULES.values():
            session.item("rule", **_rule(rule))
    elif (asked := {**RULES, **LEDGER_RULES}.get(explain)) is not None:
        session.item("explanation", **_rule(asked))
    else:
        raise RefusedError(
            f"there is no rule {explain[:80]!a}", advice=f"there are {', '.join(RULES)}"
        )


def _rule(rule: Rule) -> dict[str, str]:
    return {
        "rule": rule.rule_id,
        "severity": str(rule.severity),
        "explanation": rule.explanation,
        "advice": rule.advice,
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """What :func:`ckptfmt.verify.verify` is asked for of every input."""

    level: Level
    ledgers: str | None
    memory_bytes: int | None
    sample: str | None
    time: TimeLimit


@dataclass(slots=True)
class _Judged:
    """What became of the inputs, and what was found in all of them."""

    fail_on: FailOn
    finished: bool = False
    stopped: bool = False
    unreadable: int = 0
    inputs: int = 0
    valid: int = 0
    partial: int = 0
    skipped: int = 0
    records: int = 0
    total_records: int = 0
    tally: Tally = field(default_factory=Tally)
    report: Report = field(default_factory=Report)

    def fails(self, finding: Finding) -> bool:
        """Whether a finding makes the exit code 1."""
        return finding.rule.severity is Severity.ERROR or self.fail_on is FailOn.WARNING


@dataclass(frozen=True, slots=True)
class _Visit:
    """One input, and how far it was looked at."""

    name: str
    place: Place
    total_records: int
    progress: Progress = field(default_factory=Progress)


def _check_sample(sample: str, level: Level) -> None:
    if level is Level.QUICK:
        raise RefusedError("--level quick reads no records, so that there are none to sample")
    sample_size(sample, 1)


def _opened(opened: contextlib.ExitStack, asked: str) -> ReportFile:
    file = ReportFile(asked)
    opened.callback(file.abandon)
    return file


def _validate(session: Session, name: str, asked: _Asked, judged: _Judged) -> None:
    if asked.time.is_over:
        judged.stopped = True
        judged.skipped += 1
        judged.report.inputs[name] = f"{name}: not looked at"
        return
    try:
        place = open_checkpoint(name)
    except CkptError as error:
        session.fail(error)
        judged.unreadable += 1
        judged.report.inputs[name] = f"{name}: could not be opened"
        judged.report.add(Entry(name, error.code, str(Severity.ERROR), name, error.message, True))
        return
    for notice in place.notices:
        session.talk.notice(notice)
    judged.inputs += 1
    visit = _Visit(name, place, _total_records(place))
    tally = judged.tally
    errors_before, warnings_before = tally.errors, tally.warnings
    whole = _look(session, visit, asked, judged)
    progress = visit.progress
    errors = tally.errors - errors_before
    judged.records += progress.records
    judged.total_records += visit.total_records
    judged.partial += not whole
    judged.valid += whole and not errors
    item = {
        "input": name,
        "level": str(asked.level),
        "valid": False if errors else True if whole else None,
        "partial": not whole,
        "participants": progress.participants,
        "records": progress.records,
        "total_records": visit.total_records,
        "raw_bytes": progress.raw_bytes,
        "errors": errors,
        "warnings": tally.warnings - warnings_before,
    }
    judged.report.inputs[name] = "".join(_input_lines(item))
    session.item("input", **item)


def _look(session: Session, visit: _Visit, asked: _Asked, judged: _Judged) -> bool:
    """Give all findings; whether everything was looked at."""
    sample, progress = _sample(visit, asked), visit.progress
    expected = sample.size if sample else visit.total_records
    with session.progress(f"validate {visit.name}", expected or None) as counter:

        def report(done: Progress) -> None:
            counter.update(done.records, done.raw_bytes)
            asked.time.check()

        progress.report = report
        try:
            for finding in verify(
                visit.place.store,
                visit.place.folder,
                level=asked.level,
                progress=progress,
                ledgers=asked.ledgers,
                memory_bytes=asked.memory_bytes,
                sample=sample,
            ):
                _give(session, visit.name, finding, judged)
                asked.time.check()
        except OutOfTimeError:
            judged.stopped = True
    return sample is None and not judged.stopped


def _sample(visit: _Visit, asked: _Asked) -> Sample | None:
    if asked.sample is None or _is_gym(visit.place):
        return None
    size = sample_size(asked.sample, visit.total_records)
    return Sample(size, visit.total_records) if size < visit.total_records else None


def _is_gym(place: Place) -> bool:
    # The layout has no index: to find some records is to read them all.
    with contextlib.suppress(CkptError):
        return gym_folder(place.store, place.folder) is not None
    return False


def _total_records(place: Place) -> int:
    """The number of records by the manifests that can be read, be they published or not."""
    total = 0
    with contextlib.suppress(CkptError):
        for read in _manifests(place):
            with contextlib.suppress(CkptError):
                total += read().manifest.record_count
    return total


def _manifests(place: Place) -> list[Callable[[], ParticipantReader]]:
    store, folder = place.store, place.folder
    try:
        checkpoint = layouts.open_checkpoint(store, folder)
    except CkptError:
        found = layouts.participants_in(store, folder)
        return [partial(layouts.open_participant, store, folder, item) for item in found]
    return [partial(checkpoint.participant, item) for item in checkpoint.participants]


def _give(session: Session, name: str, finding: Finding, judged: _Judged) -> None:
    address = address_of(finding.location)
    where = f"{address} in {name}" if address else name
    members = finding_members(finding)
    judged.tally.add(finding, where)
    judged.report.add(
        Entry(
            input=name,
            rule=finding.rule.rule_id,
            severity=str(finding.rule.severity),
            where=where,
            message=placed_message(members, leave_out="checkpoint"),
            fails=judged.fails(finding),
        )
    )
    if (code := trouble_of(finding)) is not None:
        session.note(code, f"{name}: {finding.message}")
    session.item("finding", input=name, address=address, **members)


def _conclude(session: Session, judged: _Judged, *, exit_zero: bool) -> None:
    tally, report = judged.tally, judged.report
    report.verdict = verdict = _verdict(judged)
    gating = tally.errors + (tally.warnings if judged.fail_on is FailOn.WARNING else 0)
    if gating and not exit_zero:
        session.note(Exit.NEGATIVE, verdict)
    if judged.partial or judged.skipped:
        session.note(Exit.INCOMPLETE, verdict)
    report.doubtful = session.code not in (Exit.DONE, Exit.NEGATIVE)
    session.summary |= {
        "inputs": judged.inputs,
        "unreadable": judged.unreadable,
        "finished": judged.finished,
        "valid": judged.valid,
        "partial": judged.partial,
        "skipped": judged.skipped,
        **tally.summary(),
        "verdict": verdict,
    }


def _verdict(judged: _Judged) -> str:
    parts = [] if judged.finished else ["not finished"]
    if judged.unreadable:
        parts.append(f"{number_of(judged.unreadable, 'input')} could not be opened")
    if judged.partial:
        parts.append(f"looked at {judged.records:,} of {judged.total_records:,} records only")
    if judged.skipped:
        parts.append(f"{number_of(judged.skipped, 'input')} not looked at")
    if judged.tally.by_rule:
        parts.append(judged.tally.words())
    else:
        parts.append(f"no findings in {number_of(judged.inputs, 'checkpoint')}")
    return "; ".join(parts)
