"""Numbers for people."""

from __future__ import annotations

import pytest

from inspector.quantities import count, number_of, size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1024**2 - 1, "1.0 MiB"),
     (1_500_000_000, "1.4 GiB"), (1024**6, "1024.0 PiB")],
)  # fmt: skip
def test_sizes(size_bytes: int | None, text: str) -> None:
    assert size(size_bytes) == text


def test_counts() -> None:
    assert (count(1024), count(None)) == ("1,024", "-")
    assert (number_of(1, "record"), number_of(2000, "record")) == ("1 record", "2,000 records")
