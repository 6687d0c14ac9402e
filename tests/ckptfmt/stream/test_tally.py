"""What a strict reader keeps of the records it has seen."""

from __future__ import annotations

from random import Random

from ckptfmt.stream.tally import sum_of


def test_the_sum_does_not_depend_on_the_order() -> None:
    rows = [(ordinal, str(ordinal)) for ordinal in range(100)]
    assert sum_of(rows) == sum_of(reversed(rows))


def test_rows_that_exchange_a_member_have_another_sum() -> None:
    """As in an index whose entries lead to each other's records."""
    random = Random(0)
    for _ in range(2_000):
        ordinal, offset, length = random.randrange(1000), random.randrange(10**6), 40
        one, two = (offset, 900, 0, length), (offset, 900, length + 1, length)
        assert sum_of([(ordinal, *one), (ordinal + 1, *two)]) != sum_of(
            [(ordinal + 1, *one), (ordinal, *two)]
        )
        keys = [str(random.random()) for _ in range(3)]
        assert sum_of(enumerate(keys)) != sum_of(enumerate(keys[1:] + keys[:1]))
