"""To which episode a call belongs: the path prefix, and the body of a run.

The prefix is ``/ng-rollout/<capture_key>/…``.  What is malformed is refused, never
repaired: a key that was rewritten cannot be found again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from ckptfmt.identity import EpisodeId
from participant.core.errors import InvalidRolloutIdError

__all__ = [
    "PREFIX",
    "current_episode",
    "episode_of_key",
    "episode_of_run",
    "prefixed",
    "split_prefix",
]

PREFIX: Final = "/ng-rollout/"

current_episode: ContextVar[EpisodeId | None] = ContextVar("current_episode", default=None)
"""The episode that the request being served belongs to."""


def episode_of_key(key: str) -> EpisodeId:
    """The episode of a capture key that fits a file name.

    Raises:
        InvalidRolloutIdError: it is malformed, reserved or over 200 bytes.
    """
    try:
        return EpisodeId.from_capture_key(key).check_length()
    except Exception as error:
        raise InvalidRolloutIdError(str(error)) from error


def split_prefix(path: str) -> tuple[EpisodeId, str] | None:
    """The episode that a path names and the path behind the prefix; None without a prefix.

    Raises:
        InvalidRolloutIdError: the key is malformed.
    """
    if not path.startswith(PREFIX):
        return None
    key, slash, rest = path.removeprefix(PREFIX).partition("/")
    return episode_of_key(key), slash + rest or "/"


def prefixed(url: str, episode: EpisodeId | None) -> str:
    """``url`` with its path under the prefix of ``episode``, unless it has one already."""
    parts = urlsplit(url)
    if episode is None or parts.path.startswith(PREFIX):
        return url
    path = parts.path if parts.path.startswith("/") else "/" + parts.path
    return urlunsplit(parts._replace(path=f"{PREFIX}{episode.capture_key}{path}"))


def episode_of_run(body: Mapping[str, Any]) -> EpisodeId | None:
    """The episode that the body of a run names.

    ``_ng_rollout_id`` (a capture key) wins; else task and rollout index make the id, with
    the attempt index.  None if the body names none.

    Raises:
        InvalidRolloutIdError: what it names is malformed.
    """
    if (explicit := body.get("_ng_rollout_id")) is not None:
        if not isinstance(explicit, str):
            raise InvalidRolloutIdError("_ng_rollout_id is not a string")
        return episode_of_key(explicit)
    indices = [body.get("_ng_task_index"), body.get("_ng_rollout_index")]
    if None in indices:
        return None
    attempt = body.get("_ng_attempt_index") or 0
    for index in (*indices, attempt):
        if type(index) is not int or index < 0:
            raise InvalidRolloutIdError(f"{index!a} is no index of a task, rollout or attempt")
    key = f"{indices[0]}-{indices[1]}"
    return episode_of_key(f"{key}-a{attempt}" if attempt else key)
