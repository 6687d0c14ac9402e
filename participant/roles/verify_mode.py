"""Whether a checkpoint waits for a ``/verify``: what a seed's reply says about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from participant.core.steps import StepMode

__all__ = ["VERIFY_HEADER", "verify_mode"]

VERIFY_HEADER: Final = "x-ng-checkpoint-verify"
"""Header of the reply to ``/seed_session``: ``replay`` or ``wait``."""


def verify_mode(headers: Mapping[str, str]) -> StepMode:
    """How the caller of ``/seed_session`` runs its ``/verify`` later.

    The name in any case counts; what is absent or unknown is ``wait``.
    """
    found = next((v for name, v in headers.items() if name.lower() == VERIFY_HEADER), "")
    return StepMode.REPLAY if found == StepMode.REPLAY else StepMode.WAIT
