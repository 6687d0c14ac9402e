"""Pausing the cyclic garbage collector while many objects are decoded.

Decoding makes tens of thousands of live objects and no garbage; collections in
between only walk them.  The pause is counted, so that nested and concurrent
users together give the process its own setting back.

A child of fork has none of the other threads: those that paused the collector in its parent
will not give it back there, so the child begins with nobody pausing.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["bulk_decode", "gc_paused"]

_lock = threading.Lock()
_users = 0
_was_enabled = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep the collector from running inside the block, in the whole process."""
    global _users, _was_enabled
    with _lock:
        if _users == 0:
            _was_enabled = gc.isenabled()
        # Counted while it rests, and not after: a fork may come in between.
        _users += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            if _users == 1 and _was_enabled:
                gc.enable()
            # In a child of fork nobody is counted, whoever made it inside the block.
            if _users:
                _users -= 1


@contextmanager
def bulk_decode() -> Iterator[None]:
    """As :func:`gc_paused`, for decoding many values that are all kept, as a restore does.

    At the end everything young joins the oldest generation, where two collections would
    have put it after walking millions of live objects.  What a program froze on purpose
    is left alone, and then nothing is moved.
    """
    with gc_paused():
        yield
        if gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()


def _begin_child() -> None:
    global _lock, _users
    _lock = threading.Lock()
    if _users and _was_enabled:
        gc.enable()
    _users = 0


os.register_at_fork(after_in_child=_begin_child)
