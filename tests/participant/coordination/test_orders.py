"""The table of orders: its own consistency.  What it makes happen is told in the stories."""

from __future__ import annotations

import pytest

from participant.coordination.orders import KINDS, ORDERS


@pytest.mark.parametrize("operation", ORDERS)
def test_every_operation_reaches_every_kind_once(operation: str) -> None:
    reached = [kind for stage in ORDERS[operation].stages for kind in stage]
    assert sorted(reached) == sorted(KINDS)


def test_resume_is_prepare_the_other_way_round_and_never_stops() -> None:
    """P108."""
    assert ORDERS["resume"].stages == ORDERS["prepare"].stages[::-1]
    assert ORDERS["prepare"].stops
    assert not ORDERS["resume"].stops


def test_what_gives_up_or_undoes_reaches_everybody_whatever_fails() -> None:
    assert [name for name, order in ORDERS.items() if order.stops] == ["prepare", "retire"]
