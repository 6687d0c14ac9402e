"""The time of an episode, without the time that it was parked."""

from __future__ import annotations

from participant.core.steps import EpisodeTimer


def test_parked_time_does_not_count() -> None:
    """P78."""
    timer = EpisodeTimer(100.0)
    timer.start(0.0)
    assert timer.expires_at == 100.0
    timer.suspend(40.0)
    assert timer.expires_at is None
    timer.suspend(50.0)
    timer.start(640.0)
    timer.start(650.0)
    assert timer.expires_at == 700.0
