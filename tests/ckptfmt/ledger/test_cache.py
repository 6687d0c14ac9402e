"""The bounded cache: what was used longest ago goes first, and is told to its owner."""

from __future__ import annotations

from ckptfmt.ledger.cache import BoundedCache


def test_it_forgets_what_was_used_longest_ago() -> None:
    gone: list[str] = []
    cache: BoundedCache[str] = BoundedCache(2, 100, gone.append)
    cache.put("a", "A", 1)
    cache.put("b", "B", 1)
    assert cache.take("a") == "A"
    cache.put("a", "A", 1)
    cache.put("c", "C", 1)
    assert gone == ["B"]
    assert cache.take("b") is None
    assert len(cache) == 2


def test_it_forgets_by_weight_but_never_the_last_one() -> None:
    gone: list[str] = []
    cache: BoundedCache[str] = BoundedCache(10, 100, gone.append)
    cache.put("a", "A", 60)
    cache.put("b", "B", 1000)
    assert gone == ["A"]
    cache.put("c", "C", 1)
    assert gone == ["A", "B"]
    cache.clear()
    assert gone == ["A", "B", "C"]
    assert len(cache) == 0
