"""How long a server's event loop stalls while a participant's sessions are saved.

The sessions are encoded before the clock starts, as hooks would have them: what is measured
is the participant's own part, from the commit request to its reply.  A control run of the
same length, with nothing to do, says what the machine itself makes the loop wait.

Run it by ``python benchmarks/participant_save.py --help``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

if not __package__:
    # As a script, this file's own folder is on the path instead of the project's.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import sets
from benchmarks.measure import load_average
from ckptfmt.identity import ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.schema import ResourcesRecord
from participant.core.messages import Commit, Prepare, Resume
from participant.hooks import DefaultHooks, Export, Scope
from participant.runtime.saving import FormatStorage
from participant.runtime.shell import Components, Participant
from participant.settings import Settings

__all__ = ["Stalls", "main", "measure"]

_BEAT_S: Final = 0.001
_BUDGET_S: Final = 600.0
P999_BAR_MS: Final = 20.0
WORST_ABOVE_CONTROL_BAR_MS: Final = 50.0


@dataclass(frozen=True, slots=True)
class Stalls:
    """How much later than asked for a sleeping task was woken, in milliseconds."""

    seconds: float
    beats: int
    p999_ms: float
    worst_ms: float


class _Hooks(DefaultHooks):
    def __init__(self, records: Sequence[ResourcesRecord]) -> None:
        self._records = records

    async def export(self, scope: Scope) -> Export:
        return Export(self._records)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sessions", type=int, default=1000, help="default: 1000")
    parser.add_argument("--set", choices=sets.NAMES, default="real", help="default: real")
    parser.add_argument("--dir", type=Path, help="where to write; default: the temporary folder")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    load = load_average()
    saving, control = measure(options.set, options.sessions, options.dir)
    passed = (
        saving.p999_ms <= P999_BAR_MS
        and saving.worst_ms <= control.worst_ms + WORST_ABOVE_CONTROL_BAR_MS
    )
    if options.json:
        runs = {"saving": _members(saving), "control": _members(control)}
        print(json.dumps({"schema": "bench/participant_save/1", "passed": passed, **runs}))
        return
    print(f"{options.sessions} sessions, {options.set} set, load average {load:.2f}")
    for name, stalls in (("saving", saving), ("control", control)):
        print(
            f"{name:8} {stalls.seconds:6.2f} s  {stalls.beats:6} beats  "
            f"p99.9 {stalls.p999_ms:6.2f} ms  worst {stalls.worst_ms:6.2f} ms"
        )
    print(
        f"{'kept' if passed else 'MISSED'}: p99.9 at most {P999_BAR_MS:.0f} ms, worst at most "
        f"{WORST_ABOVE_CONTROL_BAR_MS:.0f} ms above the control run"
    )


def measure(name: str, sessions: int, folder: Path | None = None) -> tuple[Stalls, Stalls]:
    """The stalls while ``sessions`` sessions are saved, and those of a control run."""
    records = [
        ResourcesRecord(
            episode_id=session.episode_id,
            session_id=session.session_id,
            state=JsonPayload.from_value(session.state),
            owner=None,
        )
        for session in sets.build(name, sessions)
    ]
    with TemporaryDirectory(dir=folder) as place:
        return asyncio.run(_measure(records, place))


async def _measure(records: Sequence[ResourcesRecord], place: str) -> tuple[Stalls, Stalls]:
    server = Participant(
        ParticipantId("resources", "bench"),
        _Hooks(records),
        Settings(enabled=True, control_auth_token="unused"),
        Components(FormatStorage()),
    )
    deadline = time.time() + _BUDGET_S
    await server.call(Prepare(checkpoint_id="ck", deadline_ts=deadline))
    commit = Commit(
        checkpoint_id="ck", deadline_ts=deadline, checkpoint_dir=place, episode_ids=None
    )
    saving = await _beat_until(asyncio.ensure_future(server.call(commit)))
    await server.call(Resume(checkpoint_id="ck", deadline_ts=deadline))
    control = await _beat_until(asyncio.ensure_future(asyncio.sleep(saving.seconds)))
    await server.close()
    return saving, control


async def _beat_until(work: asyncio.Future[object]) -> Stalls:
    late: list[float] = []
    begin = time.perf_counter()
    while not work.done():
        asked = time.perf_counter()
        await asyncio.sleep(_BEAT_S)
        late.append((time.perf_counter() - asked - _BEAT_S) * 1000)
    await work
    late.sort()
    p999 = late[min(len(late) - 1, int(len(late) * 0.999))]
    return Stalls(time.perf_counter() - begin, len(late), p999, late[-1])


def _members(stalls: Stalls) -> dict[str, float]:
    return {
        "seconds": stalls.seconds,
        "beats": stalls.beats,
        "p999_ms": stalls.p999_ms,
        "worst_ms": stalls.worst_ms,
    }


if __name__ == "__main__":
    main()
