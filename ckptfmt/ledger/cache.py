"""A cache that forgets what was used longest ago."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

_V = TypeVar("_V")


class BoundedCache(Generic[_V]):
    """Values by capture key, at most ``size`` of them and ``max_weight`` of their weights.

    The value used last is always kept.  ``discarded`` is called with each value that is
    forgotten.  Safe to use from several threads.
    """

    def __init__(self, size: int, max_weight: int, discarded: Callable[[_V], None]) -> None:
        self._size = size
        self._max_weight = max_weight
        self._discarded = discarded
        self._lock = threading.Lock()
        self._values: OrderedDict[str, tuple[_V, int]] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def take(self, key: str) -> _V | None:
        """Take a value out; whoever holds the key's lock uses it and puts it back."""
        with self._lock:
            found = self._values.pop(key, None)
            if found is None:
                return None
            self._weight -= found[1]
            return found[0]

    def put(self, key: str, value: _V, weight: int) -> None:
        """Keep a value, and forget others where there are too many."""
        forgotten = []
        with self._lock:
            self._values[key] = value, weight
            self._weight += weight
            while len(self._values) > 1 and (
                len(self._values) > self._size or self._weight > self._max_weight
            ):
                _, (oldest, oldest_weight) = self._values.popitem(last=False)
                self._weight -= oldest_weight
                forgotten.append(oldest)
        for oldest in forgotten:
            self._discarded(oldest)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            forgotten = [value for value, _ in self._values.values()]
            self._values.clear()
            self._weight = 0
        for value in forgotten:
            self._discarded(value)
