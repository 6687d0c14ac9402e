"""What the fast path lets through: only values whose JSON text needs no annotation."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import io
import ipaddress
import math
import pathlib
import random
import re
import struct
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import msgspec
import orjson
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import ValueRefusedError
from ckptfmt.exact import encode as encode_value
from ckptfmt.exact import restore
from ckptfmt.exact.encode import _NOT_FINITE, _STRICT, _fast_text, _Walk
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import AWKWARD_FLOATS, AWKWARD_INTEGERS, exact_values, random_value


class Text(str):
    __slots__ = ()


class Whole(int):
    __slots__ = ()


class Real(float):
    __slots__ = ()


class Row(list[Any]):
    __slots__ = ()


class Pair(tuple[Any, ...]):
    __slots__ = ()


class Table(dict[str, Any]):
    __slots__ = ()


class Raw(bytes):
    __slots__ = ()


class Point(NamedTuple):
    x: int


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    ON = "on"


class Bits(enum.IntFlag):
    ONE = 1


class Mixed(str, enum.Enum):  # noqa: UP042
    A = "a"


@dataclasses.dataclass(frozen=True)
class Plain:
    x: int = 1


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    x: int = 1


class Struct(msgspec.Struct, frozen=True):
    x: int = 1


class Model:
    """Like a pydantic model."""

    __pydantic_validator__ = object()

    def __init__(self) -> None:
        self.x = 1

    def model_dump(self) -> dict[str, int]:
        return {"x": 1}

    def dict(self) -> dict[str, int]:
        return {"x": 1}


class Scalar:
    """Like a numpy scalar."""

    dtype = "float64"
    __array_priority__ = 1.0
    __array_interface__: ClassVar[dict[str, Any]] = {"shape": (), "typestr": "<f8", "version": 3}

    def __float__(self) -> float:
        return 1.0

    def __index__(self) -> int:
        return 1

    def __int__(self) -> int:
        return 1

    def item(self) -> float:
        return 1.0

    def tolist(self) -> float:
        return 1.0


class Array(Scalar):
    """Like a numpy array."""

    shape = (1,)

    def __array__(self) -> list[float]:
        return [1.0]

    def __iter__(self) -> Iterator[float]:
        return iter([1.0])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> float:
        return [1.0][index]


class Mapping(collections.UserDict[str, int]):
    """A mapping that is no dict."""


class Pretender:
    """Says that it is a str, a dict, whatever is asked."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return dict

    def keys(self) -> list[str]:
        return ["a"]

    def __getitem__(self, key: str) -> int:
        return 1


def _function() -> None:
    pass


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)

# Name -> a value of it, whether ormsgpack refuses it with our options, whether orjson does.
# Neither may accept what the other accepts too; the pins say on which one each type hangs.
REFUSED: dict[str, tuple[Callable[[], Any], bool, bool]] = {
    "str subclass": (lambda: Text("a"), True, False),
    "int subclass": (lambda: Whole(1), True, False),
    "float subclass": (lambda: Real(1.0), True, True),
    "list subclass": (lambda: Row([1]), True, False),
    "dict subclass": (lambda: Table(a=1), True, False),
    "tuple subclass": (lambda: Pair((1,)), True, True),
    "bytes subclass": (lambda: Raw(b"a"), True, True),
    "namedtuple": (lambda: Point(1), True, True),
    "Enum": (lambda: Colour.RED, True, False),
    "IntEnum": (lambda: Level.LOW, True, False),
    "StrEnum": (lambda: Mode.ON, True, False),
    "IntFlag": (lambda: Bits.ONE, True, False),
    "str Enum": (lambda: Mixed.A, True, False),
    "dataclass": (Plain, True, False),
    "slotted dataclass": (Slotted, True, False),
    "datetime": (lambda: MOMENT, True, False),
    "date": (MOMENT.date, True, False),
    "time": (MOMENT.time, True, False),
    "timedelta": (lambda: dt.timedelta(1), True, True),
    "timezone": (lambda: dt.UTC, True, True),
    "UUID": (lambda: uuid.UUID(int=1), True, False),
    "Decimal": (lambda: decimal.Decimal(1), True, True),
    "Fraction": (lambda: fractions.Fraction(1), True, True),
    "complex": (lambda: 1j, True, True),
    "bytes": (lambda: b"a", False, True),
    "empty bytes": (lambda: b"", False, True),
    "bytearray": (lambda: bytearray(b"a"), False, True),
    "memoryview": (lambda: memoryview(b"a"), False, True),
    "array": (lambda: array.array("d", [1.0]), True, True),
    "set": (lambda: {1}, True, True),
    "frozenset": (lambda: frozenset({1}), True, True),
    "range": (lambda: range(3), True, True),
    "slice": (lambda: slice(3), True, True),
    "generator": (lambda: (x for x in "a"), True, True),
    "iterator": (lambda: iter([1]), True, True),
    "map": (lambda: map(int, ["1"]), True, True),
    "dict keys": ({"a": 1}.keys, True, True),
    "dict items": ({"a": 1}.items, True, True),
    "deque": (lambda: collections.deque([1]), True, True),
    "defaultdict": (lambda: collections.defaultdict(int, a=1), True, False),
    "OrderedDict": (lambda: collections.OrderedDict(a=1), True, False),
    "Counter": (lambda: collections.Counter("a"), True, False),
    "ChainMap": (lambda: collections.ChainMap({"a": 1}), True, True),
    "UserDict": (lambda: Mapping(a=1), True, True),
    "UserString": (lambda: collections.UserString("a"), True, True),
    "UserList": (lambda: collections.UserList([1]), True, True),
    "mappingproxy": (lambda: types.MappingProxyType({"a": 1}), True, True),
    "SimpleNamespace": (lambda: types.SimpleNamespace(a=1), True, True),
    "msgspec.Struct": (Struct, True, True),
    "msgspec.Raw": (lambda: msgspec.Raw(b"1"), True, True),
    "msgspec.UNSET": (lambda: msgspec.UNSET, True, True),
    "orjson.Fragment": (lambda: orjson.Fragment(b"1"), True, False),
    "ormsgpack.Ext": (lambda: ormsgpack.Ext(1, b"a"), False, True),
    "pydantic-like": (Model, True, True),
    "numpy-like scalar": (Scalar, True, True),
    "numpy-like array": (Array, True, True),
    "pretender": (Pretender, True, True),
    "object": (object, True, True),
    "Ellipsis": (lambda: ..., True, True),
    "NotImplemented": (lambda: NotImplemented, True, True),
    "type": (lambda: int, True, True),
    "generic alias": (lambda: list[int], True, True),
    "function": (lambda: _function, True, True),
    "lambda": (lambda: lambda: 0, True, True),
    "builtin": (lambda: len, True, True),
    "module": (lambda: math, True, True),
    "exception": (lambda: ValueError("a"), True, True),
    "path": (lambda: pathlib.PurePosixPath("a"), True, True),
    "pattern": (lambda: re.compile("a"), True, True),
    "match": (lambda: re.match("a", "a"), True, True),
    "file": (lambda: io.BytesIO(b"a"), True, True),
    "random generator": (lambda: random.Random(1), True, True),
    "ip address": (lambda: ipaddress.ip_address("::1"), True, True),
    "struct": (lambda: struct.Struct("<d"), True, True),
}

PLACES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "root": (lambda value: value, ""),
    "list": (lambda value: [1, value], "/1"),
    "dict": (lambda value: {"a": {"b/~": value}}, "/a/b~1~0"),
    "after a NaN": (lambda value: [float("nan"), {"a": [value]}], "/1/a/0"),
    "tuple": (lambda value: ([], (0, value)), "/1/1"),
    "map": (lambda value: {1: value}, "/0/1"),
}


def _refuses(call: Callable[[], Any]) -> bool:
    try:
        call()
    except (orjson.JSONEncodeError, ormsgpack.MsgpackEncodeError):
        return True
    return False


@pytest.mark.parametrize("name", REFUSED)
def test_each_odd_type_is_refused_by_the_encoder_that_the_fast_path_relies_on(name: str) -> None:
    """Pinned for the locked versions of both: a change here changes what is trusted."""
    make, by_ormsgpack, by_orjson = REFUSED[name]
    assert _refuses(lambda: ormsgpack.packb(make(), option=_STRICT)) is by_ormsgpack
    assert _refuses(lambda: orjson.dumps(make())) is by_orjson
    assert by_ormsgpack or by_orjson


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", REFUSED)
def test_an_odd_type_is_refused_with_its_pointer_and_type(name: str, place: str) -> None:
    """F21."""
    make, *_ = REFUSED[name]
    wrap, where = PLACES[place]
    value = make()
    with pytest.raises(ValueRefusedError) as caught:
        encode_value(wrap(value))
    assert caught.value.location.pointer == where
    assert type(value).__qualname__ in caught.value.message


def _hashable(name: str) -> bool:
    try:
        hash(REFUSED[name][0]())
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in REFUSED if _hashable(name)])
@pytest.mark.parametrize("others", [{}, {"z": 1}, {2: 2}], ids=["alone", "text", "map"])
def test_an_odd_type_is_refused_as_a_key(name: str, others: dict[Any, Any]) -> None:
    value = REFUSED[name][0]()
    with pytest.raises(ValueRefusedError) as caught:
        encode_value({"a": {**others, value: 1}})
    assert caught.value.location.pointer == f"/a/{len(others)}/0"
    assert type(value).__qualname__ in caught.value.message


def test_an_odd_type_is_refused_inside_a_tuple_key() -> None:
    with pytest.raises(ValueRefusedError) as caught:
        encode_value({"a": {(1, frozenset()): 1}})
    assert caught.value.location.pointer == "/a/0/0/1"


def test_a_refused_value_is_left_as_it_was() -> None:
    value = {"a": [float("nan"), (1, {2: b"x"})]}
    before = repr(value)
    with pytest.raises(ValueRefusedError):
        encode_value(value)
    assert repr(value) == before


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 2**64 - 1, 1.5, -0.0, "", "\x00\u2028é😀", [], {}, [[], {"": {}}]],
    ids=ascii,
)
def test_a_plain_value_takes_the_fast_path(value: object) -> None:
    assert _fast_text(value) is not None
    assert encode_value(value).text == orjson.dumps(value)


@pytest.mark.parametrize(
    "value",
    [(), [()], {1: 1}, {None: 1}, {True: 1}, {1.5: 1}, 2**64, -(2**63) - 1, "\ud800", {"\ud800": 1},
     math.nan, [math.inf], {"a": -math.inf}],
    ids=ascii,
)  # fmt: skip
def test_a_value_that_json_cannot_spell_is_not_taken_as_it_is(value: object) -> None:
    text = _fast_text(value)
    assert text is None or text.suspicious
    assert_same(restore(*_parts(value)), value)


def _parts(value: object) -> tuple[bytes, bytes | None]:
    encoded = encode_value(value)
    return encoded.text, encoded.annotations


def _from_bits(bits: int) -> float:
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    assert isinstance(number, float)
    return number


NOT_FINITE = [
    _from_bits(bits)
    for sign in (0, 1 << 63)
    for bits in (
        sign | 0x7FF0_0000_0000_0000,  # infinite
        sign | 0x7FF8_0000_0000_0000,  # quiet NaN
        sign | 0x7FF0_0000_0000_0001,  # signalling NaN
        sign | 0x7FF4_0000_0000_0000,
        sign | 0x7FFF_FFFF_FFFF_FFFF,
        sign | 0x7FF8_CBCB_CBCB_7FF0,
        sign | 0x7FFC_0000_CB7F_F000,
    )
]
# Finite, but with bytes of non-finite ones; the exponent next to the highest; 0xCB inside.
SUSPECT_FLOATS = [
    _from_bits(bits)
    for sign in (0, 1 << 63)
    for bits in (
        sign | 0x7FEF_FFFF_FFFF_FFFF,
        sign | 0x4BCB_7FF0_0000_0000,
        sign | 0x40CB_FFF8_CB7F_F8CB,
        sign | 0x0000_0000_00CB_7FF0,
        sign | 0x0000_0000_0000_CB7F,
        sign | 0x3FF0_0000_0000_00CB,
    )
]
# In MessagePack these integers hold 0xCB followed by what looks like a NaN.
SUSPECT_INTEGERS = [0xCB7FF8, 0xCBFFF8, 0xCB7FF0 << 8, 0xCBFFFF << 32, 0xCB7FF8CB7FF80000, 0xCB]


def _holds_non_finite(value: object) -> bool:
    """The plain walk against which the scan of bytes is judged."""
    if type(value) is float:
        return not math.isfinite(value)
    if type(value) is list:
        return any(map(_holds_non_finite, value))
    return type(value) is dict and any(map(_holds_non_finite, value.values()))


def _scan(value: object) -> bool:
    packed = ormsgpack.packb(value, option=_STRICT)
    return packed.find(b"\xcb") >= 0 and _NOT_FINITE.search(packed) is not None


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("before", range(40))
def test_the_scan_sees_a_non_finite_float_at_every_alignment(number: float, before: int) -> None:
    """F10."""
    for value in (
        ["x" * before, number],
        [*SUSPECT_FLOATS, *([0] * before), number],
        {"\u02ff" * before: {"k": number}},
        [0xCB] * before + [number],
        [0xCB7F] * before + [number, 1.5],
    ):
        assert _scan(value)
        text = _fast_text(value)
        assert text is not None
        assert text.suspicious


@pytest.mark.parametrize("value", [*SUSPECT_FLOATS, *SUSPECT_INTEGERS])
def test_a_suspicion_without_ground_costs_nothing_but_time(value: float | int) -> None:
    for holder in (value, [value], {"a": value}, [value] * 7):
        encoded = encode_value(holder)
        assert encoded.text == orjson.dumps(holder)
        assert encoded.annotations is None
        assert_same(restore(encoded.text), holder)


def test_some_integers_do_raise_the_suspicion() -> None:
    """Else the test above shows nothing."""
    assert _scan(SUSPECT_INTEGERS)
    assert not _holds_non_finite(SUSPECT_INTEGERS)


def test_text_never_raises_the_suspicion() -> None:
    """UTF-8 has 0xCB only as the first byte of two, before 0x80 to 0xBF."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    assert _NOT_FINITE.search(every.encode()) is None
    # A string's head in MessagePack ends in its length: 0xCB here, before the text.
    for length in (0xCB, 0xCB7F, 0xCBCB):
        assert not _scan(["\x7f" * length, "a" * length])


@given(
    st.recursive(
        st.sampled_from([*NOT_FINITE, *SUSPECT_FLOATS, *SUSPECT_INTEGERS, *AWKWARD_FLOATS])
        | st.floats()
        | st.integers(-(2**63), 2**64 - 1)
        | st.text(max_size=4)
        | st.sampled_from([number for number in AWKWARD_INTEGERS if 0 <= number < 2**64]),
        lambda inner: (
            st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_the_scan_misses_nothing_that_a_plain_walk_finds(value: object) -> None:
    if _holds_non_finite(value):
        assert _scan(value)
    text = _fast_text(value)
    assert text is not None
    assert text.suspicious is (_scan(value) and b"null" in text.json)
    assert text.json == orjson.dumps(value)
    assert_same(restore(*_parts(value)), value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [0, 1, 62, 63, 64, 65, 127, 128, 129, 199])
@pytest.mark.parametrize("fill", [0.5, 7, True, 1.7e308, -1.7e308, 2**64 - 1, -(2**63)], ids=repr)
def test_a_number_is_found_in_a_long_array_whose_other_sums_may_overflow(
    fill: float, at: int, number: float
) -> None:
    """Arrays are summed up in parts; a finite part may overflow, and infinities may cancel."""
    array = [*[fill] * at, number, *[fill] * (199 - at)]
    for value in (array, {"a": array, "b": [fill] * 200}, [array, [-math.inf, math.inf], array]):
        text = _fast_text(value)
        assert text is not None
        assert text.suspicious
        assert encode_value(value) == _Walk().encode(value)
        assert_same(restore(*_parts(value)), value)


@given(exact_values())
def test_both_paths_spell_a_value_alike(value: object) -> None:
    assert _Walk().encode(value) == encode_value(value)


def test_both_paths_spell_alike_what_takes_the_fast_one() -> None:
    seeded = random.Random(20)
    plain = [
        value
        for value in (random_value(seeded) for _ in range(2000))
        if _fast_text(value) is not None
    ]
    assert len(plain) > 200
    for value in plain:
        assert _Walk().encode(value).text == orjson.dumps(value)


@pytest.mark.parametrize("number", [*AWKWARD_FLOATS, *SUSPECT_FLOATS, 1e15, 1e17, 123456.7e-30])
def test_a_float_is_spelt_alike_beside_an_annotated_value(number: float) -> None:
    if math.isfinite(number):
        beside = encode_value([number, math.nan]).text
        assert beside == b"[" + orjson.dumps(number) + b",null]"
