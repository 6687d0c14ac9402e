"""A gated call as the code behind admission sees it: the hooks, and the server's own handlers."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckptfmt.identity import EpisodeId
from participant.runtime.execution import Execution

if TYPE_CHECKING:
    from participant.hooks import GatedRoute

__all__ = ["ServedCall", "current_call"]


@dataclass(slots=True, eq=False)
class ServedCall:
    """A call that was admitted.

    ``scope`` is the ASGI scope; once the server's own middleware has seen the call, what
    that put there (``session``, say) is in it.  ``has_failed`` once the server's code has raised,
    also in the middle of a reply that began well.
    """

    route: GatedRoute
    episode: EpisodeId | None
    execution: Execution
    scope: Mapping[str, Any]
    has_failed: bool = False


current_call: ContextVar[ServedCall | None] = ContextVar("current_call", default=None)
"""The gated call that is being served; None in every other request."""
