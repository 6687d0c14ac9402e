"""docs/roles.md: its servers and tests run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckptfmt.schema import SCHEMAS
from tests.support.tools import ROOT

ROLES = (ROOT / "docs/roles.md").read_text(encoding="utf-8")

CALLS = {
    "environment_server": [("/run", {"_ng_rollout_id": "r1", "task": {"q": 1}}, {"reward": 1.0})],
    "agent_server": [
        ("/ng-rollout/r1/seed_session", {"session": "s"}, {}),
        (
            "/ng-rollout/r1/activate",
            {"session": "s", "messages": []},
            {"messages": [{"role": "assistant", "content": "an answer to 0 messages"}]},
        ),
        ("/ng-rollout/r1/close_session", {"session": "s"}, {}),
    ],
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder with every file that the page shows."""
    block = re.compile(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for name, code in block.findall(ROLES):
        (tmp_path / name).write_text(code, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("server", CALLS)
def test_a_server_of_the_page_serves(
    pages: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from participant.testing.asgi import request

    monkeypatch.syspath_prepend(str(pages))
    app = __import__(server).app

    async def main() -> None:
        for path, body, expected in CALLS[server]:
            reply = await request(app, "POST", path, json.dumps(body).encode())
            assert (reply.status, reply.json) == (200, expected)

    asyncio.run(main())


def test_the_tests_of_the_page_pass(pages: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_roles.py"]
    run = subprocess.run(
        command, cwd=pages, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_table_of_records_is_that_of_the_schemas() -> None:
    rows = [line.strip("| ").split(" | ") for line in ROLES.splitlines() if line.startswith("|")]
    listed = {row[0]: re.findall(r"`(\w+)`", row[1]) for row in rows if row[0] in SCHEMAS}
    assert listed == {kind: list(schema.forms) for kind, schema in SCHEMAS.items()}
