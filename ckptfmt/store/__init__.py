"""Where checkpoints lie: the :class:`Store` protocol, and the stores of this package."""

from __future__ import annotations

from ckptfmt.store.base import Capabilities, DataWriter, Entry, Source, Store
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore

__all__ = ["Capabilities", "DataWriter", "Entry", "LocalStore", "MemoryStore", "Source", "Store"]
