"""Addresses: read, printed, resolved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import Location, MissingError, NameRefusedError
from ckptfmt.identity import ParticipantId
from inspector.address import Address, address_of, join_pointer, parse, select

A0, A1, E0 = (
    ParticipantId("agent", "a0"),
    ParticipantId("agent", "a1"),
    ParticipantId("environment", "e0"),
)


def test_an_address_has_segments_and_a_pointer() -> None:
    assert parse("agent/a0/4-2/s%201#/x/0") == Address(("agent", "a0", "4-2", "s%201"), ("x", "0"))
    assert parse("agent/a0") == Address(("agent", "a0"))
    assert parse("agent/a0/k#") == Address(("agent", "a0", "k"), ())


@pytest.mark.parametrize(
    "name", ["a/b", "a~b", "a#b", "a%b", "a b", "\"'", "é", "\x1b", "", "\ud800"]
)
def test_any_member_name_can_be_pasted_back(name: str) -> None:
    """I72."""
    address = "agent/a0/k" + join_pointer([name, 3, name])
    assert address.isascii()
    assert " " not in address
    assert parse(address).tokens == (name, "3", name)
    assert str(parse(address)) == address


@given(st.lists(st.text(st.characters(codec=None))))
def test_any_pointer_survives_printing_and_reading(tokens: list[str]) -> None:
    """I72."""
    assert parse("agent/a0/k" + join_pointer(tokens)).tokens == tuple(tokens)


@pytest.mark.parametrize(
    "text", ["", "/", "a//b", "a/b/c#x", "a/b/c#/~2", "a/%zz", "a#/%", "a#/%ff"]
)
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(NameRefusedError):
        parse(text)


def test_a_participant_is_named_whole_by_kind_or_in_short() -> None:
    """I71."""
    everyone = [A0, A1, E0]
    assert select(parse("agent/a0/k"), everyone).participants == (A0,)
    assert select(parse("agent/a0/k/s"), everyone).key == "k/s"
    assert select(parse("agent"), everyone).participants == (A0, A1)
    assert select(parse("environment/4-2"), everyone).key == "4-2"
    assert select(parse("e0/4-2"), everyone).participants == (E0,)
    assert select(parse("a1"), everyone).participants == (A1,)


def test_a_short_name_of_several_lists_the_candidates() -> None:
    """I71."""
    with pytest.raises(NameRefusedError) as refused:
        select(parse("agent/4-2"), [A0, A1, E0])
    assert "agent/a0, agent/a1" in str(refused.value)
    with pytest.raises(NameRefusedError):
        select(parse("x"), [ParticipantId("agent", "x"), ParticipantId("model", "x")])


def test_an_unknown_name_tells_what_there_is() -> None:
    with pytest.raises(MissingError) as missing:
        select(parse("nobody/k"), [A0, E0])
    assert "agent/a0, environment/e0" in str(missing.value)


def test_a_selection_means_a_record_or_all_of_an_episode() -> None:
    selection = select(parse("agent/a0/4-2"), [A0])
    assert selection.matches("4-2")
    assert selection.matches("4-2/s1")
    assert not selection.matches("4-20")


def test_an_escape_may_be_written_in_small_letters() -> None:
    """I72: a key has one spelling, whoever percent-encodes an address may have another."""
    assert parse("agent/a0/r/a%2fb#/x%2fy%c3%a9") == parse("agent/a0/r/a%2Fb#/x%2Fy%C3%A9")


@pytest.mark.parametrize(
    ("location", "address"),
    [
        (Location(), None),
        (Location(participant="agent/a0"), "agent/a0"),
        (Location(participant="agent/a0", key="k/s", pointer="/a b"), "agent/a0/k/s#/a%20b"),
        (Location(participant="agent/a0", key="k", pointer="broken"), "agent/a0/k"),
    ],
)
def test_the_place_of_an_error_becomes_an_address(location: Location, address: str | None) -> None:
    assert address_of(location) == address
