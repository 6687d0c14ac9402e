"""What a terminal can do, as far as the environment says."""

from __future__ import annotations

from collections.abc import Mapping

from inspector.output.base import Color

__all__ = ["wants_color"]


def wants_color(choice: Color, environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether to colour: what the call says, then NO_COLOR and FORCE_COLOR, then the terminal.

    A variable that is set to nothing counts as unset.
    """
    if choice is not Color.AUTO:
        return choice is Color.ALWAYS
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"
