"""Ledger files are read and written in threads: they never hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["in_thread"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """The result of ``function``, run in a thread, or what it raises.

    A caller that is cancelled waits for the thread all the same: whoever waits for the
    caller's end, as a retire does, then knows that nothing is written any more.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # Nobody else asks for it.
        raise
