"""What ``ckpt-inspect`` holds of long lines and large directories, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import write_participant
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from tests.support.ledgers import entry

MIB = 1 << 20
LINE_MIB = 160

# Prints the peak of resident memory in bytes; not by getrusage, which remembers the parent's.
RUN = """
import sys
from inspector import cli
code = cli.run(sys.argv[1:])
with open("/proc/self/status") as status:
    line = next(line for line in status if line.startswith("VmHWM"))
sys.stderr.write("\\n" + str(int(line.split()[1]) * 1024))
sys.exit(int(code))
"""


def run(*arguments: str | Path) -> tuple[int, int]:
    """The bytes that a command gave, and its peak of resident memory in MiB."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)], capture_output=True, check=True
    )
    return len(ran.stdout), int(ran.stderr.rpartition(b"\n")[2]) // MIB


@pytest.fixture(scope="module")
def long_line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a record of so many MiB and a small one."""
    run = tmp_path_factory.mktemp("long")
    store, folder, owner = LocalStore(run), Folder("ck"), ParticipantId("controller", "c")
    texts = {"long": b'{"x":"%b"}' % (b"ab" * (LINE_MIB * MIB // 2)), "short": b"1"}
    records = [
        Record(episode_id=EpisodeId(name), members={"s": JsonPayload.from_json(text)})
        for name, text in texts.items()
    ]
    write_participant(store, folder, "ck", owner, records).require()
    publish_checkpoint(store, folder, "ck", [owner]).require()
    return run


@pytest.mark.parametrize(
    "call",
    [
        ("ls", "RUN"),
        ("ls", "CK", "c"),
        ("info", "CK"),
        ("validate", "CK", "--level", "quick"),
        ("get", "CK", "c/short", "--raw"),
    ],
    ids=" ".join,
)
def test_what_needs_no_long_line_does_not_read_it(call: tuple[str, ...], long_line: Path) -> None:
    """I8, I11."""
    names = {"RUN": long_line, "CK": long_line / "ck"}
    _, peak_mib = run(*(names.get(word, word) for word in call))
    assert peak_mib < LINE_MIB


@pytest.mark.parametrize(
    "call",
    [
        ("validate", "CK"),
        ("cat", "CK"),
        ("cat", "CK", "--bare"),
        ("cat", "CK", "--json"),
        ("get", "CK", "c/long", "--raw"),
        ("get", "CK", "c/long#/s", "--raw"),
        ("get", "CK", "c/long#/s/x"),
    ],
    ids=" ".join,
)
def test_a_long_line_is_held_once(call: tuple[str, ...], long_line: Path) -> None:
    """I8."""
    given, peak_mib = run(*(long_line / "ck" if word == "CK" else word for word in call))
    assert peak_mib < 1.6 * LINE_MIB
    assert given < MIB if call[0] == "validate" else given > LINE_MIB * MIB


def test_a_list_of_ledgers_does_not_grow_with_their_number(tmp_path: Path) -> None:
    peaks = []
    for rollouts in (10, 2_000):
        root = tmp_path / str(rollouts)
        root.mkdir()
        for number in range(rollouts):
            key = f"r{number}"
            line = entry(key, output_items=[{"text": "x" * 4_000}]).line()
            (root / f"{key}.tokens.jsonl").write_bytes(line + b"\n")
        for options in ((), ("--verify",)):
            peaks.append(run("ledger", root, *options)[1])
    assert max(peaks) - min(peaks) < 8
