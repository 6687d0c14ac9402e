"""What a test needs from outside the project, and what happens where it is missing.

A missing tool, module or data folder skips the test that asks for it.  Where
``CKPTFMT_REQUIRE_TOOLS=1`` is set, as in ``.ci/run``, a missing tool or module
fails it instead: a gate that skips proves nothing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["ROOT", "require_folder", "require_module", "require_tool", "shared_data"]

ROOT = Path(__file__).resolve().parents[2]


def require_tool(name: str) -> str:
    """The path of the program ``name``, or the end of the test that asks."""
    path = shutil.which(name)
    if path is None:
        _missing(f"the program {name} is not installed")
    return path


def require_module(name: str) -> None:
    """Return if ``name`` can be imported, otherwise end the test that asks."""
    if importlib.util.find_spec(name) is None:
        _missing(f"the module {name} is not installed")


def require_folder(path: Path, made_by: str) -> None:
    """Return if the folder is there, otherwise end the test that asks."""
    if not path.is_dir():
        _missing(f"{path.name} is not there: {made_by}")


def shared_data() -> Path:
    """The folder of real rollouts and parsing cases, or a skip where it is absent.

    It is no part of the project: ``../shared/data`` from the root, or
    ``$CKPTFMT_SHARED/data``.
    """
    folder = Path(os.environ.get("CKPTFMT_SHARED") or ROOT.parent / "shared") / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside the project")
    return folder


def _missing(what: str) -> NoReturn:
    if os.environ.get("CKPTFMT_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{what}, and CKPTFMT_REQUIRE_TOOLS=1 asks for it")
    pytest.skip(what)
