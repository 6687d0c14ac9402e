"""The rules by which a checkpoint is judged: ids that are only added to, and explanations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ckptfmt.errors import CkptError, Location

__all__ = ["RULES", "Finding", "Rule", "Severity"]


class Severity(StrEnum):
    """How much a finding weighs.  Damaged data is always an error."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is checked, why it matters, and what to do, in safe order."""

    rule_id: str
    severity: Severity
    explanation: str
    advice: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that does not hold at some place."""

    rule: Rule
    message: str
    location: Location = Location()
    code: str | None = None

    @classmethod
    def of(cls, rule_id: str, error: CkptError) -> Finding:
        """The finding that an error stands for."""
        return cls(RULES[rule_id], error.message, error.location, error.code)


_RECOVER: Final = "copy the checkpoint first; restore the previous one, or recover into a new one"
_ERRORS: Final = (
    ("aggregate", "checkpoint.json is there, verifies, and names its participants.", _RECOVER),
    (
        "incomplete",
        "A checkpoint exists only once checkpoint.json was published.",
        "restore the previous checkpoint; what is there can be recovered into a new one",
    ),
    (
        "aborted",
        "A tombstone says that this commit was given up.",
        "restore the previous checkpoint",
    ),
    (
        "unsupported",
        "This release knows the version, features and schemas of what it reads.",
        "use the release that the message names",
    ),
    ("participant", "Every participant's manifest is the one that was published.", _RECOVER),
    (
        "data",
        "Data objects are there, in full size, and with the SHA-256 that their manifest states.",
        _RECOVER,
    ),
    (
        "stream",
        "The pieces of a stream are intact and agree with each other and the manifest.",
        _RECOVER,
    ),
    ("record", "Every record line is one of the participant's schema.", _RECOVER),
    (
        "key",
        "The index lists the key of every record, and each key once in a participant.",
        _RECOVER,
    ),
    ("digest", "The digests of records are those of their lines.", _RECOVER),
    (
        "episodes",
        "A manifest lists exactly the episodes that the records belong to.",
        _RECOVER,
    ),
    (
        "ledger-pin",
        "A pinned ledger still begins with the bytes that belong to the checkpoint.",
        "restore the checkpoint before, or the ledger from a copy",
    ),
    (
        "round-trip",
        "A record that is decoded and encoded again gives the same bytes.",
        "keep the file and report it: the writer broke the format's promise",
    ),
    (
        "unreadable",
        "The store answers.",
        "mend what the message names, or try again later; this says nothing of the data",
    ),
)
_WARNINGS: Final = (
    (
        "duplicate-member",
        "No object in a payload names a member twice: whoever makes a dict of it keeps the last.",
        "nothing, if whoever reads it means the last one; cat and get show all of them",
    ),
    (
        "later-release",
        "This release knows all that the manifests say.",
        "nothing is lost; a newer release also knows what the rest means",
    ),
    (
        "undecoded",
        "Every record could be decoded in the memory that the check may take.",
        "nothing, if the other checks suffice; where there is the memory for it, add --large",
    ),
    (
        "leftover",
        "A failed write left a file that no manifest names; it harms nothing.",
        "let gc show its plan, then apply it",
    ),
    (
        "stranger",
        "A file or link is there that no writer of this format puts there; it is not read.",
        "look whose it is; gc leaves it alone",
    ),
)
RULES: Final = {
    rule_id: Rule(rule_id, severity, explanation, advice)
    for severity, rules in ((Severity.ERROR, _ERRORS), (Severity.WARNING, _WARNINGS))
    for rule_id, explanation, advice in rules
}
"""Rule id -> rule."""
