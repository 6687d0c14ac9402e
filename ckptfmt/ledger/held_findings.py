"""Findings of one file that are held until all of it is read, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptfmt.errors import Location
from ckptfmt.ledger.limits import MAX_FINDINGS
from ckptfmt.ledger.rules import found
from ckptfmt.rules import Finding

__all__ = ["HeldFindings"]


class HeldFindings:
    """The first findings of each rule about the file ``name``; the others are counted."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(self, finding: Finding) -> None:
        """Hold a finding, or count it."""
        rule_id = finding.rule.rule_id
        self._counts[rule_id] += 1
        if self._counts[rule_id] <= MAX_FINDINGS:
            self._held.append(finding)

    def __iter__(self) -> Iterator[Finding]:
        yield from self._held
        for rule_id, number in self._counts.items():
            if number > MAX_FINDINGS:
                text = f"and {number - MAX_FINDINGS:,} more of this rule"
                yield found(rule_id, text, Location(file=self._name))
