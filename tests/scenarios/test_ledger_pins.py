"""The ledgers of a model participant's checkpoint, judged by the inspector afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.publish import publish_checkpoint
from ckptfmt.store import LocalStore
from participant.roles.model import ModelHooks
from participant.runtime.saving import storage_of
from participant.testing.one_server import OneServer
from tests.support.inspecting import Ran, inspect
from tests.support.ledgers import row

pytestmark = pytest.mark.anyio
R1, R2 = EpisodeId("r1"), EpisodeId("r2")


async def committed(tmp_path: Path, layout: str = "ckptfmt") -> dict[str, Any]:
    """Commit two of three rollouts of a model server; the manifest."""
    with StagingLedger(tmp_path / "captures") as ledger:
        for number, key in enumerate(("r1", "r1", "r2", "r3")):
            ledger.record(key, row(number))
        server = OneServer("model", ModelHooks(ledger), storage_of(layout))
        await server.send("prepare")
        place = str(tmp_path / "run/ck")
        reply = await server.send("commit", episodes=[R1, R2], checkpoint_dir=place)
        await server.send("resume")
        ledger.record("r1", row(9))
        await server.participant.close()
    manifest: dict[str, Any] = msgspec.json.decode(reply.manifest)
    return manifest


def publish(tmp_path: Path) -> None:
    """Publish the checkpoint, as its controller does."""
    store, owner = LocalStore(tmp_path / "run"), ParticipantId("model", "one")
    publish_checkpoint(store, Folder("ck"), "ck", [owner]).require()


def validated(tmp_path: Path) -> Ran:
    """Hold the published checkpoint against the ledgers as they are."""
    call = ("validate", tmp_path / "run/ck", "--ledgers", tmp_path / "captures", "--json")
    return inspect(*call)


async def test_what_was_recorded_since_does_not_matter(tmp_path: Path) -> None:
    manifest = await committed(tmp_path)
    data = (tmp_path / "captures/r1.lineage.jsonl").read_bytes()
    first, second = manifest["ledger_pins"]
    assert (first["name"], second["name"]) == ("r1.lineage.jsonl", "r2.lineage.jsonl")
    pinned = data[: first["size_bytes"]]
    assert len(data) > len(pinned)
    assert first["sha256"] == hashlib.sha256(pinned).hexdigest()
    publish(tmp_path)
    ran = validated(tmp_path)
    assert (ran.code, ran.items("finding")) == (0, [])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "truncated after checkpoint"),
        (lambda path: path.unlink(), "truncated after checkpoint"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b"resp-0", b"resp-5")),
            "rewritten",
        ),
    ],
)
async def test_a_ledger_truncated_after_the_checkpoint_or_rewritten_is_found(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    """L9: the ledger that was changed, and no other."""
    await committed(tmp_path)
    publish(tmp_path)
    change(tmp_path / "captures/r1.lineage.jsonl")
    ran = validated(tmp_path)
    (found,) = ran.items("finding")
    assert (ran.code, found["rule"], found["address"]) == (1, "ledger-pin", "model/one")
    assert found["location"]["file"] == "r1.lineage.jsonl"
    assert says in found["message"]


async def test_gyms_layout_has_no_place_for_pins(tmp_path: Path) -> None:
    manifest = await committed(tmp_path, "nemo-gym")
    assert "ledger_pins" not in manifest
    (tmp_path / "captures/r1.lineage.jsonl").unlink()
    assert validated(tmp_path).code == 0
