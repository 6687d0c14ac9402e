"""Samples and time limits."""

from __future__ import annotations

import pytest

from ckptfmt.errors import RefusedError
from inspector.extent import OutOfTimeError, Sample, TimeLimit, sample_size


@pytest.mark.parametrize(
    ("asked", "total", "size"),
    [
        ("1", 10, 1),
        ("20", 10, 20),
        ("1%", 1000, 10),
        ("1%", 1001, 11),
        ("0.1%", 5, 1),
        ("100%", 7, 7),
        ("100.0%", 7, 7),
        ("33%", 0, 0),
    ],
)
def test_a_share_is_rounded_up(asked: str, total: int, size: int) -> None:
    assert sample_size(asked, total) == size


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "0",
        "0%",
        "0.0%",
        "-1",
        "101%",
        "100.1%",
        "1.5",
        "1e3",
        "%",
        "nan%",
        "٣",
        "1 %",
        "9" * 99,
    ],
)
def test_what_is_no_size_is_refused(asked: str) -> None:
    with pytest.raises(RefusedError, match="--sample"):
        sample_size(asked, 10)


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_a_sample_is_of_its_size_and_evenly_spread(total: int) -> None:
    for size in range(1, total + 1):
        sample = Sample(size, total)
        chosen = [number for number in range(total) if sample()]
        assert chosen == [number * total // size for number in range(size)]


def test_a_time_limit_ends_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("inspector.extent.monotonic", lambda: now_s)
    limit, endless = TimeLimit(5), TimeLimit(None)
    now_s = 104.9
    limit.check()
    now_s = 105.0
    with pytest.raises(OutOfTimeError):
        limit.check()
    now_s = 1e12
    endless.check()
