"""Ids, capture keys and record keys (participant.md section 1, S59, S60)."""

from __future__ import annotations

import enum
import re
from dataclasses import FrozenInstanceError
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import NameRefusedError
from ckptfmt.identity import (
    MAX_CAPTURE_KEY_BYTES,
    EpisodeId,
    ParticipantId,
    check_name,
    record_key,
)
from ckptfmt.testing.strategies import AWKWARD_STRINGS, episode_ids
from ckptfmt.wire import MAX_KEY_BYTES, MAX_NAME_CHARS


class Text(str):
    __slots__ = ()


class Mode(enum.StrEnum):
    ON = "on"


# S59, and what a path, a shell, a URL or a log would take for something else.
MALFORMED: list[Any] = [
    "", ".", "..", "...", ".hidden", "-a1", "_x", "a/b", "a\\b", "../a", "a/../b", "/a", "C:",
    "a:b", "a*", "a?", "a b", " a", "a ", "a\n", "\na", "a\r", "a\t", "a\x00", "a\x00b", "\x7f",
    "bad!id",
    "a%2f", "~a", "a~", "é", "e\u0301", "\u0661", "a\u0661", "\uff41", "a\u2028", "a\u202eb",
    "a\ud800", "$exact", "a@b", None, 1, True, 1.5, b"a", ["a"], ("a",), 10**5000,
    Text("a"), Mode.ON,
]  # fmt: skip
WELL_FORMED = [
    "a", "A", "0", "4-2", "a.b", "a..b", "a-", "a_", "x-a0", "x-a01", "x-a", "x-a1x", "x-A1", "a-1",
    "xa1", "x--a", "x-b1", "x-a1.0", "CON", "0-0",
]  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize(
    "use",
    [
        EpisodeId,
        EpisodeId.from_capture_key,
        lambda name: ParticipantId(name, "one"),
        lambda name: ParticipantId("agent", name),
        lambda name: check_name(name, "checkpoint id"),
    ],
    ids=["rollout", "capture key", "kind", "instance", "checkpoint id"],
)
def test_a_malformed_name_is_refused(use: Any, name: object) -> None:
    """S59: with a typed error; nothing is rewritten."""
    with pytest.raises(NameRefusedError) as caught:
        use(name)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_well_formed_name_is_taken_as_it_is(name: str) -> None:
    assert check_name(name, "kind") == name
    assert ParticipantId(name, name) == ParticipantId(kind=name, instance=name)
    assert EpisodeId(name).capture_key == name
    assert EpisodeId.from_capture_key(name) == EpisodeId(name, 0)


@pytest.mark.parametrize(
    "rollout", ["x-a1", "x-a10", "4-2-a3", "x-a0-a1", "x-a1-a2", "x-a9", "x-a" + "9" * 30]
)
def test_a_rollout_id_that_ends_like_an_attempt_is_reserved(rollout: str) -> None:
    with pytest.raises(NameRefusedError, match="reserved"):
        EpisodeId(rollout)
    with pytest.raises(NameRefusedError, match="reserved"):
        EpisodeId(rollout, 1)


@pytest.mark.parametrize(
    ("episode", "key"),
    [
        (EpisodeId("r"), "r"),
        (EpisodeId("r", 0), "r"),
        (EpisodeId("r", 1), "r-a1"),
        (EpisodeId("4-2", 17), "4-2-a17"),
        (EpisodeId("x-a0", 2), "x-a0-a2"),
        (EpisodeId("x-a01", 1), "x-a01-a1"),
        (EpisodeId("r", 2**63 - 1), f"r-a{2**63 - 1}"),
    ],
)
def test_the_capture_key_and_its_inverse(episode: EpisodeId, key: str) -> None:
    assert episode.capture_key == key
    assert EpisodeId.from_capture_key(key) == episode


@given(episode_ids())
def test_any_episode_comes_back_from_its_capture_key(episode: EpisodeId) -> None:
    assert EpisodeId.from_capture_key(episode.capture_key) == episode


@given(st.from_regex(r"[a1][a0-9-]{0,12}", fullmatch=True) | st.text("xa-0129", max_size=10))
def test_a_key_names_one_episode_at_most(key: str) -> None:
    """Two ids never share a key."""
    try:
        episode = EpisodeId.from_capture_key(key)
    except NameRefusedError:
        return
    assert episode.capture_key == key


@pytest.mark.parametrize(
    "key",
    [
        "x-a1-a2",
        "x-a1\n",
        "x\n-a1",
        "-a1",
        "x-a9223372036854775808",
        "x-a" + "9" * 5000,
        "/x-a1",
        "x!-a1",
    ],
)
def test_a_malformed_capture_key_is_refused(key: str) -> None:
    with pytest.raises(NameRefusedError):
        EpisodeId.from_capture_key(key)


@pytest.mark.parametrize("attempt", [-1, 2**63, 10**5000, True, False, 1.0, "1", None], ids=type)
def test_an_attempt_is_a_whole_number(attempt: Any) -> None:
    with pytest.raises(NameRefusedError):
        EpisodeId("r", attempt)


def test_an_episode_id_is_a_frozen_value() -> None:
    episode = EpisodeId("r", 1)
    with pytest.raises(FrozenInstanceError):
        episode.attempt = 2  # type: ignore[misc]
    assert len({episode, EpisodeId("r", 1), EpisodeId("r", 2)}) == 2
    assert EpisodeId("a", 9) < EpisodeId("a", 10) < EpisodeId("b")


def test_the_continuation_is_the_next_attempt() -> None:
    assert EpisodeId("r").continuation == EpisodeId("r", 1)
    assert EpisodeId("r", 9).continuation.capture_key == "r-a10"


def test_a_capture_key_over_200_bytes_is_refused_when_it_names_files() -> None:
    fits = EpisodeId("r" * (MAX_CAPTURE_KEY_BYTES - 3), 1)
    assert fits.check_length() is fits
    assert len(fits.capture_key) == 200
    with pytest.raises(NameRefusedError, match="200 bytes"):
        EpisodeId(fits.rollout_id, 10).check_length()


def test_a_retire_covers_attempts_up_to_it_and_no_look_alike() -> None:
    retired = EpisodeId("r", 2)
    assert [retired.covers(EpisodeId("r", attempt)) for attempt in range(5)] == [True] * 3 + [
        False
    ] * 2
    for other in ("r1", "r-a1x", "r-a0", "R", "r-", "rr"):
        assert not retired.covers(EpisodeId(other))
        assert not retired.covers(EpisodeId(other, 2))
    assert not retired.covers(EpisodeId.from_capture_key("r1-a2"))


def test_names_end_at_128_characters() -> None:
    assert check_name("a" * MAX_NAME_CHARS, "kind")
    with pytest.raises(NameRefusedError, match="128"):
        check_name("a" * (MAX_NAME_CHARS + 1), "kind")
    with pytest.raises(NameRefusedError) as caught:
        check_name("!" * 1_000_000, "kind")
    assert len(str(caught.value)) < 300


def test_participants_that_a_case_folding_disk_would_mix_up_are_told() -> None:
    """S60."""
    assert ParticipantId("agent", "Foo").folded == ParticipantId("Agent", "foo").folded
    assert ParticipantId("agent", "foo").folded != ParticipantId("agent", "fo").folded
    assert str(ParticipantId("agent", "Foo")) == "agent/Foo"
    assert ParticipantId("agent", "Foo") != ParticipantId("agent", "foo")


@pytest.mark.parametrize(
    ("sub_key", "key"),
    [
        (None, "r-a1"),
        ("", "r-a1/"),
        ("s", "r-a1/s"),
        ("A-z_0.9", "r-a1/A-z_0.9"),
        ("~", "r-a1/%7E"),
        ("%7E", "r-a1/%257E"),
        ("a/b c", "r-a1/a%2Fb%20c"),
        ("..", "r-a1/.."),
        ("\n\x00", "r-a1/%0A%00"),
        ("é\U0001f600", "r-a1/%C3%A9%F0%9F%98%80"),
        ("$&+,:;=?@", "r-a1/%24%26%2B%2C%3A%3B%3D%3F%40"),
    ],
)
def test_a_record_key_is_percent_encoded(sub_key: str | None, key: str) -> None:
    assert record_key(EpisodeId("r", 1), sub_key) == key


@given(episode_ids(), st.text(max_size=40) | st.sampled_from(AWKWARD_STRINGS[:-1]))
def test_a_record_key_has_one_slash_and_comes_back(episode: EpisodeId, sub_key: str) -> None:
    if re.search("[\ud800-\udfff]", sub_key):
        with pytest.raises(NameRefusedError):
            record_key(episode, sub_key)
        return
    key = record_key(episode, sub_key)
    assert re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._%-]*", key)
    capture_key, encoded = key.split("/")
    assert (EpisodeId.from_capture_key(capture_key), unquote(encoded)) == (episode, sub_key)


def test_a_record_key_ends_at_1024_bytes() -> None:
    assert len(record_key(EpisodeId("r"), "s" * (MAX_KEY_BYTES - 2))) == MAX_KEY_BYTES
    with pytest.raises(NameRefusedError, match="1024"):
        record_key(EpisodeId("r"), "s" * (MAX_KEY_BYTES - 1))
    with pytest.raises(NameRefusedError):
        record_key(EpisodeId("r"), "\u20ac" * 120)
