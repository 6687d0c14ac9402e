"""Breaks the packages on purpose, one rule at a time, and expects a named test to notice.

``make mutants`` (``ARGS="retire"`` for those whose name has that word).  Exit 1 if a mutant
lives, if its text is gone, or if a named test fails without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PATIENCE_S = 60
"""A test that hangs has noticed, too.  All of them together have a minute each."""

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants.every import MUTANTS  # noqa: E402
from tests.mutants.participant import Mutant  # noqa: E402


def tests_pass(nodes: set[str], source: Path | None) -> bool:
    """Run tests, with ``source`` shadowing the installed packages; whether all passed."""
    files = sorted({node.split("::")[0] for node in nodes})
    names = " or ".join(_word(node.split("::")[1]) for node in sorted(nodes))
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "ci", "PYTHONDONTWRITEBYTECODE": "1"}
    # pytest puts these in front of everything: the broken package hides the whole one.
    places = f"pythonpath={source or ''} {ROOT}"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-o", places, *files]
    try:
        run = subprocess.run(
            [*command, "-k", names],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S * len(nodes),
        )
    except subprocess.TimeoutExpired:
        return False
    # 5 says that no test was selected: a name that is gone must not count as a kill.
    if run.returncode not in (0, 1):
        sys.exit(f"{names}: pytest ended with {run.returncode}\n{run.stdout.decode()[-2000:]}")
    return run.returncode == 0


def _word(name: str) -> str:
    # A bracket tells one case of a parametrised test; -k takes parts of names.
    return name.replace("[", " and ").replace("]", "")


def lives(mutant: Mutant, folder: Path) -> bool:
    """Whether the named test passes although the rule is broken."""
    shutil.rmtree(folder / "participant", ignore_errors=True)
    shutil.copytree(
        ROOT / "participant", folder / "participant", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = folder / "participant" / mutant.path
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        sys.exit(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.path}")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return tests_pass({mutant.test}, folder)


def main(words: list[str]) -> int:
    """Try the mutants whose name has every word; the exit code."""
    chosen = [m for m in MUTANTS if all(word in m.name for word in words)]
    if not tests_pass({mutant.test for mutant in chosen}, None):
        sys.exit("the named tests fail without any mutant")
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        for mutant in chosen:
            survived = lives(mutant, Path(folder))
            print(f"{'LIVES' if survived else 'killed'}  {mutant.name}", flush=True)
            survivors += [mutant.name] * survived
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
