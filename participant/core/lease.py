"""The lease: how long a checkpoint stays open without word from its controller."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Lease"]


@dataclass(slots=True)
class Lease:
    """A monotonic expiry in seconds, or None while nothing is leased.

    It is only ever put off, never brought forward: a short renewal that was delayed on its
    way must not cut a longer one.
    """

    expires_at: float | None = None

    def extend(self, until: float) -> float:
        """Put the expiry off to ``until``, if that is later; the expiry."""
        self.expires_at = until if self.expires_at is None else max(self.expires_at, until)
        return self.expires_at

    def end(self) -> None:
        """Nothing is leased any more."""
        self.expires_at = None

    def has_expired(self, now: float) -> bool:
        """Whether the expiry has come."""
        return self.expires_at is not None and now >= self.expires_at
