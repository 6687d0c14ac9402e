"""Coverage-guided fuzzing of all targets, one after the other; `make fuzz`.

    python -m tests.fuzz.run --seconds 600 [stream manifest exact]

Each target runs in a process of its own (``tests/fuzz/child.py``).  What is new in coverage
is added to its corpus, which is then minimised.  An input that breaks a target is kept in the
current directory (``crash-…``, ``timeout-…``), and ends the run with an error.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.fuzz.seeds import CORPUS, seeds
from tests.support.tools import ROOT

__all__: list[str] = []

MAX_INPUT_BYTES: Final = 16 << 10
TIMEOUT_S: Final = 20


def _main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the readers.")
    parser.add_argument("targets", nargs="*", default=["stream", "manifest", "exact"])
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    options = parser.parse_args()
    for target in options.targets:
        _run(target, options.seconds // len(options.targets))


def _run(target: str, seconds: int) -> None:
    print(f"fuzzing {target} for {seconds} s", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        start, found, small = (Path(scratch) / name for name in ("start", "found", "small"))
        for folder in (start, found, small):
            folder.mkdir()
        for number, data in enumerate(seeds(target)):
            (start / f"{number:04}").write_bytes(data)
        own = CORPUS / target
        own.mkdir(parents=True, exist_ok=True)
        _child(target, f"-max_total_time={seconds}", str(found), str(own), str(start))
        # What the seeds reach already is not kept once more: they come first and stay out.
        _child(target, "-set_cover_merge=1", str(small), str(start), str(own), str(found))
        known = {path.read_bytes() for path in start.iterdir()}
        shutil.rmtree(own)
        own.mkdir()
        for path in small.iterdir():
            if path.read_bytes() not in known:
                shutil.copy(path, own / path.name)
    print(f"the corpus of {target} has {len(list(own.iterdir()))} inputs", flush=True)


def _child(target: str, *arguments: str) -> None:
    settings = [f"-max_len={MAX_INPUT_BYTES}", f"-timeout={TIMEOUT_S}", "-verbosity=0"]
    settings += ["-print_final_stats=1", "-rss_limit_mb=2048"]
    command = [sys.executable, "-m", "tests.fuzz.child", target, *settings, *arguments]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    _main()
