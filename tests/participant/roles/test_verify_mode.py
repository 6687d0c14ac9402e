"""What a seed's reply says about ``/verify``."""

from __future__ import annotations

import pytest

from participant.core.steps import StepMode
from participant.roles.verify_mode import verify_mode


@pytest.mark.parametrize(
    ("headers", "mode"),
    [
        ({"x-ng-checkpoint-verify": "replay"}, StepMode.REPLAY),
        ({"X-NG-Checkpoint-Verify": "replay"}, StepMode.REPLAY),
        ({"x-ng-checkpoint-verify": "wait"}, StepMode.WAIT),
        ({"x-ng-checkpoint-verify": "REPLAY"}, StepMode.WAIT),
        ({"x-ng-checkpoint-verify": ""}, StepMode.WAIT),
        ({"x-other": "replay"}, StepMode.WAIT),
        ({}, StepMode.WAIT),
    ],
)
def test_only_replay_itself_is_replay(headers: dict[str, str], mode: StepMode) -> None:
    """P79."""
    assert verify_mode(headers) is mode
