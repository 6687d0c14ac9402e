"""What a controller of NeMo Gym sends and expects, replayed against a participant.

``fixtures/exchanges`` holds the requests and replies as the wire contract has them, and
the files as Gym's own writer spells them.  ``<dir>`` stands for the checkpoint's folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

import participant
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import EnvironmentRecord
from ckptfmt.testing.same import assert_same
from participant.hooks import DefaultHooks, Export, GateCounts, Scope
from participant.runtime.saving import storage_of
from participant.runtime.shell import Components
from participant.settings import Settings
from participant.testing.asgi import request
from participant.testing.clock import FakeClock
from tests.support.participants import TOKEN
from tests.support.tools import ROOT

pytestmark = pytest.mark.anyio

RECORDED = json.loads((ROOT / "fixtures/exchanges/nemo-gym-environment.json").read_text())


class Environment(DefaultHooks):
    """An environment server reduced to what it holds: a record of each episode."""

    def __init__(self, values: Iterable[Mapping[str, Any]]) -> None:
        self.records: dict[EpisodeId, EnvironmentRecord] = {}
        for value in values:
            boundary = value["boundary"]
            record = EnvironmentRecord(
                episode_id=EpisodeId(**value["episode_id"]),
                task_digest=value["task_digest"],
                boundary=None if boundary is None else JsonPayload.from_value(boundary),
            )
            self.records[record.episode_id] = record

    def counts(self, gate: GateCounts) -> Mapping[str, int]:
        """The count that an environment server reports."""
        return {"episodes": len(self.records)}

    def held(self) -> Iterable[str]:
        """Every episode that is held."""
        return [episode.capture_key for episode in self.records]

    async def export(self, scope: Scope) -> Export:
        """The records in scope."""
        return Export([record for episode, record in self.records.items() if episode in scope])

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """Hold them under the next attempt."""
        self.records |= {record.episode_id.continuation: record for record in records}

    async def free(self, episode: EpisodeId) -> None:
        """Hold nothing of it any more."""
        self.records.pop(episode, None)


@pytest.mark.parametrize("story", RECORDED["stories"], ids=lambda story: story["says"])
async def test_a_recorded_exchange_replays(story: dict[str, Any], tmp_path: Path) -> None:
    for name, text in story.get("files", {}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    app, hooks = Starlette(), Environment(story["holds"])
    settings = Settings(enabled=True, control_auth_token=TOKEN, **RECORDED["settings"])
    participant.install(
        app,
        hooks,
        settings,
        kind=RECORDED["kind"],
        instance=RECORDED["instance"],
        components=Components(storage_of(settings.storage_layout), FakeClock()),
    )
    for call in story["exchange"]:
        body = json.dumps(call.get("body")).replace("<dir>", str(tmp_path))
        reply = await request(
            app,
            "POST" if "body" in call else "GET",
            "/ng-control/v1/checkpoint/" + call["command"],
            body.encode() if "body" in call else b"",
            {"authorization": f"Bearer {TOKEN}"},
        )
        assert reply.status == call.get("status", 200), reply.json
        found = reply.json
        found.get("error", {}).pop("detail", None)
        assert found == call["reply"]
    if "records" in story:
        (file,) = (tmp_path / "gym").rglob("records*")
        assert file.read_text() == story["records"]
    if "restored" in story:
        wanted = Environment(story["restored"]).records
        assert {record.episode_id: record for record in hooks.records.values()} == wanted
        for episode, record in hooks.records.items():
            original = wanted[EpisodeId(episode.rollout_id, episode.attempt - 1)]
            assert record.boundary is not None
            assert original.boundary is not None
            assert_same(record.boundary.value(), original.boundary.value())
