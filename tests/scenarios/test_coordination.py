"""Stories of a controller and its servers, told in ``coordination/*.txt``.

``UPDATE_SCENARIOS=1`` writes what happens into the files; a reviewer then reads the change
of behaviour in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.fleet_stories import run_fleet_story

STORIES = sorted((Path(__file__).parent / "coordination").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path) -> None:
    told = path.read_text(encoding="utf-8")
    played = run_fleet_story(told)
    if os.environ.get("UPDATE_SCENARIOS") == "1":
        path.write_text(played, encoding="utf-8")
    assert played == told
