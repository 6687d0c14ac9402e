"""Asynchronous tests of faults run on asyncio."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop that participants live on."""
    return "asyncio"
