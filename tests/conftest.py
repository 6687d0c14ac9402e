"""What every test gets: Hypothesis profiles and the path of the shared data."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import tools

# A process that works in the background of another may have been started with interrupts
# ignored, which its children inherit; those of a test are interrupted as in a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: a slow machine is no defect, and no test here asserts a time.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, max_examples=50, derandomize=True, database=None, print_blob=True
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("FUZZ_EXAMPLES") or 10_000),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real rollouts and parsing cases; skips where it is absent."""
    return tools.shared_data()
