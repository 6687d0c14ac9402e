"""Write a checkpoint of agent rollouts, read it back byte for byte, damage it, find it.

``make demo`` shows it after the job; ``python -m examples.round_trip`` by itself.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.sets import rollouts
from ckptfmt.checkpoint import open_checkpoint, write_checkpoint
from ckptfmt.errors import CorruptError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import About
from ckptfmt.schema import AgentRecord, ResourcesRecord
from examples.showing import inspect, megabytes, say, step

__all__ = ["round_trip"]

AGENT: Final = ParticipantId("agent", "agent-0")
RESOURCES: Final = ParticipantId("resources", "tools-0")
_READER: Final = Path(__file__).with_name("digest_payloads.py")
_ABOUT: Final = About(user={"job": "demo"}, metadata={"note": "whole rollouts"})


def round_trip(run: Path) -> None:
    """Everything, in the run directory ``run``."""
    texts = rollouts()
    with step(f"write {len(texts)} whole rollouts, {megabytes(sum(map(len, texts)))} of JSON"):
        write_checkpoint(run, "whole", _records(texts), _ABOUT).require()
    stored = sum(file.stat().st_size for file in (run / "whole").rglob("*.zst"))
    say(f"{megabytes(stored)} on disk")
    _read_back(run / "whole", texts)
    _damage(run)


def _records(texts: list[bytes]) -> dict[ParticipantId, list[AgentRecord | ResourcesRecord]]:
    """Each rollout as an agent's session (JSON bytes) and a state that JSON cannot spell."""
    agents: list[AgentRecord | ResourcesRecord] = []
    resources: list[AgentRecord | ResourcesRecord] = []
    for number, text in enumerate(texts):
        episode = EpisodeId(f"rollout-{number}")
        agents.append(
            AgentRecord(
                episode_id=episode,
                session_key="main",
                session=JsonPayload.from_json(text),
                boundary=None,
                episode=None,
            )
        )
        resources.append(
            ResourcesRecord(
                episode_id=episode,
                session_id=f"session-{number}",
                state=JsonPayload.from_value(_state(number)),
                owner=None,
            )
        )
    return {AGENT: agents, RESOURCES: resources}


def _state(number: int) -> dict[object, object]:
    return {
        "random": (3, tuple(range(number, number + 8)), None),
        "price": [1.0, float("nan"), -0.0, float("inf")],
        "big": 2**80 + number,
        "by_id": {number: "a dict with integer keys"},
    }


def _read_back(checkpoint: Path, texts: list[bytes]) -> None:
    with step("read them in a fresh process, byte for byte"):
        child = subprocess.run(
            [sys.executable, str(_READER), str(checkpoint)],
            check=True,
            capture_output=True,
            text=True,
        )
    expected = sorted(hashlib.sha256(text).hexdigest() for text in texts)
    assert sorted(child.stdout.split()) == expected, "the rollouts differ"
    for record in open_checkpoint(checkpoint).participant(RESOURCES).load():
        assert isinstance(record, ResourcesRecord)
        assert record.state is not None
        number = int(record.session_id.removeprefix("session-"))
        assert repr(record.state.value()) == repr(_state(number)), "the states differ"
    say(f"all {len(texts)} rollouts are the same bytes; states the same values and types")


def _damage(run: Path) -> None:
    damaged = run / "damaged"
    shutil.copytree(run / "whole", damaged)
    data = next((damaged / str(AGENT)).glob("*.zst"))
    content = bytearray(data.read_bytes())
    place = len(content) // 3
    content[place] ^= 0x10
    data.write_bytes(content)
    with step(f"flip one bit of a copy, at byte {place:,} of {len(content):,}, and load it"):
        try:
            open_checkpoint(damaged).participant(AGENT).load()
        except CorruptError as error:
            found = error
        else:
            raise AssertionError("the damage was not found")
    say(f"refused: {found}")
    inspect("validate", str(damaged), expected=1)
    shutil.rmtree(damaged)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ckptfmt-demo-") as scratch:
        round_trip(Path(scratch))
