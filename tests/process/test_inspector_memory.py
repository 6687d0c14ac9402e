"""What ``ckpt-inspect`` holds of long lines and large directories, in processes of their own."""

from __future__ import annotations

import shutil
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
from tests.support.damage import data_file, flip
from tests.support.ledgers import entry

MIB = 1 << 20
# A line of 500 MB, and what nothing may need for it.
LINE_MIB = 480
BAR_MIB = 286

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


def run(*arguments: str | Path, code: int = 0) -> tuple[int, int]:
    """The bytes that a command gave, and its peak of resident memory in MiB."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)], capture_output=True, check=False
    )
    assert ran.returncode == code, ran.stderr
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
    assert peak_mib < BAR_MIB


@pytest.mark.parametrize(
    "call",
    [
        ("validate", "CK"),
        ("validate", "CK", "--level", "deep"),
        ("cat", "CK"),
        ("cat", "CK", "c/long", "--bare"),
        ("cat", "CK", "--json"),
        ("cat", "CK", "--format", "text"),
        ("get", "CK", "c/long", "--raw"),
        ("get", "CK", "c/long#/s/x", "--raw"),
    ],
    ids=" ".join,
)
def test_a_long_line_is_never_held(call: tuple[str, ...], long_line: Path) -> None:
    """I8."""
    words = (long_line / "ck" if word == "CK" else word for word in call)
    given, peak_mib = run(*words, code=3 if "deep" in call else 0)
    assert peak_mib < BAR_MIB
    assert given < MIB if call[0] == "validate" else given > LINE_MIB * MIB


def test_a_long_line_that_is_damaged_is_never_held(long_line: Path, tmp_path: Path) -> None:
    """I8, I25: the others are still given."""
    bad = Path(shutil.copytree(long_line, tmp_path / "run")) / "ck"
    file = data_file(bad, "controller/c")
    flip(file, file.stat().st_size // 2)
    for call, code in ((("validate", bad), 1), (("cat", bad), 3), (("cat", bad, "c/short"), 0)):
        given, peak_mib = run(*call, code=code)
        assert peak_mib < BAR_MIB
        assert given < MIB


def test_a_value_that_is_not_given_as_it_is_stored_is_held_once(long_line: Path) -> None:
    given, peak_mib = run("get", long_line / "ck", "c/long#/s/x")
    assert given > LINE_MIB * MIB
    assert peak_mib < 1.6 * LINE_MIB


def test_nothing_grows_with_the_number_of_records(tmp_path: Path) -> None:
    """I9: of a short stream and of one of a hundred megabytes the peaks are the same."""
    peaks: dict[tuple[str, ...], list[int]] = {}
    for count in (3_000, 30_000):
        records = (
            Record(
                episode_id=EpisodeId(f"r{number:06}"),
                members={"s": JsonPayload.from_json(b'"%b"' % (b"ab" * 2_000))},
            )
            for number in range(count)
        )
        run_folder = tmp_path / str(count)
        store, folder, owner = (
            LocalStore(run_folder),
            Folder("ck"),
            ParticipantId("controller", "c"),
        )
        write_participant(store, folder, "ck", owner, records).require()
        publish_checkpoint(store, folder, "ck", [owner]).require()
        for call in (("cat",), ("validate",), ("validate", "--level", "deep"), ("ls", "c")):
            command, *options = call
            peak = run(command, run_folder / "ck", *options)[1]
            peaks.setdefault(call, []).append(peak)
    assert {call: peak for call, peak in peaks.items() if peak[1] > peak[0] + 16} == {}


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
