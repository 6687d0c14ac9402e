"""What the commits of one checkpoint have to be, before it is published.  No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from participant.coordination.calls import Failure, shown
from participant.coordination.fleet import Fleet
from participant.coordination.operations import Commits
from participant.core.phases import Phase

__all__ = ["Stored", "ownership_faults", "reply_faults", "twin_faults"]

_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Stored:
    """The capture keys of a server's records, and of the episodes that it runs as a whole."""

    episodes: tuple[str, ...]
    owned: tuple[str, ...] = ()


def reply_faults(fleet: Fleet, commits: Commits) -> dict[str, Failure]:
    """What the replies alone show, by server: one for everybody, committed, within the scope."""
    scope = {episode.capture_key for episode in commits.episodes}
    faults: dict[str, Failure] = {}
    for server in fleet.servers:
        reply = commits.replies.get(server)
        if reply is None:
            faults[server] = Failure("it has not replied to the commit")
        elif reply.phase is not Phase.COMMITTED:
            faults[server] = Failure(f"it is {reply.phase}, not {Phase.COMMITTED}")
        elif outside := sorted(set(reply.episode_ids) - scope):
            faults[server] = Failure(f"it exported what is not in scope: {_named(outside)}")
    for server in commits.replies.keys() - set(fleet.servers):
        faults[server] = Failure("it replied to the commit and was not discovered")
    return faults


def ownership_faults(stored: Mapping[str, Stored], *, allow_unowned: bool) -> dict[str, Failure]:
    """By server: episodes that have two owners, and records whose episode has none.

    A record without an owner would be restored, and nobody would ever go on with it.
    """
    owners: dict[str, str] = {}
    faults: dict[str, Failure] = {}
    for server, part in stored.items():
        twins = [key for key in part.owned if owners.setdefault(key, server) != server]
        if twins:
            text = f"it exported {_named(twins)}, and so did {owners[twins[0]]}"
            faults[server] = Failure(text)
    if allow_unowned:
        return faults
    for server, part in stored.items():
        unowned = [key for key in part.episodes if key not in owners]
        if unowned:
            faults[server] = Failure(
                f"it has records of {_named(unowned)}, which no environment exported, and no "
                "agent that owns whole episodes"
            )
    return faults


def twin_faults(staging_keys: Mapping[str, Iterable[str]]) -> dict[str, Failure]:
    """By server: staging keys that two calls of the checkpoint name."""
    seen: set[str] = set()
    faults: dict[str, Failure] = {}
    for server, keys in staging_keys.items():
        twins = []
        for key in keys:
            if key in seen:
                twins.append(key)
            seen.add(key)
        if twins:
            faults[server] = Failure(f"two calls have one staging key: {_named(twins)}")
    return faults


def _named(keys: list[str]) -> str:
    listed = ", ".join(shown(key[:200]) for key in keys[:_MAX_NAMED])
    more = len(keys) - _MAX_NAMED
    return f"{listed} and {more} more" if more > 0 else listed
