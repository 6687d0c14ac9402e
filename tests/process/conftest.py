"""The uninterrupted job that interrupted ones are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.job_lives import Lives, small_tasks


@pytest.fixture(scope="session")
def whole_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job of six episodes that nobody disturbed."""
    job = Lives(tmp_path_factory.mktemp("whole"), small_tasks(6))
    with job.life() as processes:
        job.play(processes)
    assert len(job.finished) == 6
    return job.folder
