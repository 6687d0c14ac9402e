"""Settings: read strictly, printed without the token."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from participant.settings import PoolSettings, Settings

REFUSED: list[dict[str, Any]] = [
    {"enabled": True},
    {"enabled": True, "control_auth_token": ""},
    {"enabled": True, "control_auth_token": "tab\there"},
    {"enabled": True, "control_auth_token": "é"},
    {"enabled": True, "control_auth_token": " padded"},
    {"unknown": 1},
    {"lease_grace_seconds": 0},
    {"lease_grace_seconds": "600"},
    {"lease_grace_seconds": float("inf")},
    {"lease_grace_seconds": float("nan")},
    {"max_budget_seconds": float("inf")},
    {"retire_fence_seconds": float("inf")},
    {"retire_fence_seconds": -1},
    {"max_waiting": -1},
    {"max_body_bytes": 0},
    {"storage_layout": "other"},
]


@pytest.mark.parametrize("block", REFUSED, ids=str)
def test_a_wrong_block_is_refused_at_start_up(block: dict[str, Any]) -> None:
    """P11."""
    with pytest.raises(ValueError, match="checkpoint"):
        Settings.load(block)


def test_an_absent_block_is_disabled() -> None:
    """P10."""
    assert Settings.load(None) == Settings() == Settings.load({})
    assert not Settings().enabled


def test_the_token_is_never_printed() -> None:
    settings = Settings.load({"enabled": True, "control_auth_token": "sesame"})
    assert settings.control_auth_token == "sesame"
    for text in (repr(settings), str(settings), f"{settings}", repr({"s": settings})):
        assert "sesame" not in text
        assert "control_auth_token='***'" in text


def test_negative_pool_limits_are_refused() -> None:
    """P113."""
    with pytest.raises(ValueError, match="limit_per_host is -1"):
        PoolSettings(global_aiohttp_control_connector_limit_per_host=-1)


def test_importing_the_package_costs_no_server_library() -> None:
    """P10: what is off is not imported."""
    program = (
        "import sys, participant; "
        "participant.install(None, None, participant.Settings(), kind='k', instance='i'); "
        "print(sorted({'aiohttp', 'starlette', 'zstandard', 'asyncio'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_what_is_off_does_not_even_import_the_machine() -> None:
    """P10."""
    program = (
        "import sys, participant; "
        "participant.install(None, None, participant.Settings(), kind='k', instance='i'); "
        "print(sorted(m for m in sys.modules if m.startswith('participant.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = ("participant.core", "participant.core.errors", "participant.install")
    assert run.stdout.strip() == str([*modules, "participant.settings"])
