"""The rules by which capture ledgers are judged: ids that are only added to."""

from __future__ import annotations

from typing import Final

from ckptfmt.errors import CkptError, Location
from ckptfmt.rules import Finding, Rule, Severity

__all__ = ["LEDGER_RULES", "found"]

_RESTORE: Final = "copy the directory first; go back to the checkpoint before, or mask the rollout"
_MASK: Final = "mask the rollout: its tokens are not known to be complete"

_ERRORS: Final = (
    (
        "ledger-line",
        "Every line before the last is a JSON object: what was acknowledged is readable.",
        "copy the directory first; salvage keeps the lines around the damage",
    ),
    (
        "ledger-version",
        "Entries are of schema version 1 to 5.",
        "read the directory with the release that wrote it",
    ),
    (
        "ledger-entry",
        (
            "An entry has as many log probabilities as generated tokens, an item index within its "
            "items, and a parent exactly where its parent resolution says so."
        ),
        _MASK,
    ),
    ("ledger-owner", "Every entry belongs to the rollout that its file is named after.", _RESTORE),
    (
        "ledger-conflict",
        "A call is recorded once: two lines with one call id and other content contradict.",
        _MASK,
    ),
    (
        "ledger-parent",
        "A call's parent is recorded before it, so that chains have no gaps and no cycles.",
        _MASK,
    ),
    (
        "ledger-digest",
        (
            "cum_len and digest of an entry are those of its tokens; a row's digest is its "
            "cumulative hash."
        ),
        _RESTORE,
    ),
    (
        "ledger-state",
        "The state file is what a writer wrote, and knows no line that is not there.",
        (
            "retire or delete the ledger, or restore its lines; removing the file opens a frozen "
            "or retired ledger again"
        ),
    ),
    (
        "ledger-index",
        "The digests in the state file are those of the first indexed_size bytes of lines.",
        "remove the state file of a ledger that is neither frozen nor retired: it is made again",
    ),
    (
        "ledger-row",
        (
            "A row has its fields; a root starts at 0 in mode text, a child does not and is of "
            "mode token_in; cum_len is prev_len plus delta_len, and delta_len is above 0."
        ),
        _MASK,
    ),
    ("ledger-staging-key", "Every staged record belongs to one call.", _MASK),
    (
        "ledger-unreadable",
        "The file system answers.",
        "mend what the message names, or try again later; this says nothing of the data",
    ),
)
_WARNINGS: Final = (
    (
        "ledger-torn",
        "The last line is whole.  A cut one was never acknowledged; the next write removes it.",
        "nothing, unless no writer is at work any more: then the call in it was lost",
    ),
    (
        "ledger-newline",
        "The last line ends in a newline.  It counts without; the next write adds it.",
        "nothing",
    ),
    (
        "ledger-repeated",
        "A call is recorded once: the same line twice says nothing new.",
        "nothing",
    ),
    ("ledger-incomplete", "No call of the rollout was lost.", _MASK),
    (
        "ledger-intent",
        "A call that was begun has an entry or was cancelled.  It may still run, or was lost.",
        "freeze the ledger: what has no entry then counts as lost",
    ),
    ("ledger-failure", "Every call was captured.", _MASK),
    (
        "ledger-gap",
        "A call begins with the tokens of its parent.",
        "treat the call as the start of a chain of its own",
    ),
    (
        "ledger-retired-rest",
        "A retired ledger has no records; these are what a killed retire left.",
        "retire it again",
    ),
    (
        "ledger-continued",
        "An attempt that another continues is frozen or retired.",
        "retire it, unless a restore is still going on",
    ),
    (
        "ledger-leftover",
        "Nothing of a failed write is left.  Such files harm nothing.",
        "sweep the directory",
    ),
    (
        "ledger-stranger",
        "Every file belongs to a rollout.  Others are not read.",
        "look whose it is",
    ),
)

LEDGER_RULES: Final = {
    rule_id: Rule(rule_id, severity, explanation, advice)
    for severity, rules in ((Severity.ERROR, _ERRORS), (Severity.WARNING, _WARNINGS))
    for rule_id, explanation, advice in rules
}
"""Rule id -> rule."""


def found(rule_id: str, what: str | CkptError, place: Location) -> Finding:
    """A finding: a message or the error that it stands for, and where."""
    rule = LEDGER_RULES[rule_id]
    if isinstance(what, CkptError):
        return Finding(rule, what.message, what.location.merged(place), what.code)
    return Finding(rule, what, place)
