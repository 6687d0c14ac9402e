"""``validate``: everything that is wrong with checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

import typer

from ckptfmt.checkpoint_reader import Checkpoint
from ckptfmt.errors import (
    CkptError,
    DeadlineError,
    RefusedError,
    StorageFailedError,
    TransientError,
)
from ckptfmt.rules import RULES, Finding, Rule, Severity
from ckptfmt.verify import Level, Progress, verify
from inspector.address import address_of
from inspector.exit_codes import Exit
from inspector.failures import location_members
from inspector.options import command
from inspector.output.base import Column, Item, Table, Views
from inspector.places import Place, open_checkpoint
from inspector.quantities import number_of, size
from inspector.session import Session

__all__ = ["VIEWS", "FailOn", "app", "validate"]


class FailOn(StrEnum):
    """Which findings make the exit code 1."""

    WARNING = "warning"
    ERROR = "error"


_TROUBLE: Final = {
    TransientError.code: Exit.TRANSIENT,
    DeadlineError.code: Exit.TRANSIENT,
    StorageFailedError.code: Exit.UNAVAILABLE,
}


def _finding_lines(item: Item) -> Iterator[str]:
    where = ", ".join(
        f"{name} {value}" for name, value in item["location"].items() if name != "checkpoint"
    )
    yield f"{item['severity']:<8}{item['rule']:<13}{item['address'] or item['input']}"
    yield f"        {item['message']}" + (f" [{where}]" if where else "")


def _input_lines(item: Item) -> Iterator[str]:
    verdict = "valid" if item["valid"] else "INVALID"
    looked_at = f"{number_of(item['participants'], 'participant')}"
    if item["level"] != Level.QUICK:
        looked_at += f", {number_of(item['records'], 'record')}, {size(item['raw_bytes'])}"
    yield f"{item['input']}: {verdict} ({item['level']}: {looked_at})"


def _summary_lines(item: Item) -> Iterator[str]:
    for rule in item.get("advice", {}):
        yield f"what to do about {rule}: {item['advice'][rule]}"
    if item.get("verdict"):
        yield item["verdict"]


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
    "summary": _summary_lines,
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
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Whether warnings make the exit code 1 too.")
    ] = FailOn.ERROR,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Report findings, but end with 0 for them.")
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="List all rules.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="RULE", help="Explain a rule.")
    ] = None,
) -> None:
    """Find everything that is wrong with checkpoints.

    Exit code 1: there are errors.  Damage is always an error.
    """
    if list_rules or explain is not None:
        _tell_rules(session, explain)
        return
    if not checkpoints:
        raise RefusedError("name at least one checkpoint")
    tally = _Tally()
    try:
        for name in checkpoints:
            _validate(session, name, level, tally)
        tally.finished = True
    finally:
        _conclude(session, tally, fail_on, exit_zero=exit_zero)


app = command(VIEWS)(validate)


def _tell_rules(session: Session, explain: str | None) -> None:
    if explain is None:
        for rule in RULES.values():
            session.item("rule", **_rule(rule))
    elif explain in RULES:
        session.item("explanation", **_rule(RULES[explain]))
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


@dataclass(slots=True)
class _Tally:
    """What was found in all inputs.  ``start`` is the first error's place."""

    finished: bool = False
    unreadable: int = 0
    inputs: int = 0
    invalid: int = 0
    by_rule: Counter[str] = field(default_factory=Counter)
    start: str | None = None

    def count(self, severity: Severity) -> int:
        return sum(n for rule, n in self.by_rule.items() if RULES[rule].severity is severity)


def _validate(session: Session, name: str, level: Level, tally: _Tally) -> None:
    try:
        place = open_checkpoint(name)
    except CkptError as error:
        session.fail(error)
        tally.unreadable += 1
        return
    for notice in place.notices:
        session.talk.notice(notice)
    tally.inputs += 1
    progress = Progress()
    before = tally.by_rule.copy()
    with session.progress(f"validate {name}", _total_records(place)) as counter:
        progress.report = lambda done: counter.update(done.records, done.raw_bytes)
        for finding in verify(place.store, place.folder, level=level, progress=progress):
            _give(session, name, finding, tally)
    found = tally.by_rule - before
    errors = sum(n for rule, n in found.items() if RULES[rule].severity is Severity.ERROR)
    tally.invalid += errors > 0
    session.item(
        "input",
        input=name,
        level=str(level),
        valid=errors == 0,
        participants=progress.participants,
        records=progress.records,
        raw_bytes=progress.raw_bytes,
        errors=errors,
        warnings=found.total() - errors,
    )


def _total_records(place: Place) -> int | None:
    try:
        checkpoint = Checkpoint.open(place.store, place.folder)
        readers = [checkpoint.participant(item) for item in checkpoint.participants]
    except CkptError:
        return None
    return sum(reader.manifest.record_count for reader in readers)


def _give(session: Session, name: str, finding: Finding, tally: _Tally) -> None:
    address = address_of(finding.location)
    tally.by_rule[finding.rule.rule_id] += 1
    if tally.start is None and finding.rule.severity is Severity.ERROR:
        tally.start = f"{address} in {name}" if address else name
    if (code := _TROUBLE.get(finding.code or "")) is not None:
        session.note(code, f"{name}: {finding.message}")
    session.item(
        "finding",
        input=name,
        rule=finding.rule.rule_id,
        severity=str(finding.rule.severity),
        message=finding.message,
        code=finding.code,
        address=address,
        location=location_members(finding.location),
    )


def _conclude(session: Session, tally: _Tally, fail_on: FailOn, *, exit_zero: bool) -> None:
    errors, warnings = tally.count(Severity.ERROR), tally.count(Severity.WARNING)
    verdict = _verdict(tally, errors, warnings)
    gating = errors + (warnings if fail_on is FailOn.WARNING else 0)
    if gating and not exit_zero:
        session.note(Exit.NEGATIVE, verdict)
    session.summary |= {
        "inputs": tally.inputs,
        "unreadable": tally.unreadable,
        "finished": tally.finished,
        "valid": tally.inputs - tally.invalid,
        "errors": errors,
        "warnings": warnings,
        "by_rule": dict(sorted(tally.by_rule.items())),
        "start": tally.start,
        "advice": {rule: RULES[rule].advice for rule in sorted(tally.by_rule)},
        "verdict": verdict,
    }


def _verdict(tally: _Tally, errors: int, warnings: int) -> str:
    parts = [] if tally.finished else ["not finished"]
    if tally.unreadable:
        parts.append(f"{number_of(tally.unreadable, 'input')} could not be opened")
    if not tally.by_rule:
        parts.append(f"no findings in {number_of(tally.inputs, 'checkpoint')}")
        return "; ".join(parts)
    kinds = ", ".join(f"{n:,} {rule}" for rule, n in sorted(tally.by_rule.items()))
    parts.append(f"{number_of(errors, 'error')}, {number_of(warnings, 'warning')}: {kinds}")
    if tally.start:
        parts.append(f"start at {tally.start}")
    return "; ".join(parts)
