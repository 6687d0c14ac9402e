"""The control messages: typed requests and replies, and how their JSON is read and spelled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ckptfmt.identity import EpisodeId, check_name
from participant.core.errors import InvalidRequestError
from participant.core.phases import Phase
from participant.core.scope import Scope

__all__ = [
    "MAX_LISTED_BLOCKERS",
    "REQUESTS",
    "Commit",
    "CommitReply",
    "EpisodeRef",
    "Prepare",
    "PrepareReply",
    "Renew",
    "RenewReply",
    "Reply",
    "Report",
    "Request",
    "Restore",
    "RestoreReply",
    "Resume",
    "ResumeReply",
    "Retire",
    "RetireReply",
    "StatusReply",
    "decode_request",
    "encode_reply",
]

MAX_LISTED_BLOCKERS: Final = 100


class EpisodeRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An episode as it travels."""

    rollout_id: str
    attempt: int = 0

    @property
    def episode(self) -> EpisodeId:
        """The episode it names.

        Raises:
            NameRefusedError: rollout id or attempt is malformed.
        """
        return EpisodeId(self.rollout_id, self.attempt)

    @classmethod
    def of(cls, episode: EpisodeId) -> EpisodeRef:
        """The episode as it travels."""
        return cls(episode.rollout_id, episode.attempt)


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every command carries; ``deadline_ts`` is in Unix seconds."""

    checkpoint_id: str
    deadline_ts: float


class Prepare(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Close admission and wait until everything is at a boundary."""


class Renew(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Put the lease off."""


class Resume(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """End the checkpoint, whatever became of it, and open admission."""


class Retire(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stop attempts and every earlier one of their rollouts, then free their state."""

    episode_ids: tuple[EpisodeRef, ...]

    @property
    def episodes(self) -> tuple[EpisodeId, ...]:
        """The attempts, as often and in the order in which they were named."""
        return tuple(ref.episode for ref in self.episode_ids)


class Commit(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Export and store what the scope names."""

    checkpoint_dir: str
    episode_ids: tuple[EpisodeRef, ...] | None

    @property
    def scope(self) -> Scope:
        """The episodes that the controller continues."""
        return Scope.of(None if self.episode_ids is None else (r.episode for r in self.episode_ids))


class Restore(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Install what a checkpoint holds of the attempts named, under the next attempt."""

    checkpoint_dir: str
    episode_ids: tuple[EpisodeRef, ...]

    @property
    def episodes(self) -> frozenset[EpisodeId]:
        """The attempts as the checkpoint knows them."""
        return frozenset(ref.episode for ref in self.episode_ids)


REQUESTS: Final[Mapping[str, type[Request]]] = {
    "prepare": Prepare,
    "renew": Renew,
    "retire": Retire,
    "commit": Commit,
    "restore": Restore,
    "resume": Resume,
}
"""The commands that change something, by the last segment of their route."""


def decode_request(command: str, body: bytes) -> Request:
    """Read the body of a command.

    Raises:
        InvalidRequestError: it is no JSON object of the command's form.
        KeyError: there is no such command.
    """
    try:
        request = msgspec.json.decode(body, type=REQUESTS[command])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the body of {command} is malformed: {error}") from error
    _check(request)
    return request


def _check(request: Request) -> None:
    # The names check themselves, with the errors of ckptfmt, whose base is not imported here.
    try:
        check_name(request.checkpoint_id, "checkpoint id")
        named = _episodes(request)
    except Exception as error:
        raise InvalidRequestError(str(error)) from error
    if not math.isfinite(request.deadline_ts):
        raise InvalidRequestError("deadline_ts is not finite")
    if isinstance(request, Retire) and not named:
        raise InvalidRequestError("episode_ids of retire is empty")
    if isinstance(request, Restore):
        rollouts = [episode.rollout_id for episode in request.episodes]
        if len(rollouts) != len(set(rollouts)):
            raise InvalidRequestError("episode_ids names two attempts of one rollout")
    if isinstance(request, Commit | Restore) and not _is_place(request.checkpoint_dir):
        raise InvalidRequestError("checkpoint_dir is empty, over 4,096 characters, or holds a NUL")


def _episodes(request: Request) -> tuple[EpisodeId, ...]:
    if not isinstance(request, Retire | Commit | Restore):
        return ()
    named = tuple(ref.episode for ref in request.episode_ids or ())
    for episode in named:
        # What a restore installs is the next attempt, whose key may be a digit longer.
        (episode.continuation if isinstance(request, Restore) else episode).check_length()
    return named


def _is_place(checkpoint_dir: str) -> bool:
    return 0 < len(checkpoint_dir) <= 4096 and "\0" not in checkpoint_dir


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Whether everything is at a boundary, and what is not.

    ``blockers`` are capture keys, sorted, the first 100 of ``blocker_count``.
    """

    ready: bool
    blockers: tuple[str, ...]
    blocker_count: int
    counts: dict[str, int]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a command is answered with."""


class PrepareReply(Reply, frozen=True, kw_only=True):
    """``phase`` is preparing where the deadline came first."""

    phase: Phase
    report: Report


class RenewReply(Reply, frozen=True, kw_only=True):
    """The end of the lease in Unix seconds."""

    lease_expires_at: float


class RetireReply(Reply, frozen=True, kw_only=True):
    """The capture keys of the attempts named."""

    retired: tuple[str, ...]


class CommitReply(Reply, frozen=True, kw_only=True):
    """``manifest`` as it is stored; ``extras`` are what the role adds beside the others."""

    phase: Phase
    manifest: msgspec.Raw
    episode_ids: tuple[str, ...]
    extras: dict[str, Any]


class RestoreReply(Reply, frozen=True, kw_only=True):
    """``restored`` are the capture keys of the next attempts, sorted."""

    phase: Phase
    source_checkpoint_id: str
    restored: tuple[str, ...]


class ResumeReply(Reply, frozen=True, kw_only=True):
    """``idempotent`` where there was nothing to resume."""

    phase: Phase
    idempotent: bool


class StatusReply(Reply, frozen=True, kw_only=True):
    """``retiring`` counts attempts that have not stopped; ``publication`` is set if unknown."""

    kind: str
    instance: str
    phase: Phase
    checkpoint_id: str | None
    lease_expires_at: float | None
    report: Report
    retiring: int
    publication: str | None
    extras: dict[str, Any]


def encode_reply(reply: Reply) -> bytes:
    """Spell a reply: its own members, then the role's, which replace none of them."""
    members = {name: getattr(reply, name) for name in reply.__struct_fields__}
    extras = members.pop("extras", {})
    if members.get("publication", "") is None:
        del members["publication"]
    return msgspec.json.encode({**members, **{k: v for k, v in extras.items() if k not in members}})
