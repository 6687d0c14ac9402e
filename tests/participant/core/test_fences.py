"""Fences: bounded in time and number, and lifted by a restore."""

from __future__ import annotations

from ckptfmt.identity import EpisodeId
from participant.core.fences import Fences


def test_a_fence_covers_its_attempt_and_every_earlier_one_for_its_time() -> None:
    fences = Fences(60.0)
    fences.add(100.0, EpisodeId("r", 2))
    assert [fences.retired_ago(110.0, EpisodeId("r", n)) for n in range(4)] == [10, 10, 10, None]
    assert fences.retired_ago(110.0, EpisodeId("r-a1x")) is None
    assert fences.retired_ago(160.0, EpisodeId("r", 2)) is None


def test_a_lower_attempt_does_not_lower_the_fence_and_renews_it() -> None:
    fences = Fences(60.0)
    fences.add(0.0, EpisodeId("r", 5))
    fences.add(30.0, EpisodeId("r", 1))
    assert fences.retired_ago(80.0, EpisodeId("r", 5)) == 50.0


def test_a_restore_lifts_the_fence_of_its_attempt_only() -> None:
    fences = Fences(60.0)
    for rollout in ("r", "s", "t"):
        fences.add(0.0, EpisodeId(rollout, 2))
    fences.lift(EpisodeId("r", 1))
    fences.lift(EpisodeId("s", 0))
    fences.lift(EpisodeId("t", 3))
    assert [fences.retired_ago(1.0, EpisodeId("r", n)) for n in range(3)] == [1.0, None, None]
    assert fences.retired_ago(1.0, EpisodeId("s", 0)) is None
    assert fences.retired_ago(1.0, EpisodeId("t", 2)) == 1.0


def test_the_table_is_bounded_in_number_and_says_when_it_was() -> None:
    fences = Fences(60.0, limit=3)
    for number in range(5):
        fences.add(float(number), EpisodeId(f"r{number}"))
    assert len(fences) == 3
    assert fences.evicted == 2
    assert fences.retired_ago(5.0, EpisodeId("r1")) is None
    assert fences.retired_ago(5.0, EpisodeId("r2")) == 3.0


def test_what_has_expired_is_dropped_and_the_next_expiry_told() -> None:
    fences = Fences(60.0)
    fences.add(0.0, EpisodeId("a"))
    fences.add(10.0, EpisodeId("b"))
    assert fences.next_expiry == 60.0
    fences.purge(65.0)
    assert (len(fences), fences.next_expiry) == (1, 70.0)
    fences.add(200.0, EpisodeId("c"))
    assert (len(fences), fences.next_expiry) == (1, 260.0)
