"""The commit scope is a set, or everything."""

from __future__ import annotations

from ckptfmt.identity import EpisodeId
from participant.core.scope import Scope

R1, R2 = EpisodeId("r1"), EpisodeId("r2", 1)


def test_no_scope_is_everything_and_leaves_nothing_out() -> None:
    assert R1 in Scope.of(None)
    assert Scope.of(None).left_out([R1, R2]) == frozenset()


def test_an_empty_scope_is_nothing_and_leaves_everything_out() -> None:
    assert R1 not in Scope.of([])
    assert Scope.of([]).left_out([R1, R2]) == {R1, R2}


def test_order_and_repetition_mean_nothing() -> None:
    assert Scope.of([R1, R2, R1]) == Scope.of([R2, R1])
    assert Scope.of([R1]) != Scope.of(None)
