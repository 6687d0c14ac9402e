"""The composition root: makes one server a participant, or does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckptfmt.identity import ParticipantId
from participant.settings import Settings

if TYPE_CHECKING:
    from participant.hooks import ParticipantHooks
    from participant.runtime.shell import Components, Participant

__all__ = ["install"]


def install(
    app: Any,
    hooks: ParticipantHooks,
    settings: Settings,
    *,
    kind: str,
    instance: str,
    components: Components | None = None,
) -> Participant | None:
    """Make ``app`` (Starlette or FastAPI, not started yet) a participant.

    Returns None, having imported and changed nothing, where checkpointing is disabled.
    ``components`` are by default the storage of the settings' layout and the system clock.

    Raises:
        NameRefusedError: kind or instance may not stand as a path segment.
        RuntimeError: the app has started, or has a participant already; nothing was changed.
    """
    if not settings.enabled:
        return None
    from participant.http.mount import check_mountable, mount
    from participant.runtime.saving import storage_of
    from participant.runtime.shell import Components, Participant

    check_mountable(app)
    used = components or Components(storage=storage_of(settings.storage_layout))
    participant = Participant(ParticipantId(kind, instance), hooks, settings, used)
    mount(app, participant, hooks)
    return participant
