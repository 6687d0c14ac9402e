"""How a controller drives the participants of a job through checkpoints and restores.

Functions without a state of their own.  They take a :class:`Control` (transport, clock)
and the :class:`Fleet` that :func:`discover` found; each may be repeated with the same
checkpoint id.
"""

from __future__ import annotations

from participant.coordination.discovery import discover
from participant.coordination.fleet import Control, Fleet, Member
from participant.coordination.operations import (
    CommitReply,
    Commits,
    Prepared,
    commit,
    prepare,
    renew,
    resume,
    retire,
)
from participant.coordination.publish import (
    Published,
    Run,
    Source,
    abandon,
    find_source,
    prepare_store,
    publish,
)
from participant.coordination.renewing import Lease, renewing
from participant.coordination.restoring import restore
from participant.coordination.taking import Patience, checkpoint

__all__ = [
    "CommitReply",
    "Commits",
    "Control",
    "Fleet",
    "Lease",
    "Member",
    "Patience",
    "Prepared",
    "Published",
    "Run",
    "Source",
    "abandon",
    "checkpoint",
    "commit",
    "discover",
    "find_source",
    "prepare",
    "prepare_store",
    "publish",
    "renew",
    "renewing",
    "restore",
    "resume",
    "retire",
]
