"""Names of objects are judged before any I/O; names of temporary files go both ways."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptfmt.errors import NameRefusedError
from ckptfmt.store.names import (
    MAX_OBJECT_NAME_BYTES,
    MAX_SEGMENT_BYTES,
    final_name,
    is_name,
    join_name,
    split_name,
    split_prefix,
    temp_name,
)
from ckptfmt.testing.store_contract import HOSTILE_NAMES


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, None, 7, b"a", ["a"], ("a",)])
def test_a_hostile_name_is_refused(name: object) -> None:
    """S59, S61."""
    with pytest.raises(NameRefusedError):
        split_name(name)


@pytest.mark.parametrize(
    ("name", "segments"),
    [
        ("a", ("a",)),
        ("a/b.c/d-e_f", ("a", "b.c", "d-e_f")),
        ("my run (2)/ü*?", ("my run (2)", "ü*?")),
        ("a..b/c...", ("a..b", "c...")),
        ("~/$HOME", ("~", "$HOME")),
    ],
)
def test_a_name_is_its_segments(name: str, segments: tuple[str, ...]) -> None:
    assert split_name(name) == segments
    assert split_prefix(name) == segments


def test_the_limits_are_exact_and_count_bytes() -> None:
    longest = "/".join(["ä" * 127 + "b"] * 4) + "c"
    assert len(longest.encode()) == MAX_OBJECT_NAME_BYTES
    with pytest.raises(NameRefusedError, match="256 bytes, at most 255"):
        split_name(longest)
    longest = "/".join(["a" * MAX_SEGMENT_BYTES] * 4)
    assert len(longest) == MAX_OBJECT_NAME_BYTES - 1
    assert len(split_name(longest)) == 4
    with pytest.raises(NameRefusedError, match="1025 bytes, at most 1024"):
        split_name("b/" + longest)


def test_only_the_empty_prefix_is_the_store_itself() -> None:
    assert split_prefix("") == ()
    assert join_name("", "a") == "a"
    assert join_name("a/b", "c") == "a/b/c"


def test_an_error_shows_no_more_of_a_name_than_fits_a_line() -> None:
    with pytest.raises(NameRefusedError) as raised:
        split_name("\x1b[31m" + "a" * 10_000)
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 250


@given(st.text(min_size=1, max_size=100))
def test_whatever_is_accepted_stays_within_the_store(name: str) -> None:
    try:
        segments = split_name(name)
    except NameRefusedError:
        return
    assert "/".join(segments) == name
    assert not any(s in ("", ".", "..") or "\0" in s or "/" in s for s in segments)


def test_a_temporary_name_is_new_each_time_and_tells_its_final_one() -> None:
    names = {temp_name("manifest.json") for _ in range(100)}
    assert len(names) == 100
    assert {final_name(name) for name in names} == {"manifest.json"}
    assert all(split_name(name) == (name,) for name in names)


@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        "tmp-manifest.json",
        f"tmp-{'0' * 24}",
        f"tmp-{'0' * 24}-",
        f"tmp-{'0' * 23}-a",
        f"tmp-{'G' * 24}-a",
        f"tmp-{'A' * 24}-a",
        f"xtmp-{'0' * 24}-a",
    ],
)
def test_other_names_are_not_taken_for_temporary_ones(name: str) -> None:
    assert final_name(name) is None


def test_a_final_name_that_leaves_no_room_is_refused() -> None:
    assert final_name(temp_name("a" * 226)) == "a" * 226
    with pytest.raises(NameRefusedError):
        temp_name("a" * 227)


@given(st.text(max_size=20))
@example("a")
@example(".a")
def test_a_name_is_one_if_it_can_be_split(name: str) -> None:
    try:
        split_name(name)
        assert is_name(name)
    except NameRefusedError:
        assert not is_name(name)
