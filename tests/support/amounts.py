"""How long random runs last: a seeded slice in every run, hours in ``make fuzz``."""

from __future__ import annotations

import os

__all__ = ["random_values"]


def random_values(slice_count: int) -> int:
    """How many values a test marked ``fuzz`` draws: ``FUZZ_VALUES``, or ``slice_count``."""
    return int(os.environ.get("FUZZ_VALUES") or slice_count)
