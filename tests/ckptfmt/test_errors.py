"""Errors name the culprit as fields and in the text (F39)."""

from __future__ import annotations

import copy
import inspect

import pytest

from ckptfmt import errors
from ckptfmt.errors import CkptError, CorruptError, Location, RefusedError, ValueRefusedError

TREE = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, CkptError)
]
FULL = Location(
    checkpoint="ck",
    participant="agent/a",
    file="f",
    block=3,
    offset=0,
    ordinal=7,
    key="r/s",
    pointer="",
)


def test_the_text_has_message_place_and_advice() -> None:
    error = CorruptError("it is wrong", FULL, advice="go back")
    assert str(error) == (
        "it is wrong [checkpoint 'ck', participant 'agent/a', file 'f', block 3, offset 0, "
        "ordinal 7, key 'r/s', pointer '']; go back"
    )
    assert str(CorruptError("it is wrong")) == "it is wrong"


def test_what_is_known_later_is_added_and_what_was_said_stays() -> None:
    error = CorruptError("x").at(offset=5, pointer="")
    assert error.at(offset=9, file="f", block=0, pointer="/a") is error
    assert error.location == Location(file="f", block=0, offset=5, pointer="")
    assert error.at(key=None).location.key is None


@pytest.mark.parametrize("field", ["block", "offset", "ordinal"])
def test_zero_is_a_known_place(field: str) -> None:
    error = CorruptError("x").at(**{field: 0}).at(**{field: 1})
    assert getattr(error.location, field) == 0
    assert f"{field} 0" in str(error)


def test_an_unknown_kind_of_place_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError):
        CorruptError("x").at(line=3)


def test_names_from_damaged_files_do_not_reach_a_terminal_raw() -> None:
    error = CorruptError("x").at(file="\x1b[2J", key="a\nb", pointer="/\u202e\ud800")
    assert str(error).isascii()
    assert str(error).isprintable()


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_each_class_is_raised_located_and_copied_alike(kind: type[CkptError]) -> None:
    error = kind("what", advice="do").at(file="f")
    again = copy.copy(error)
    assert type(again) is kind
    assert (again.message, again.location, again.advice) == ("what", Location(file="f"), "do")
    assert str(again) == str(error) == "what [file 'f']; do"
    assert kind.code == vars(kind)["code"]


def test_two_errors_share_no_place() -> None:
    first, second = CorruptError("a"), CorruptError("b")
    first.at(file="f")
    assert second.location == Location()
    assert CorruptError("c").location == Location()


def test_the_branches_are_disjoint() -> None:
    branches = CkptError.__subclasses__()
    assert {branch.__name__ for branch in branches} == {
        "RefusedError", "DataError", "CommitError", "StorageError",
    }  # fmt: skip
    for kind in set(TREE) - {CkptError}:
        assert sum(issubclass(kind, branch) for branch in branches) == 1
    assert issubclass(ValueRefusedError, RefusedError)


def test_a_place_covers_another_of_which_no_more_is_known() -> None:
    place = Location(participant="agent/a1", file="f", offset=3)
    assert place.covers(Location(file="f", offset=3))
    assert place.covers(Location())
    assert not place.covers(Location(file="f", offset=4))
    assert not place.covers(Location(file="f", ordinal=0))
