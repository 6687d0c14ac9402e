"""A run with two checkpoints, whole unless a test damages its copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ckptfmt.publish import About
from ckptfmt.store.local import LocalStore
from tests.support.checkpoints import write_small


@pytest.fixture(scope="session")
def pristine_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written once; not to be changed."""
    run = tmp_path_factory.mktemp("pristine") / "run"
    about = About(user={"commit": "abc123"}, config_digest="c0ffee", metadata={"step": 7})
    for checkpoint_id in ("ck-1", "ck-2"):
        write_small(LocalStore(run), checkpoint_id, about=about).require()
    return run


@pytest.fixture
def run(pristine_run: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(pristine_run, tmp_path / "run"))


@pytest.fixture
def checkpoint(run: Path) -> Path:
    """The first checkpoint of the copy."""
    return run / "ck-1"
