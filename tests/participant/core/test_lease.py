"""The lease is put off, never brought forward."""

from __future__ import annotations

from participant.core.lease import Lease


def test_a_lease_never_shrinks_and_ends_at_its_moment() -> None:
    lease = Lease()
    assert not lease.has_expired(1e9)
    assert lease.extend(50.0) == 50.0
    assert lease.extend(40.0) == 50.0
    assert not lease.has_expired(49.9)
    assert lease.has_expired(50.0)
    lease.end()
    assert not lease.has_expired(1e9)
