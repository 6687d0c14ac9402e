"""File names of ledgers: built and parsed; keys checked before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import NameRefusedError, SizeError
from ckptfmt.ledger.limits import LOCK_STRIPES, MAX_BATCH_KEYS
from ckptfmt.ledger.names import (
    Kind,
    check_batch,
    check_key,
    file_name,
    is_stripe,
    is_temporary,
    new_temporary,
    parse_name,
    stripe_name,
    stripe_of,
)

KEYS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}(-a[1-9][0-9]?)?", fullmatch=True)


@given(key=KEYS, kind=st.sampled_from(list(Kind)))
def test_a_name_is_parsed_as_it_was_built(key: str, kind: Kind) -> None:
    try:
        check_key(key)
    except NameRefusedError:
        assert parse_name(file_name(key, kind)) is None
    else:
        assert parse_name(file_name(key, kind)) == (key, kind)


@pytest.mark.parametrize(
    "name", ["", "r", "r.tokens", ".tokens.jsonl", "r.tokens.jsonl.bak", "a b.tokens.lock"]
)
def test_other_names_are_no_rollouts(name: str) -> None:
    assert parse_name(name) is None


@given(key=KEYS)
def test_stripes_are_few_and_named(key: str) -> None:
    stripe = stripe_of(key)
    assert 0 <= stripe < LOCK_STRIPES
    assert is_stripe(stripe_name(stripe))
    assert parse_name(stripe_name(stripe)) is None


def test_stripes_are_the_same_in_every_process() -> None:
    assert [stripe_of(key) for key in ("r", "r-a1", "rollout-17")] == [29, 36, 54]


def test_temporary_files_are_told_from_others() -> None:
    name = new_temporary()
    assert is_temporary(name)
    assert name != new_temporary()
    assert is_temporary(".tokens-state-k2j_1x")
    assert not is_temporary(".tokens-state-../x")
    assert not is_stripe(name)


def test_a_batch_is_checked_whole_and_each_key_once() -> None:
    """L25."""
    assert check_batch(["b", "a", "b"]) == ["b", "a"]
    for bad in ("abc", b"abc", ["a", "../b"], ["a", 5]):
        with pytest.raises(NameRefusedError):
            check_batch(bad)  # type: ignore[arg-type]
    with pytest.raises(SizeError):
        check_batch(["a"] * (MAX_BATCH_KEYS + 1))
