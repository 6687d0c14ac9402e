"""What came of a salvage: how much was copied, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ckptfmt.commit import Outcome
from ckptfmt.errors import CkptError, Location
from ckptfmt.manifest import CheckpointManifest

__all__ = ["Lost", "Recovery"]

# The list goes into a manifest; what is beyond is counted.
_MAX_LISTED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that could not be recovered: what is known of it, and why."""

    message: str
    location: Location

    def to_json(self) -> dict[str, Any]:
        """As it stands in the new checkpoint's ``recovered`` member."""
        known = {
            name: value
            for name in Location.__dataclass_fields__
            if (value := getattr(self.location, name)) is not None
        }
        return {"message": self.message, **known}


@dataclass(slots=True)
class Recovery:
    """What came of a salvage.

    ``outcome`` is None where no record could be read at all: nothing was written then.
    """

    records: int = 0
    lost: list[Lost] = field(default_factory=list)
    lost_count: int = 0
    outcome: Outcome[CheckpointManifest] | None = None

    def lose(self, error: CkptError) -> None:
        """Note a loss."""
        self.lost_count += 1
        if len(self.lost) < _MAX_LISTED:
            self.lost.append(Lost(error.message, error.location))
