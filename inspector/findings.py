"""Findings as commands count, give and conclude them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ckptfmt.errors import DeadlineError, SizeError, StorageFailedError, TransientError
from ckptfmt.rules import Finding, Severity
from inspector.exit_codes import Exit
from inspector.failures import location_members
from inspector.output.base import Item
from inspector.quantities import number_of

__all__ = [
    "Tally",
    "advice_lines",
    "finding_lines",
    "finding_members",
    "placed_message",
    "trouble_of",
]

_TROUBLE: Final = {
    TransientError.code: Exit.TRANSIENT,
    DeadlineError.code: Exit.TRANSIENT,
    StorageFailedError.code: Exit.UNAVAILABLE,
    SizeError.code: Exit.INCOMPLETE,
}


@dataclass(slots=True)
class Tally:
    """What was found so far, by rule.  ``start`` is the first error's place."""

    by_rule: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    warnings: int = 0
    start: str | None = None
    advice: dict[str, str] = field(default_factory=dict)

    def add(self, finding: Finding, where: str) -> None:
        """Count a finding at a place that a reader can go to."""
        rule = finding.rule
        self.by_rule[rule.rule_id] += 1
        self.advice[rule.rule_id] = rule.advice
        if rule.severity is Severity.ERROR:
            self.errors += 1
            self.start = self.start or where
        else:
            self.warnings += 1

    def words(self) -> str:
        """How many findings of which kind, and one place to start from."""
        kinds = ", ".join(f"{n:,} {rule}" for rule, n in sorted(self.by_rule.items()))
        counts = f"{number_of(self.errors, 'error')}, {number_of(self.warnings, 'warning')}"
        start = f"; start at {self.start}" if self.start else ""
        return f"{counts}: {kinds}{start}"

    def summary(self) -> dict[str, Any]:
        """The members of a summary."""
        return {
            "errors": self.errors,
            "warnings": self.warnings,
            "by_rule": dict(sorted(self.by_rule.items())),
            "start": self.start,
            "advice": dict(sorted(self.advice.items())),
        }


def trouble_of(finding: Finding) -> Exit | None:
    """The exit code of a finding that says nothing of the data: it could not be looked at."""
    return _TROUBLE.get(finding.code or "")


def finding_members(finding: Finding) -> dict[str, Any]:
    """What every command tells of a finding."""
    return {
        "rule": finding.rule.rule_id,
        "severity": str(finding.rule.severity),
        "message": finding.message,
        "code": finding.code,
        "location": location_members(finding.location),
    }


def finding_lines(item: Item, where: str, *, leave_out: str) -> Iterator[str]:
    """A finding for people; one member of its location is left out, since ``where`` says it."""
    yield f"{item['severity']:<8}{item['rule']:<12} {where}"
    yield f"        {placed_message(item, leave_out=leave_out)}"


def placed_message(item: Item, *, leave_out: str) -> str:
    """A finding's message with its location, but for the member that is told elsewhere."""
    place = ", ".join(
        f"{name} {value}" for name, value in item["location"].items() if name != leave_out
    )
    return f"{item['message']} [{place}]" if place else f"{item['message']}"


def advice_lines(summary: Item) -> Iterator[str]:
    """What to do about each rule that was broken, and the verdict."""
    for rule, advice in summary.get("advice", {}).items():
        yield f"what to do about {rule}: {advice}"
    if summary.get("verdict"):
        yield summary["verdict"]
