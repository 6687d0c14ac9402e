"""The worked examples of resources servers: after a restore they go on as if nothing had been."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from starlette.applications import Starlette

from ckptfmt.commit import Committed
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import publish_checkpoint
from ckptfmt.store import LocalStore
from participant.runtime.saving import FormatStorage
from participant.runtime.shell import Components
from participant.testing.clock import settle
from tests.support.role_servers import SETTINGS, Client, RoleServer
from tests.support.tools import ROOT

pytestmark = pytest.mark.anyio
R1 = EpisodeId("r1")
EXAMPLES = ROOT / "examples/resources"
SECRET = "the-same-after-a-restart"


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop that participants live on."""
    return "asyncio"


def example(name: str) -> ModuleType:
    """The example of this name, as a module."""
    full = f"example_resources_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[full]


def maker(name: str, **options: Any) -> Callable[[Components], Starlette]:
    """What builds the example's app."""
    make: Callable[..., Starlette] = example(name).make_app
    return lambda components: make(SETTINGS, secret=SECRET, components=components, **options)


Step = tuple[str, dict[str, Any]]
SEEDS: dict[str, dict[str, Any]] = {
    "counter": {"start": 5},
    "card_game": {"seed": 11},
    "office": {"seed": 3},
    "verifier": {},
}
BEFORE: dict[str, list[Step]] = {
    "counter": [("/add", {"by": 3}), ("/add", {"by": -10})],
    "card_game": [("/draw", {"count": 3}), ("/draw", {"count": 1}), ("/draw", {"count": 2})],
    "office": [
        ("/set_cell", {"table": "tasks", "column": "title", "row": 4, "value": "NaN"}),
        ("/set_cell", {"table": "emails", "column": "body", "row": 0, "value": None}),
    ],
    "verifier": [],
}
AFTER: dict[str, list[Step]] = {
    "counter": [("/add", {"by": 1}), ("/verify", {"expected": -1})],
    "card_game": [("/draw", {"count": 5}), ("/draw", {"count": 5}), ("/verify", {})],
    "office": [
        ("/count", {"table": "emails", "column": "body", "text": "NaN"}),
        ("/count", {"table": "tasks", "column": "title", "text": "NaN"}),
        ("/set_cell", {"table": "tasks", "column": "title", "row": 4, "value": "done"}),
        ("/verify", {"table": "tasks", "column": "title", "row": 4, "value": "done"}),
    ],
    "verifier": [("/verify", {"answer": "0.50.", "expected": "1/2"})],
}


async def play(client: Client, steps: list[Step]) -> list[Any]:
    """The replies to a list of steps."""
    return [await client.get(path, **body) for path, body in steps]


@pytest.mark.parametrize("name", SEEDS)
async def test_the_next_operations_are_those_of_an_uninterrupted_run(
    name: str, tmp_path: Path
) -> None:
    """P61, P105: by the file on disk, and by the very cookie that the client has."""
    whole = Client(RoleServer(maker(name)), R1)
    await play(whole, [("/seed_session", SEEDS[name]), *BEFORE[name]])
    expected = await play(whole, AFTER[name])

    storage = FormatStorage()
    old = RoleServer(maker(name), storage)
    client = Client(old, R1)
    seeded = await client.post("/seed_session", **SEEDS[name])
    assert seeded.headers["x-ng-checkpoint-verify"] in ("replay", "wait")
    await play(client, BEFORE[name])
    place = tmp_path / "ck"
    instance = (await old.well("status"))["instance"]
    await old.save(R1, checkpoint_dir=str(place))
    members = [ParticipantId("resources", instance)]
    outcome = publish_checkpoint(LocalStore(tmp_path), Folder("ck"), "ck", members)
    assert isinstance(outcome, Committed), outcome
    await old.well("resume")
    await play(client, AFTER[name][:1])  # Lost with the process.

    new = RoleServer(maker(name), storage)
    assert (await new.restore(R1, checkpoint_dir=str(place)))["restored"] == ["r1-a1"]
    again = client.moved(new)
    cookie = again.cookie
    assert await play(again, AFTER[name]) == expected
    assert again.cookie == cookie
    assert (await again.post("/close_session")).status == 200
    assert (await new.well("status"))["report"]["counts"] == {"inflight": 0, "sessions": 0}


async def test_the_office_has_the_size_of_real_sessions_and_empty_cells() -> None:
    """About 350 KB, with NaN beside the text NaN."""
    tables = example("office").make_tables(1)
    assert 300_000 < len(JsonPayload.from_value(tables)) < 400_000
    cells = [cell for table in tables.values() for column in table.values() for cell in column]
    assert any(isinstance(cell, float) and math.isnan(cell) for cell in cells)
    assert any(isinstance(cell, str) and "NaN" in cell for cell in cells)


async def test_an_office_that_was_idle_longer_than_its_limit_is_gone_and_is_not_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An id that is missing from the answer is dropped with a warning."""
    now = [0.0]
    office = example("office").Office(idle_limit_s=60.0, clock=lambda: now[0])
    server = RoleServer(maker("office", office=office))
    idle, busy = Client(server, R1), Client(server, EpisodeId("r2"))
    await idle.get("/seed_session", seed=1)
    await busy.get("/seed_session", seed=2)
    now[0] = 50.0
    await busy.get("/count", table="tasks", column="title", text="NaN")
    now[0] = 70.0
    await busy.get("/count", table="tasks", column="title", text="NaN")
    reply = await idle.post("/count", table="tasks", column="title", text="NaN")
    assert reply.status == 410
    committed = await server.save(R1, EpisodeId("r2"))
    assert committed["episode_ids"] == ["r2"]
    assert "a session of r1 is gone" in caplog.text


async def test_downtime_does_not_count_as_idle_time() -> None:
    """P106."""
    old = RoleServer(maker("office", office=example("office").Office(clock=lambda: 0.0)))
    client = Client(old, R1)
    await client.get("/seed_session", seed=1)
    await old.save(R1)
    late = example("office").Office(clock=lambda: 1e9)
    new = RoleServer(maker("office", office=late), old.storage)
    await new.restore(R1)
    await client.moved(new).get("/count", table="tasks", column="title", text="NaN")


async def test_a_checkpoint_does_not_wait_for_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example declares that it may judge twice."""
    server = RoleServer(maker("verifier"))
    client = Client(server, R1)
    reply = await client.post("/seed_session")
    assert reply.headers["x-ng-checkpoint-verify"] == "replay"
    status = await server.well("status")
    assert (status["mode"], status["verify"]) == ("stateless", "replay")
    await server.well("prepare")
    verify = client.begin("/verify", answer="1", expected="1")
    await settle()
    assert not verify.has_started
    await server.well("resume")
    assert (await verify.reply()).json == {"reward": 1.0}
