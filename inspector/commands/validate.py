"""``validate``: everything that is wrong with checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

import typer

from ckptfmt import layouts
from ckptfmt.errors import CkptError, RefusedError
from ckptfmt.ledger import LEDGER_RULES
from ckptfmt.rules import RULES, Finding, Rule
from ckptfmt.verify import Level, Progress, verify
from inspector.address import address_of
from inspector.exit_codes import Exit
from inspector.findings import Tally, advice_lines, finding_lines, finding_members, trouble_of
from inspector.options import command
from inspector.output.base import Column, Item, Table, Views
from inspector.places import Place, check_directory, open_checkpoint
from inspector.quantities import number_of, size
from inspector.session import Session

__all__ = ["VIEWS", "FailOn", "app", "validate"]

# With what the program takes itself, validate stays below 300 MB.
_MEMORY_BYTES: Final = 200 << 20


class FailOn(StrEnum):
    """Which findings make the exit code 1."""

    WARNING = "warning"
    ERROR = "error"


def _finding_lines(item: Item) -> Iterator[str]:
    return finding_lines(item, item["address"] or item["input"], leave_out="checkpoint")


def _input_lines(item: Item) -> Iterator[str]:
    verdict = "valid" if item["valid"] else "INVALID"
    looked_at = f"{number_of(item['participants'], 'participant')}"
    if item["level"] != Level.QUICK:
        looked_at += f", {number_of(item['records'], 'record')}, {size(item['raw_bytes'])}"
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
    if ledgers is not None:
        check_directory(ledgers)
    judged = _Judged()
    asked = _Asked(level, ledgers, None if large else _MEMORY_BYTES)
    try:
        for name in checkpoints:
            _validate(session, name, asked, judged)
        judged.finished = True
    finally:
        _conclude(session, judged, fail_on, exit_zero=exit_zero)


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


@dataclass(slots=True)
class _Judged:
    """What became of the inputs, and what was found in all of them."""

    finished: bool = False
    unreadable: int = 0
    inputs: int = 0
    invalid: int = 0
    tally: Tally = field(default_factory=Tally)


def _validate(session: Session, name: str, asked: _Asked, judged: _Judged) -> None:
    try:
        place = open_checkpoint(name)
    except CkptError as error:
        session.fail(error)
        judged.unreadable += 1
        return
    for notice in place.notices:
        session.talk.notice(notice)
    judged.inputs += 1
    progress = Progress()
    tally = judged.tally
    errors_before, warnings_before = tally.errors, tally.warnings
    with session.progress(f"validate {name}", _total_records(place)) as counter:
        progress.report = lambda done: counter.update(done.records, done.raw_bytes)
        for finding in verify(
            place.store,
            place.folder,
            level=asked.level,
            progress=progress,
            ledgers=asked.ledgers,
            memory_bytes=asked.memory_bytes,
        ):
            _give(session, name, finding, tally)
    errors = tally.errors - errors_before
    judged.invalid += errors > 0
    session.item(
        "input",
        input=name,
        level=str(asked.level),
        valid=errors == 0,
        participants=progress.participants,
        records=progress.records,
        raw_bytes=progress.raw_bytes,
        errors=errors,
        warnings=tally.warnings - warnings_before,
    )


def _total_records(place: Place) -> int | None:
    try:
        checkpoint = layouts.open_checkpoint(place.store, place.folder)
        readers = [checkpoint.participant(item) for item in checkpoint.participants]
    except CkptError:
        return None
    return sum(reader.manifest.record_count for reader in readers)


def _give(session: Session, name: str, finding: Finding, tally: Tally) -> None:
    address = address_of(finding.location)
    tally.add(finding, f"{address} in {name}" if address else name)
    if (code := trouble_of(finding)) is not None:
        session.note(code, f"{name}: {finding.message}")
    session.item("finding", input=name, address=address, **finding_members(finding))


def _conclude(session: Session, judged: _Judged, fail_on: FailOn, *, exit_zero: bool) -> None:
    tally = judged.tally
    verdict = _verdict(judged)
    gating = tally.errors + (tally.warnings if fail_on is FailOn.WARNING else 0)
    if gating and not exit_zero:
        session.note(Exit.NEGATIVE, verdict)
    session.summary |= {
        "inputs": judged.inputs,
        "unreadable": judged.unreadable,
        "finished": judged.finished,
        "valid": judged.inputs - judged.invalid,
        **tally.summary(),
        "verdict": verdict,
    }


def _verdict(judged: _Judged) -> str:
    parts = [] if judged.finished else ["not finished"]
    if judged.unreadable:
        parts.append(f"{number_of(judged.unreadable, 'input')} could not be opened")
    if judged.tally.by_rule:
        parts.append(judged.tally.words())
    else:
        parts.append(f"no findings in {number_of(judged.inputs, 'checkpoint')}")
    return "; ".join(parts)
