"""The exit codes and their order."""

from __future__ import annotations

import itertools

from inspector.exit_codes import MEANINGS, Exit, worst


def test_the_numbers_are_those_that_were_published() -> None:
    """I39: they are never changed, only added to."""
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "NEGATIVE": 1,
        "USAGE": 2,
        "INCOMPLETE": 3,
        "UNAVAILABLE": 4,
        "TRANSIENT": 5,
        "BUG": 70,
        "INTERRUPTED": 130,
        "CLOSED_PIPE": 141,
        "TERMINATED": 143,
    }
    assert set(MEANINGS) == set(Exit)


def rank(code: Exit) -> int:
    """Signals > 70 > 5 > 4 > 2 > 3 > 1 > 0."""
    order = [130, 70, 5, 4, 2, 3, 1, 0]
    return order.index(130 if code > 100 else code)


def test_several_outcomes_give_the_weightiest() -> None:
    """I23."""
    for codes in itertools.permutations(Exit, 3):
        assert rank(worst(codes)) == min(map(rank, codes))


def test_no_outcome_is_done() -> None:
    assert worst([]) is Exit.DONE
