"""Who writes: library version, interpreter, host, time."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from ckptfmt.manifest import Provenance

__all__ = ["library", "provenance"]


@cache
def library() -> str:
    """This library and its version, as manifests name it."""
    return f"ckptfmt {version('ckptfmt')}"


def provenance(user: Mapping[str, str] | None = None) -> Provenance:
    """What a manifest written now says of its origin; ``user`` is what callers want kept."""
    return Provenance(
        library=library(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        host=socket.gethostname(),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        user=dict(user or {}),
    )
