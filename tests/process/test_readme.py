"""What the README shows is run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.tools import ROOT, require_tool

README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The code blocks of a language; ``""`` for those without one."""
    found = re.findall(r"^```(.*?)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def test_every_line_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    require_tool("zstd")
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    (code,) = blocks("python")
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    plain = blocks("")
    assert printed in plain
    shells = [block for block in plain if block.startswith("$ ")]
    commands = [line[2:] for block in shells for line in block.splitlines() if line[:2] == "$ "]
    assert len(commands) > 7
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (command, done.stderr)
        if command.startswith("zstd"):
            assert f"$ {command}\n{done.stdout}" in shells


def test_the_demo_in_the_readme_is_of_this_version() -> None:
    """Its steps are those that the demo prints; times, tokens and sizes differ."""
    programs = [ROOT / "examples" / f"{name}.py" for name in ("demo", "round_trip")]
    steps = [
        found
        for program in programs
        for found in re.findall(r'\bstep\(\s*f?"([^"{]+)', program.read_text())
    ]
    assert len(steps) == 8
    for step in steps:
        assert f"-- {step}" in README
