"""Every hostile case gives the code in its ``expected.json``, and takes no memory to speak of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckptfmt.errors import CkptError
from ckptfmt.layout import Folder
from ckptfmt.rules import Severity
from ckptfmt.store.local import LocalStore
from ckptfmt.verify import Level, verify
from tests.support.tools import ROOT
from tests.vectors import mini_reader, our_reader
from tests.vectors.cases import HOSTILE, case_folders
from tests.vectors.mini_reader import RefusedError

CASES = case_folders(HOSTILE)
CHECKPOINTS = [folder for folder in CASES if (folder / "checkpoint").is_dir()]
CAP_BYTES = 96 << 20

# Reads every case under a limit of address space, the packages imported before.
LIMITED = """
import json, resource, sys
from pathlib import Path
from ckptfmt.errors import CkptError
from tests.vectors import our_reader
from tests.vectors.cases import HOSTILE, VECTORS, case_folders

our_reader.read(VECTORS / "one-block")
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
codes = {}
for folder in case_folders(HOSTILE):
    try:
        our_reader.read(folder)
    except CkptError as error:
        codes[folder.name] = error.code
print(json.dumps(codes))
"""


def expected(folder: Path) -> str:
    code: str = json.loads((folder / "expected.json").read_text())["code"]
    return code


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_mini_reader_refuses_every_hostile_case(folder: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        mini_reader.read(folder)
    assert refused.value.args[0] == expected(folder)


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_packages_refuse_every_hostile_case(folder: Path) -> None:
    with pytest.raises(CkptError) as refused:
        our_reader.read(folder)
    assert refused.value.code == expected(folder)


@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda folder: folder.name)
def test_verification_finds_every_hostile_checkpoint(folder: Path) -> None:
    found = [
        finding.code
        for finding in verify(LocalStore(folder / "checkpoint"), Folder(), level=Level.DEEP)
        if finding.rule.severity is Severity.ERROR
    ]
    assert found[0] == expected(folder)


def test_no_hostile_case_takes_memory_beyond_the_cap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(CAP_BYTES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {folder.name: expected(folder) for folder in CASES}
