"""Object names: judged here, before any I/O, by every store; and the names of temporary files.

A name is a relative POSIX path.  What a store is asked for may come from a
manifest, so it is hostile: nothing that could leave the store, hide in it or
mean something else to another store gets past :func:`split_name`.  What a
checkpoint's own names look like is narrower and not decided here.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from ckptfmt.errors import NameRefusedError
from ckptfmt.wire import TOKEN_BYTES

__all__ = [
    "MAX_OBJECT_NAME_BYTES",
    "MAX_SEGMENT_BYTES",
    "PROBE_NAME",
    "final_name",
    "is_name",
    "join_name",
    "split_name",
    "split_prefix",
    "temp_name",
]

# NAME_MAX of Linux file systems, and the longest key of S3: what fits both fits everywhere.
MAX_SEGMENT_BYTES: Final = 255
MAX_OBJECT_NAME_BYTES: Final = 1024
PROBE_NAME: Final = "probe"
"""What the temporary files are to become that only try out what a store can do: nothing."""

# Control characters; a backslash separates elsewhere; a colon starts a drive or ends a scheme.
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\:]")
_TEMP: Final = re.compile(rf"tmp-[0-9a-f]{{{2 * TOKEN_BYTES}}}-(?P<final>.+)", re.DOTALL)


def split_name(name: object) -> tuple[str, ...]:
    """The segments of an object's name, at least one.

    Raises:
        NameRefusedError: the name is no string, is empty, absolute or too long, or has a
            segment that is empty, hidden (``.``, ``..`` included) or holds a backslash, a
            colon, a control character or a lone surrogate.
    """
    if not isinstance(name, str):
        raise NameRefusedError(f"object name {_quoted(name)} is not a string")
    segments = tuple(name.split("/"))
    for segment in segments:
        if fault := _fault(segment):
            raise NameRefusedError(f"object name {_quoted(name)} {fault}")
    if len(name.encode()) > MAX_OBJECT_NAME_BYTES:
        raise NameRefusedError(
            f"object name {_quoted(name)} has {len(name.encode())} bytes, "
            f"at most {MAX_OBJECT_NAME_BYTES} are possible"
        )
    return segments


def is_name(name: str) -> bool:
    """Whether :func:`split_name` takes ``name``: entries of others may have any."""
    try:
        split_name(name)
    except NameRefusedError:
        return False
    return True


def split_prefix(prefix: object) -> tuple[str, ...]:
    """The segments of a directory's name; none for ``""``, which is the store itself.

    Raises:
        NameRefusedError: as :func:`split_name`; a slash at the end leaves an empty segment.
    """
    return () if prefix == "" else split_name(prefix)


def join_name(prefix: str, name: str) -> str:
    """The name of ``name`` below the directory ``prefix`` (``""``: the store itself)."""
    return f"{prefix}/{name}" if prefix else name


def _fault(segment: str) -> str | None:
    if not segment:
        return "is absolute or has an empty segment"
    if segment.startswith("."):
        return "has a segment that starts with a dot"
    if _FORBIDDEN.search(segment):
        return "holds a backslash, a colon or a control character"
    try:
        size_bytes = len(segment.encode())
    except UnicodeEncodeError:
        return "holds a lone surrogate"
    if size_bytes > MAX_SEGMENT_BYTES:
        return f"has a segment of {size_bytes} bytes, at most {MAX_SEGMENT_BYTES} are possible"
    return None


def temp_name(final: str) -> str:
    """A new ``tmp-<token>-<final>``: the file that becomes ``final`` in the same directory.

    Raises:
        NameRefusedError: ``final`` leaves no room for it within one segment.
    """
    name = f"tmp-{secrets.token_hex(TOKEN_BYTES)}-{final}"
    split_name(name)
    return name


def final_name(name: str) -> str | None:
    """What a temporary file was to become; ``None`` if ``name`` is not one of :func:`temp_name`."""
    match = _TEMP.fullmatch(name)
    return match["final"] if match else None


def _quoted(name: object) -> str:
    text = ascii(name)
    return text if len(text) <= 120 else text[:117] + "..."
