"""Memory of streams, in processes of their own: peaks, and an address-space limit."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from ckptfmt import wire
from ckptfmt.stream.framing import PREFIX_BYTES, BlockHeader, encode_piece
from tests.support.streams import UUID, build, parts_of, records

MIB = 1 << 20

# Prints how many bytes the peak of resident memory rose while `work` ran.
PEAK = """
import json, sys, threading
from ckptfmt.stream import FileSource, StreamReader, StreamWriter, salvage

def resident(field):
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024

def measure(work):
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    before = resident("VmRSS")
    work()
    print(json.dumps(resident("VmHWM") - before))
"""

WRITE = """
text = b"".join(b'{"step":%d,"loss":%d.%d},' % (n, n * n, n) for n in range(1000))
LINE = text * ((100 << 20) // len(text))

def work():
    with open(sys.argv[1], "wb") as sink, StreamWriter(
        sink, kind="model", instance="a", checkpoint_id="b"
    ) as writer:
        writer.add("a", (b"{}",))
        writer.add("b", (b'{"state":[', LINE, b"0]}"))
        writer.add("c", (b"{}",))
        for number in range(60):
            writer.add(f"d{number}", (LINE[: 2 << 20],))
        writer.close()

measure(work)
"""

READ = """
def work():
    with StreamReader(FileSource.open(sys.argv[1])) as reader:
        for stored in reader.lines():
            del stored

measure(work)
"""

SALVAGE = """
def work():
    for item in salvage(FileSource.open(sys.argv[1])):
        del item

measure(work)
"""

# Reads a file in every way under a limit of address space; prints the code of each outcome.
LIMITED = """
import json, resource, sys
from ckptfmt.errors import DataError
from ckptfmt.stream import FileSource, StreamReader, salvage

list(StreamReader(FileSource.open(sys.argv[1])).lines())
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
codes = []
for path in sys.argv[3:]:
    with StreamReader(FileSource.open(path)) as reader:
        for read in (lambda: list(reader.lines()), lambda: reader.get("001-key")):
            try:
                read()
                codes.append("whole")
            except DataError as error:
                codes.append(error.code)
    for _ in salvage(FileSource.open(path)):
        pass
print(json.dumps(codes))
"""


def _child(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A stream with a record of 100 MB, and how much memory its writer took."""
    path = tmp_path_factory.mktemp("large") / "records.jsonl.zst"
    return path, json.loads(_child(PEAK + WRITE, str(path)))


def test_a_writer_needs_64_mib_and_three_lines_at_most(large: tuple[Path, int]) -> None:
    """F4; the caller's own copy of the line is counted as one of the three."""
    _, peak = large
    assert peak <= 64 * MIB + 2 * 100 * MIB


def test_a_streaming_reader_needs_64_mib_and_one_line_at_most(large: tuple[Path, int]) -> None:
    """F4."""
    path, _ = large
    assert json.loads(_child(PEAK + READ, str(path))) <= 64 * MIB + 100 * MIB


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two streams of several blocks; the second has eight times the records of the first."""
    folder = tmp_path_factory.mktemp("long")
    paths = []
    for count in (60_000, 480_000):
        data, _ = build({f"{n}": b'{"n":%d,"text":"%s"}' % (n, b"ab" * 40) for n in range(count)})
        paths.append(folder / f"{count}.zst")
        paths[-1].write_bytes(data)
    return paths


@pytest.mark.parametrize("program", [READ, SALVAGE], ids=["lines", "salvage"])
def test_memory_does_not_grow_with_the_number_of_records(program: str, long: list[Path]) -> None:
    """F46."""
    small, big = (json.loads(_child(PEAK + program, str(path))) for path in long)
    assert big <= small + 8 * MIB


def _bomb() -> bytes:
    """A block that states the small size that its lines have, before 256 MiB of zeros."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(256 * MIB))
    lying = bytearray(frame)
    # The frame header: content size in four bytes at 5, after the descriptor.
    assert lying[4] >> 6 == 2
    lying[6:10] = (1000).to_bytes(4, "little")
    header = BlockHeader(UUID, 0, 0, 1000, len(lying), (999,), (0,))
    return header.encode() + bytes(lying)


def _claims() -> dict[str, bytes]:
    """Blocks and pieces that claim much, each with a right crc32c."""
    single = BlockHeader(UUID, 0, 0, 2**30 + 1, 2**20, (2**30,), (0,))
    many = BlockHeader(UUID, 0, 0, 2**24, 2**10, (2**24 - 1,), (0,))
    noise = bytes(1000)
    magic = wire.SKIPPABLE_MAGIC.to_bytes(4, "little")
    return {
        "2**60 bytes of lines": replace(single, lengths=(2**60,), raw_bytes=2**60 + 1).encode(),
        "2**60 bytes stored": replace(single, stored_bytes=2**60).encode(),
        "1 GiB, cut": single.encode() + noise,
        "1 GiB, no frame": single.encode() + bytes(2**20),
        "16 MiB, no frame": many.encode() + bytes(2**10),
        "a bomb": _bomb(),
        "a piece of 4 GiB": magic + b"\xff\xff\xff\xff" + wire.TAG_INDEX + noise,
        "a directory of 2**32 pages": encode_piece(
            wire.TAG_INDEX, UUID + bytes(56) + b"\xff" * 8 + noise
        ),
        "a page of 4 GiB": encode_piece(
            wire.TAG_PAGE, UUID + bytes(4) + b"\x01\0\0\0\xff\xff\xff\xff" + noise
        ),
        "digests of 2**32 records": encode_piece(
            wire.TAG_DIGESTS, UUID + bytes(8) + b"\xff\xff\xff\xff" + noise
        ),
    }


def test_lying_lengths_with_a_right_crc_cost_no_memory(tmp_path: Path) -> None:
    """F29 and F30: each is refused with 96 MiB of address space left."""
    data, _ = build(records(3))
    start = parts_of(data)[0]
    paths = []
    for name, claim in _claims().items():
        path = tmp_path / f"{name.replace(' ', '_').replace('*', '')}.zst"
        # What follows is the rest of a whole stream, so that END is where it belongs.
        path.write_bytes(data[: start.end] + claim + data[start.end :])
        paths.append(str(path))
    (tmp_path / "whole.zst").write_bytes(data)
    codes = json.loads(_child(LIMITED, str(tmp_path / "whole.zst"), str(96 * MIB), *paths))
    assert len(codes) == 2 * len(paths)
    assert set(codes) <= {"corrupt", "torn"}


def test_the_claims_are_well_formed_pieces() -> None:
    """Or the test above would only prove that crc32c is checked."""
    assert len(_bomb()) < 64 << 10
    for name in ("1 GiB, cut", "1 GiB, no frame", "16 MiB, no frame"):
        claim = _claims()[name]
        size = int.from_bytes(claim[4:8], "little") + PREFIX_BYTES - 4
        assert BlockHeader.decode(claim[:size]).raw_bytes >= 2**24
