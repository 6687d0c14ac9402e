"""Write checkpoints of agent rollouts, read them back byte for byte, damage one, find it.

Run it by ``make demo``.  Everything happens in a directory that ``--keep`` leaves there.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sets import rollouts
from ckptfmt.checkpoint import open_checkpoint, write_checkpoint
from ckptfmt.commit import NotCommitted
from ckptfmt.errors import CorruptError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import About
from ckptfmt.schema import AgentRecord, ResourcesRecord

AGENT = ParticipantId("agent", "agent-0")
RESOURCES = ParticipantId("resources", "tools-0")
_READER = Path(__file__).with_name("digest_payloads.py")


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", metavar="DIR", type=Path, help="work there, and leave it")
    keep = parser.parse_args().keep
    if keep is not None:
        keep.mkdir(parents=True)
        _demo(keep)
        return
    with tempfile.TemporaryDirectory(prefix="ckptfmt-demo-") as scratch:
        _demo(Path(scratch))


def _demo(run: Path) -> None:
    texts = rollouts()
    sessions = dict(enumerate(texts))
    print(f"{len(texts)} rollouts, {_mb(sum(map(len, texts)))} of JSON, in {run}\n")
    for number in (1, 2):
        _write(run, f"step-{number}", sessions, attempt=number - 1)
        sessions = {key: text for key, text in sessions.items() if key % 5}
    _again(run, sessions)
    _read_back(run / "step-1", texts)
    _inspect("ls", str(run))
    _damage(run, run / "step-2")
    _inspect("validate", "--level", "deep", str(run / "step-1"))


def _write(run: Path, checkpoint_id: str, sessions: dict[int, bytes], attempt: int) -> None:
    with _step(f"write {checkpoint_id}: {len(sessions)} sessions of two participants"):
        outcome = write_checkpoint(run, checkpoint_id, _records(sessions, attempt), _ABOUT)
        outcome.require()
    stored = sum(file.stat().st_size for file in (run / checkpoint_id).rglob("*.zst"))
    print(f"    {_mb(stored)} on disk\n")


_ABOUT = About(user={"job": "demo"}, metadata={"note": "real rollouts"})


def _records(
    sessions: dict[int, bytes], attempt: int
) -> dict[ParticipantId, list[AgentRecord | ResourcesRecord]]:
    """Each rollout as an agent's session (JSON bytes) and a state that JSON cannot spell."""
    agents: list[AgentRecord | ResourcesRecord] = []
    resources: list[AgentRecord | ResourcesRecord] = []
    for number, text in sessions.items():
        episode = EpisodeId(f"rollout-{number}", attempt)
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


def _again(run: Path, sessions: dict[int, bytes]) -> None:
    with _step("write step-2 again with other content: it is refused"):
        outcome = write_checkpoint(run, "step-2", _records(sessions, 9), _ABOUT)
    assert isinstance(outcome, NotCommitted)
    print(f"    {outcome.reason}\n")


def _read_back(checkpoint: Path, texts: list[bytes]) -> None:
    with _step("read step-1 in a fresh process, byte for byte"):
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
    print(f"    all {len(texts)} rollouts are the same bytes; states the same values and types\n")


def _damage(run: Path, checkpoint: Path) -> None:
    data = next((checkpoint / str(AGENT)).glob("*.zst"))
    content = bytearray(data.read_bytes())
    place = len(content) // 3
    content[place] ^= 0x10
    data.write_bytes(content)
    print(f"-- flip one bit of {data.relative_to(run)}, at byte {place:,}, and restore it")
    try:
        open_checkpoint(checkpoint).participant(AGENT).load()
    except CorruptError as error:
        print(f"    refused: {error}\n")
    else:
        raise AssertionError("the damage was not found")
    _inspect("validate", str(checkpoint), expected=1)
    _inspect("recover", str(checkpoint), "-o", str(run / "step-2-recovered"), expected=3)
    shutil.rmtree(run / "step-2-recovered")


def _inspect(*arguments: str, expected: int = 0) -> None:
    print(f"$ ckpt-inspect {' '.join(arguments)}", flush=True)
    tool = Path(sys.executable).with_name("ckpt-inspect")
    status = subprocess.run([str(tool), *arguments], check=False).returncode
    print(f"(exit status {status})\n", flush=True)
    assert status == expected, f"expected exit status {expected}"


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"-- {what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"    {time.perf_counter() - start:.2f} s")


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
