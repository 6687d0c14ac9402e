"""One target in a process of its own, under a limit of address space, with atheris round it.

python -m tests.fuzz.child TARGET [options and corpus folders of libFuzzer]
"""

from __future__ import annotations

import resource
import shlex
import sys
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(include=["ckptfmt"]):
    from tests.fuzz.targets import TARGETS

__all__: list[str] = []

CAP_BYTES: Final = 256 << 20


def _main() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    # The soft limit only: a merge starts children, which set their own.
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + CAP_BYTES, hard))
    _, target, *arguments = sys.argv
    # To merge, libFuzzer starts itself anew by a shell: its name has to be a command.
    command = shlex.join([sys.executable, "-m", "tests.fuzz.child", target])
    atheris.Setup([command, *arguments], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    _main()
