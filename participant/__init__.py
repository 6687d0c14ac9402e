"""The runtime that a server embeds to take part in checkpoints, and their coordination."""

from __future__ import annotations

from ckptfmt.identity import EpisodeId, ParticipantId
from participant.install import install
from participant.settings import Settings

__all__ = ["EpisodeId", "ParticipantId", "Settings", "install"]
