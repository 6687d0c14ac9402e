"""How values are spelt, and what is refused."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given

from ckptfmt.errors import (
    CycleError,
    DepthError,
    IntegerError,
    SizeError,
    ValueRefusedError,
)
from ckptfmt.exact import encode, restore
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import exact_values
from ckptfmt.wire import MAX_DEPTH, STARRED_FROM
from tests.support.deep import at_depth, integer_limit, nested

NAN, INF = math.nan, math.inf


def notes(value: object) -> Any:
    """The annotations of a value, decoded."""
    encoded = encode(value).annotations
    return None if encoded is None else orjson.loads(encoded)


def round_trip(value: object) -> None:
    encoded = encode(value)
    assert_same(restore(encoded.text, encoded.annotations), value)


@pytest.mark.parametrize(
    ("value", "text", "entries"),
    [
        (None, b"null", None),
        (NAN, b"null", [["", "nan"]]),
        ([-INF], b"[null]", [["/0", "-inf"]]),
        ({"a": INF}, b'{"a":null}', [["/a", "inf"]]),
        ((), b"[]", [["", "tuple"]]),
        ({"a/b~": (1,)}, b'{"a/b~":[1]}', [["/a~1b~0", "tuple"]]),
        ([(NAN,)], b"[[null]]", [["/0/0", "nan"], ["/0", "tuple"]]),
        ({1: "x"}, b'[[1,"x"]]', [["", "map"]]),
        ({}, b"{}", None),
        ({NAN: ()}, b"[[null,[]]]", [["/0/0", "nan"], ["/0/1", "tuple"], ["", "map"]]),
        ({(1, NAN): 0}, b"[[[1,null],0]]", [["/0/0/1", "nan"], ["/0/0", "tuple"], ["", "map"]]),
        ("a\ud800", '"a\ufffd"'.encode(), [["", "sur", [1, 0xD800]]]),
        ("\U0001f600\udc00", '"\U0001f600\ufffd"'.encode(), [["", "sur", [1, 0xDC00]]]),
        ("\ufffd\ud800", '"\ufffd\ufffd"'.encode(), [["", "sur", [1, 0xD800]]]),
        ("\ud83d\ude00", '"\ufffd\ufffd"'.encode(), [["", "sur", [0, 0xD83D, 1, 0xDE00]]]),
        ({"\ud800": 1}, '[["\ufffd",1]]'.encode(), [["/0/0", "sur", [0, 0xD800]], ["", "map"]]),
        ({"$exact": NAN}, b'{"$exact":null}', [["/$exact", "nan"]]),
        (2**64, b"18446744073709551616", None),
    ],
    ids=ascii,
)  # fmt: skip
def test_the_spelling_of(value: object, text: bytes, entries: object) -> None:
    assert encode(value).text == text
    assert notes(value) == entries
    round_trip(value)


def test_entries_stand_children_before_parents() -> None:
    value = ({"a": [((NAN,),)]}, {1: {2: (INF,)}})
    seen: set[str] = set()
    for target, *_ in notes(value):
        assert not any(target.startswith(parent + "/") for parent in seen)
        seen.add(target)
    assert len(seen) == 8
    round_trip(value)


@pytest.mark.parametrize("count", range(1, STARRED_FROM + 3))
@pytest.mark.parametrize(
    ("value", "tag"), [(NAN, "nan"), (INF, "inf"), (-INF, "-inf"), ((), "tuple")]
)
def test_starred_forms_are_used_from_four_elements_on(count: int, value: object, tag: str) -> None:
    plain = [[f"/{index + 1}", tag] for index in range(count)]
    starred = [["", f"{tag}*", [1, count]]]
    assert notes([0, *[value] * count]) == (plain if count < STARRED_FROM else starred)
    # With a string among them the array is walked element by element.
    assert notes(["", *[value] * count, ""]) == (plain if count < STARRED_FROM else starred)
    round_trip([0, *[value] * count])


@pytest.mark.parametrize("make", [list, tuple])
def test_each_tag_of_an_array_has_runs_of_its_own(make: type) -> None:
    value = make([NAN, INF, NAN, 1.5, -INF, NAN, INF, NAN, INF, INF, -INF])
    own = [["", "tuple"]] if make is tuple else []
    assert notes(value) == [
        ["", "nan*", [0, 1, 1, 1, 2, 1, 1, 1]],
        ["", "inf*", [1, 1, 4, 1, 1, 2]],
        ["/4", "-inf"],
        ["/10", "-inf"],
        *own,
    ]
    round_trip(value)


def test_members_of_an_object_are_never_starred() -> None:
    assert notes(dict.fromkeys("abcde", NAN)) == [[f"/{name}", "nan"] for name in "abcde"]


def test_surrogates_and_maps_have_no_starred_form() -> None:
    assert [tag for _, tag, *_ in notes(["\ud800"] * 5)] == ["sur"] * 5
    assert [tag for _, tag in notes([{1: 1}] * 5)] == ["map"] * 5


def test_100000_floats_with_50000_nan_cost_2_to_4_bytes_a_nan() -> None:
    """format.md section 4 says 100 KB, where plain entries would be 1.2 MB."""
    numbers = [NAN] * 50_000 + [index / 7 for index in range(50_000)]
    clustered = encode(numbers)
    random.Random(5).shuffle(numbers)
    scattered = encode(numbers)
    alternating = encode([index / 7 if index % 2 else NAN for index in range(100_000)])
    sizes = [len(encoded.annotations or b"") for encoded in (clustered, scattered, alternating)]
    assert sizes[0] < 40
    assert sizes[1] < 110_000
    assert sizes[2] < 201_000
    assert_same(restore(scattered.text, scattered.annotations), numbers)


@given(exact_values())
def test_any_accepted_value_comes_back(value: object) -> None:
    """F10 to F18."""
    round_trip(value)


@given(exact_values())
def test_equal_values_have_equal_text_and_annotations(value: object) -> None:
    """One spelling: the digest of a record depends on nothing but its value."""
    encoded = encode(value)
    assert encode(restore(encoded.text, encoded.annotations)) == encoded


@given(exact_values())
def test_the_text_is_strict_json_on_one_line(value: object) -> None:
    """F1, F10, F16, F17."""
    encoded = encode(value)
    for text in filter(None, (encoded.text, encoded.annotations)):
        assert not {0x0A, 0x0D} & set(text)
        # Written out again without escapes: a lone surrogate in it would not encode.
        json.dumps(
            json.loads(text.decode(), parse_constant=pytest.fail), ensure_ascii=False
        ).encode()


@pytest.mark.parametrize("number", [10**4300 - 1, 1 - 10**4300], ids=["positive", "negative"])
def test_integers_of_4300_digits_are_exact_under_the_lowest_limit(number: int) -> None:
    """F11."""
    value = [number, {"a": (number,), number: NAN}]
    with integer_limit(640):
        encoded = encode(value)
        found = restore(encoded.text, encoded.annotations)
    assert_same(found, value)


@pytest.mark.parametrize(
    "number", [10**4300, -(10**4300), 1 << 100_000], ids=["positive", "negative", "huge"]
)
def test_longer_integers_are_refused_with_their_pointer(number: int) -> None:
    for value, where in (
        (number, ""),
        ([0, number], "/1"),
        ({"a": [1.0, number]}, "/a/1"),
        ({number: 1}, "/0/0"),
        ([NAN, (number,)], "/1/0"),
    ):
        with pytest.raises(IntegerError, match="4300") as caught:
            encode(value)
        assert caught.value.location.pointer == where


# How a value is put into one more container: levels that it takes, tokens of its pointer.
WRAPS: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "list": (lambda inner: [inner], ["0"]),
    "tuple": (lambda inner: (inner,), ["0"]),
    "dict": (lambda inner: {"k": inner}, ["k"]),
    "int-keyed": (lambda inner: {7: inner}, ["0", "1"]),
    "wide": (lambda inner: [1, "x", inner, NAN, ()], ["2"]),
}
MAX_LEVELS = MAX_DEPTH - 1


@pytest.mark.parametrize("name", WRAPS)
@pytest.mark.parametrize("core", [0, NAN, "\ud800"], ids=ascii)
def test_the_deepest_value_comes_back_from_a_deep_stack(name: str, core: object) -> None:
    """F22: 500 levels, the record's own included."""
    wrap, tokens = WRAPS[name]
    value = nested(MAX_LEVELS // len(tokens), core, wrap)
    if name == "wide":  # its own tuples are one level more
        value = value[2]
    encoded = at_depth(900, lambda: encode(value))
    assert encoded == encode(value)
    assert_same(at_depth(900, lambda: restore(encoded.text, encoded.annotations)), value)
    assert_same(restore(encoded.text, encoded.annotations), value)


@pytest.mark.parametrize("frames", [0, 900])
@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 5000])
@pytest.mark.parametrize("name", WRAPS)
def test_one_level_more_is_refused_with_the_pointer(name: str, depth: int, frames: int) -> None:
    """F22: 501 levels with the record's own, and 5,000."""
    wrap, tokens = WRAPS[name]
    value = nested(-(-depth // len(tokens)), (), wrap)
    with pytest.raises(DepthError, match="500") as caught:
        at_depth(frames, lambda: encode(value))
    where = caught.value.location.pointer
    assert where is not None
    assert where.split("/")[1:] == (tokens * MAX_DEPTH)[:MAX_LEVELS]


@pytest.mark.parametrize("core", [[], (), {}, [1.0], (NAN, 1), {"a": 1}, {1: 1}], ids=repr)
def test_a_container_of_any_kind_is_a_level(core: object) -> None:
    round_trip(nested(MAX_LEVELS - 2, core))
    with pytest.raises(DepthError):
        encode(nested(MAX_LEVELS, core))


def test_a_tuple_key_may_be_as_deep_as_the_rest() -> None:
    """A dict with such a key takes two levels, then come those of the key."""
    key = nested(MAX_LEVELS - 2, NAN, lambda inner: (inner,))
    round_trip({key: 0})
    with pytest.raises(DepthError):
        encode({(key,): 0})


@pytest.mark.parametrize("frames", [0, 600, 900])
def test_deep_keys_of_equal_hash_come_back_from_a_deep_stack(frames: int) -> None:
    """F22: hash(-1) == hash(-2), so that the two keys are compared level by level."""
    value = {nested(450, number, lambda inner: (inner,)): number for number in (-1, -2)}
    encoded = at_depth(frames, lambda: encode(value))
    assert_same(at_depth(frames, lambda: restore(encoded.text, encoded.annotations)), value)


def test_a_map_takes_two_levels() -> None:
    """A dict with a key that is no plain string is stored as an array of pairs."""
    inner = nested(MAX_DEPTH - 3, 0)
    round_trip({1: inner})
    with pytest.raises(DepthError):
        encode({1: [inner]})


def test_a_wide_and_deep_value_comes_back() -> None:
    value: Any = 0.5
    for level in range(MAX_DEPTH - 2):
        value = {"n": value, "numbers": [level, NAN, 1.5], "t": (level,), "s": "\ud800"}
    round_trip(value)


@pytest.mark.parametrize("height", [*range(195, 205), *range(250, 258), *range(395, 405)])
def test_heights_around_those_of_the_encoder_and_of_splicing(height: int) -> None:
    """orjson writes 254 levels; higher subtrees are written first and spliced."""
    value = [nested(height, NAN), nested(height, "x", lambda inner: {"": inner}), nested(height, 0)]
    round_trip(value)
    plain = nested(height, 0)
    assert encode(plain).text == b"[" * height + b"0" + b"]" * height


def _cyclic_list() -> tuple[object, str]:
    value: list[Any] = []
    value.append(value)
    return value, "/0"


def _cyclic_tuple() -> tuple[object, str]:
    inner: list[Any] = [0]
    inner.append((1, inner))
    return inner, "/1/1"


def _cyclic_dict() -> tuple[object, str]:
    value: dict[str, Any] = {"a": 1}
    value["b/"] = [{"c": value}]
    return value, "/b~1/0/c"


def _cyclic_map() -> tuple[object, str]:
    value: dict[Any, Any] = {1: 2}
    value[2] = value
    return value, "/1/1"


def _cycle_below() -> tuple[object, str]:
    inner: list[Any] = []
    inner.append([inner])
    return {"a": [0, inner]}, "/a/1/0/0"


@pytest.mark.parametrize(
    "make", [_cyclic_list, _cyclic_tuple, _cyclic_dict, _cyclic_map, _cycle_below]
)
def test_a_container_that_holds_itself_is_refused_with_the_pointer(make: Any) -> None:
    """F22."""
    value, where = make()
    for call in (lambda: encode(value), lambda: at_depth(900, lambda: encode(value))):
        with pytest.raises(CycleError) as caught:
            call()
        assert caught.value.location.pointer == where


def test_a_container_held_twice_is_no_cycle() -> None:
    shared = [NAN, ()]
    round_trip([shared, {"a": shared}, (shared, shared), {1: shared}])


def test_the_pointer_of_a_refusal_is_escaped() -> None:
    with pytest.raises(ValueRefusedError) as caught:
        encode({"": {"a/b": [{"~": {"\ud800": [b"x"]}}]}})
    assert caught.value.location.pointer == "//a~1b/0/~0/0/1/0"


def test_a_refusal_shows_nothing_of_the_value() -> None:
    with pytest.raises(ValueRefusedError) as caught:
        encode([b"secret"])
    assert "secret" not in str(caught.value)


def test_annotations_that_would_grow_without_bound_are_refused() -> None:
    """Keys that a model wrote, repeated in the pointer of every NaN below them."""
    value: object = {"k" * 500: {str(number): math.nan for number in range(2000)}}
    for _ in range(300):
        value = {"k" * 500: value}
    with pytest.raises(SizeError, match="annotations"):
        encode(value)
