"""The settings of a participant: values that can be printed, compared and read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import msgspec

from participant.core.errors import InvalidRequestError

if TYPE_CHECKING:
    from participant.core.state import Limits

__all__ = ["PoolSettings", "Settings"]

# What never ends cannot be told in a reply, and a lease of it would outlast every controller.
_LONGEST_S: Final = 1e9
_Positive = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]
_Count = Annotated[int, msgspec.Meta(ge=0)]

_HIDDEN: Final = "***"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block ``checkpoint`` of a server's configuration.

    ``control_auth_token`` is the bearer of the control routes and never shown.  Times are in
    seconds; ``max_body_bytes`` bounds a control request.  ``allowed_checkpoint_roots`` are
    the directories or URLs below which checkpoints may lie; None permits all.

    Raises:
        ValueError: enabled without a token, or a token that no header can carry.
    """

    enabled: bool = False
    control_auth_token: str | None = None
    lease_grace_seconds: _Positive = 600.0
    retire_fence_seconds: _Seconds = 60.0
    max_budget_seconds: _Positive = 3600.0
    max_waiting: _Count = 10_000
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1)] = 16 * 1024 * 1024
    storage_layout: Literal["ckptfmt", "nemo-gym"] = "ckptfmt"
    allowed_checkpoint_roots: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        token = self.control_auth_token
        if self.enabled and not token:
            raise ValueError("checkpoint.enabled needs checkpoint.control_auth_token")
        if token and not (token.isascii() and token.isprintable() and token.strip() == token):
            raise ValueError("checkpoint.control_auth_token is not printable ASCII")

    @classmethod
    def load(cls, block: Mapping[str, Any] | None) -> Self:
        """Read the block, absent or as it comes from YAML or JSON.

        Raises:
            ValueError: an unknown field, a wrong type or a value out of range.
        """
        try:
            return msgspec.convert(dict(block or {}), type=cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"settings of checkpoint: {error}") from error

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        if self.control_auth_token is not None:
            shown["control_auth_token"] = _HIDDEN
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def limits(self) -> Limits:
        """What the machine obeys."""
        from participant.core.state import Limits  # Not at the top: what is off costs nothing.

        return Limits(self.lease_grace_seconds, self.retire_fence_seconds, self.max_waiting)

    def check_place(self, checkpoint_dir: str) -> None:
        """Refuse a place below none of the permitted roots.  Compared as text.

        Raises:
            InvalidRequestError: it is elsewhere, or steps upwards.
        """
        roots = self.allowed_checkpoint_roots
        if roots is None:
            return
        segments = checkpoint_dir.split("/")
        if ".." not in segments and any(_is_below(checkpoint_dir, root) for root in roots):
            return
        raise InvalidRequestError("checkpoint_dir is below none of allowed_checkpoint_roots")


def _is_below(place: str, root: str) -> bool:
    root = root.rstrip("/")
    return place.rstrip("/") == root or place.startswith(root + "/")


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The reserved pool of control connections; 0 is no limit.

    Raises:
        ValueError: a limit is negative.
    """

    global_aiohttp_control_connector_limit: int = 0
    global_aiohttp_control_connector_limit_per_host: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; 0 is no limit")
