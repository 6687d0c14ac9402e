"""Which episode a run's body and a URL name."""

from __future__ import annotations

from typing import Any

import pytest

from ckptfmt.identity import EpisodeId
from participant.attribution import episode_of_run, prefixed
from participant.core.errors import InvalidRolloutIdError

RUNS: list[tuple[dict[str, Any], EpisodeId | None]] = [
    ({"_ng_rollout_id": "a-a2", "_ng_task_index": 1, "_ng_rollout_index": 2}, EpisodeId("a", 2)),
    ({"_ng_task_index": 4, "_ng_rollout_index": 2}, EpisodeId("4-2")),
    ({"_ng_task_index": 4, "_ng_rollout_index": 2, "_ng_attempt_index": 0}, EpisodeId("4-2")),
    ({"_ng_task_index": 4, "_ng_rollout_index": 2, "_ng_attempt_index": 3}, EpisodeId("4-2", 3)),
    ({"_ng_task_index": 4}, None),
    ({}, None),
]


@pytest.mark.parametrize(("body", "episode"), RUNS)
def test_the_body_of_a_run_names_its_episode(
    body: dict[str, Any], episode: EpisodeId | None
) -> None:
    assert episode_of_run(body) == episode


REFUSED: list[dict[str, Any]] = [
    {"_ng_rollout_id": ""},
    {"_ng_rollout_id": 7},
    {"_ng_rollout_id": "a-a1-a2"},
    {"_ng_rollout_id": "a\n"},
    {"_ng_rollout_id": "a" * 201},
    {"_ng_task_index": "4", "_ng_rollout_index": 2},
    {"_ng_task_index": -4, "_ng_rollout_index": 2},
    {"_ng_task_index": True, "_ng_rollout_index": 2},
    {"_ng_task_index": 4, "_ng_rollout_index": 2, "_ng_attempt_index": 1.0},
]


@pytest.mark.parametrize("body", REFUSED)
def test_a_malformed_id_in_a_body_is_refused(body: dict[str, Any]) -> None:
    """P2, P5: never repaired."""
    with pytest.raises(InvalidRolloutIdError):
        episode_of_run(body)


URLS = [
    ("http://h:1/v1/responses?x=1", "http://h:1/ng-rollout/r-a2/v1/responses?x=1"),
    ("http://h:1", "http://h:1/ng-rollout/r-a2/"),
    ("http://h:1/ng-rollout/other/x", "http://h:1/ng-rollout/other/x"),
    ("/seed_session", "/ng-rollout/r-a2/seed_session"),
]


@pytest.mark.parametrize(("url", "expected"), URLS)
def test_a_url_gets_the_prefix_once(url: str, expected: str) -> None:
    """P7."""
    assert prefixed(url, EpisodeId("r", 2)) == expected
    assert prefixed(expected, EpisodeId("r", 2)) == expected
    assert prefixed(url, None) == url
