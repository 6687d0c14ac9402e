"""Which of several checkpoints without a sequence is the latest."""

from __future__ import annotations

import pytest

from ckptfmt.errors import AmbiguousLatestError
from ckptfmt.nemo_gym.order import Undated, choose_latest

A = Undated("a", "ck-a", "2026-01-02T03:04:05Z")
B = Undated("b", "ck-b", "2026-01-02T04:04:05+02:00")
PLAIN = [Undated("a", "ck-a", "unknown"), Undated("b", "ck-b", "unknown")]


def test_the_only_one_is_the_latest() -> None:
    index, how = choose_latest([PLAIN[0]], b"other")
    assert index == 0
    assert "only" in how


def test_a_clock_decides_where_all_have_one() -> None:
    index, how = choose_latest([A, B], b"b")
    assert index == 0
    assert "created_at" in how


@pytest.mark.parametrize(
    "hint",
    [b"b", b"b\n", b"ck-b", b"/runs/x/b/", b'"b"', b'{"checkpoint_id":"ck-b","sequence":7}'],
)
def test_the_hint_decides_where_no_clock_does(hint: bytes) -> None:
    for candidates in (PLAIN, [A, PLAIN[1]], [A, Undated("b", "ck-b", A.created_at)]):
        index, how = choose_latest(candidates, hint)
        assert index == 1
        assert "LATEST" in how


@pytest.mark.parametrize("hint", [None, b"", b"c", b"\xff", b"{", b"{}", b'{"checkpoint_id":7}'])
def test_where_nothing_decides_all_are_named(hint: bytes | None) -> None:
    with pytest.raises(AmbiguousLatestError, match="a, b"):
        choose_latest(PLAIN, hint)
