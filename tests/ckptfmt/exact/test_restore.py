"""Annotations that do not fit are corrupt: nothing is guessed, no other error escapes."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError, IntegerError
from ckptfmt.exact import encode, restore
from ckptfmt.exact.restore import verbatim
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import random_value
from tests.support.amounts import random_values
from tests.support.deep import at_depth, integer_limit, nested

BAD_ENTRIES = {
    "no list": "{}",
    "null": "null",
    "a string": '"nan"',
    "empty": "[]",
    "not JSON": "[[",
    "trailing garbage": '[["","nan"]]x',
    "an entry that is no list": '["nan"]',
    "an object as entry": '[{"":"nan"}]',
    "an entry of one": '[[""]]',
    "an empty entry": "[[]]",
    "an entry of four": '[["/0","nan*",[0,1],0]]',
    "a pointer that is a number": '[[0,"nan"]]',
    "a pointer that is null": '[[null,"nan"]]',
    "a tag that is a number": '[["",0]]',
    "a tag that is a list": '[["",["nan"]]]',
    "an unknown tag": '[["/a/0","what"]]',
    "an empty tag": '[["/a/0",""]]',
    "a tag in capitals": '[["/a/0","NaN"]]',
    "a starred map": '[["/pairs","map*",[0,1]]]',
    "starred surrogates": '[["/s","sur*",[0,1]]]',
    "a starred text": '[["","text*",[0,1]]]',
    "nan with an argument": '[["/a/0","nan",[0,1]]]',
    "tuple with null as argument": '[["/a","tuple",null]]',
    "nan* without argument": '[["/a","nan*"]]',
    "sur without argument": '[["/s","sur"]]',
    "no pointer": '[["a","tuple"]]',
    "a half escape": '[["/a~","tuple"]]',
    "an unknown escape": '[["/a~2","tuple"]]',
    "no such member": '[["/b","tuple"]]',
    "an empty token": '[["/","tuple"]]',
    "an index past the end": '[["/a/9","nan"]]',
    "the index after the last": '[["/a/-","nan"]]',
    "a negative index": '[["/a/-1","nan"]]',
    "an index with a leading zero": '[["/a/00","nan"]]',
    "an index with a sign": '[["/a/+0","nan"]]',
    "an index with a space": '[["/a/ 0","nan"]]',
    "an index in other digits": '[["/a/\\u0660","nan"]]',
    "an index of 30 digits": '[["/a/000000000000000000000000000000","nan"]]',
    "an index beyond 64 bits": '[["/a/99999999999999999999999999","nan"]]',
    "a name in an array": '[["/a/x","nan"]]',
    "through a string": '[["/s/0","nan"]]',
    "through null": '[["/a/0/0","nan"]]',
    "through a number": '[["/n/0","nan"]]',
    "nan on a number": '[["/n","nan"]]',
    "nan on a string": '[["/s","nan"]]',
    "nan on an array": '[["/a","nan"]]',
    "nan on false": '[["/f","nan"]]',
    "inf on zero": '[["/z","inf"]]',
    "tuple on an object": '[["","tuple"]]',
    "tuple on null": '[["/a/0","tuple"]]',
    "tuple on a string": '[["/s","tuple"]]',
    "nan* on an object": '[["","nan*",[0,1]]]',
    "nan* on null": '[["/a/0","nan*",[0,1]]]',
    "nan* on other elements": '[["/m","nan*",[0,2]]]',
    "tuple* on other elements": '[["/m","tuple*",[0,2]]]',
    "map on an object": '[["","map"]]',
    "map on an array of no pairs": '[["/a","map"]]',
    "map on a pair of three": '[["/three","map"]]',
    "map on a pair that is an object": '[["/objects","map"]]',
    "map on null": '[["/a/0","map"]]',
    "map with a key that is a list": '[["/lists","map"]]',
    "map with a key that is an object": '[["/dicts","map"]]',
    "map with a key that is a dict": '[["/maps/0/0","map"],["/maps","map"]]',
    "map with equal keys": '[["/twice","map"]]',
    "map with keys that Python finds equal": '[["/equal","map"]]',
    "map with equal tuple keys": (
        '[["/tuples/0/0","tuple"],["/tuples/1/0","tuple"],["/tuples","map"]]'
    ),
    "map with an unhashable tuple key": '[["/nested/0/0","tuple"],["/nested","map"]]',
    "sur on null": '[["/a/0","sur",[0,55296]]]',
    "sur on a number": '[["/n","sur",[0,55296]]]',
    "sur where no U+FFFD stands": '[["/s","sur",[0,55296]]]',
    "sur past the end": '[["/u","sur",[9,55296]]]',
    "sur at a negative index": '[["/u","sur",[-1,55296]]]',
    "sur beyond 64 bits": '[["/u","sur",[99999999999999999999,55296]]]',
    "sur with a scalar value": '[["/u","sur",[0,65]]]',
    "sur with a code below": '[["/u","sur",[0,55295]]]',
    "sur with a code above": '[["/u","sur",[0,57344]]]',
    "sur with half a pair": '[["/u","sur",[0]]]',
    "sur with an empty argument": '[["/u","sur",[]]]',
    "sur with an argument that is no list": '[["/u","sur",0]]',
    "sur with null as argument": '[["/u","sur",null]]',
    "sur with a float index": '[["/u","sur",[0.0,55296]]]',
    "sur with a bool index": '[["/u","sur",[false,55296]]]',
    "sur with a string as code": '[["/u","sur",[0,"55296"]]]',
    "sur in descending order": '[["/u","sur",[1,55296,0,55296]]]',
    "sur with an index twice": '[["/u","sur",[0,55296,0,55297]]]',
    "runs past the end": '[["/a","nan*",[0,99]]]',
    "runs beyond 64 bits": '[["/a","nan*",[0,99999999999999999999]]]',
    "runs that touch": '[["/a","nan*",[0,1,0,1]]]',
    "a run of none": '[["/a","nan*",[0,0]]]',
    "a negative gap": '[["/a","nan*",[-1,1]]]',
    "runs of floats": '[["/a","nan*",[0,1.0]]]',
    "runs of bools": '[["/a","nan*",[false,true]]]',
    "half a run": '[["/a","nan*",[0,1,2]]]',
    "no runs": '[["/a","nan*",[]]]',
    "runs that are null": '[["/a","nan*",null]]',
    "runs that are an object": '[["/a","nan*",{"0":1}]]',
    "nan twice": '[["/a/0","nan"],["/a/0","nan"]]',
    "nan, then inf": '[["/a/0","nan"],["/a/0","inf"]]',
    "nan in two forms": '[["/a/0","nan"],["/a","nan*",[0,2]]]',
    "tuple twice": '[["/a","tuple"],["/a","tuple"]]',
    "tuple in two forms": '[["/m/2","tuple"],["/m","tuple*",[2,1]]]',
    "map twice": '[["/pairs","map"],["/pairs","map"]]',
    "map, then tuple": '[["/pairs","map"],["/pairs","tuple"]]',
    "sur twice": '[["/u","sur",[0,55296]],["/u","sur",[1,55296]]]',
    "a tuple before its element": '[["/a","tuple"],["/a/0","nan"]]',
    "a tuple before its elements": '[["/a","tuple"],["/a","nan*",[0,2]]]',
    "a map before its key": '[["/pairs","map"],["/pairs/0/1","nan"]]',
    "a map before what its key names": '[["/pairs","map"],["/pairs/k","nan"]]',
    "a pair that is a tuple": '[["/pairs/0","tuple"],["/pairs","map"]]',
    "text on an object": '[["","text"]]',
    "text elsewhere": '[["/s","text"]]',
    "text with company": '[["","text"],["/a/0","nan"]]',
    "text after company": '[["/a/0","nan"],["","text"]]',
    "text twice": '[["","text"],["","text"]]',
    "a lone surrogate in a pointer": '[["/\\ud800","nan"]]',
}
STORED = (
    '{"a":[null,null],"s":"plain","u":"\ufffd\ufffd","n":1,"z":0,"f":false,"m":[1,"",[]],'
    '"pairs":[["k",null]],"three":[[1,2,3]],"objects":[{"0":1,"1":2}],"lists":[[[],1]],'
    '"dicts":[[{},1]],"maps":[[[],1]],"twice":[["k",1],["k",2]],"equal":[[1,1],[1.0,2],[true,3]],'
    '"tuples":[[[1],1],[[1],2]],"nested":[[[[]],1]]}'
).encode()


@pytest.mark.parametrize("name", BAD_ENTRIES)
def test_annotations_that_do_not_fit_are_corrupt(name: str) -> None:
    with pytest.raises(CorruptError):
        restore(STORED, BAD_ENTRIES[name].encode())


@pytest.mark.parametrize(
    "entries",
    ['[["/a/0","nan"]]', '[["/a","nan*",[0,2]],["/a","tuple"]]',
     '[["/pairs/0/1","inf"],["/pairs","map"]]',
     '[["/u","sur",[0,55296,1,57343]]]', '[["/m/2","tuple"]]',
     '[["/maps/0/0","tuple"],["/maps","map"]]'],
)  # fmt: skip
def test_the_same_value_takes_annotations_that_fit(entries: str) -> None:
    """Else the test above could pass for another reason."""
    assert restore(STORED, entries.encode()) != json.loads(STORED)


@pytest.mark.parametrize(
    ("entries", "where"),
    [('[["/a/7","nan"]]', "/a/7"), ('[["/a/0","what"]]', "/a/0"), ('[["","text"],["","nan"]]', "")],
)
def test_the_error_has_the_pointer(entries: str, where: str) -> None:
    with pytest.raises(CorruptError) as caught:
        restore(STORED, entries.encode())
    assert caught.value.location.pointer == where


@pytest.mark.parametrize(
    "stored", [b"", b"[", b"nan", b"NaN", b"[NaN]", b'"\xff"', b"[" * 5000, b"1 2", b'"\x01"']
)
@pytest.mark.parametrize("annotations", [None, b'[["/0","nan"]]', b'[["","text"]]'])
def test_unreadable_text_is_corrupt(stored: bytes, annotations: bytes | None) -> None:
    with pytest.raises(CorruptError):
        restore(stored, annotations)


@pytest.mark.parametrize(
    "text", ["nope", "", "[", "NaN", "[1,]", "\ud800", "1 2", "\ufeff1"], ids=ascii
)
def test_a_stored_text_that_is_no_json_is_corrupt(text: str) -> None:
    """Neither decoded nor handed out as JSON."""
    stored = json.dumps(text).encode()
    with pytest.raises(CorruptError):
        restore(stored, b'[["","text"]]')
    with pytest.raises(CorruptError):
        verbatim(stored, b'[["","text"]]')


@pytest.mark.parametrize(
    "annotations", [b"[]", b"{}", b'[["","what"]]', b'[["","text"],["","text"]]']
)
def test_malformed_annotations_have_no_verbatim_bytes(annotations: bytes) -> None:
    with pytest.raises(CorruptError):
        verbatim(b'"1"', annotations)


@pytest.mark.parametrize("frames", [0, 600, 900])
@pytest.mark.parametrize("depth", [400, 2000, 100_000])
def test_deep_annotations_are_corrupt(frames: int, depth: int) -> None:
    for entries in (b"[" * depth, b"[" * depth + b"]" * depth, b'[["","nan*",' + b"[" * depth):
        with pytest.raises(CorruptError):
            at_depth(frames, lambda entries=entries: restore(b"null", entries))  # type: ignore[misc]


@pytest.mark.parametrize("frames", [0, 600, 900])
def test_equal_deep_keys_are_corrupt_from_any_stack(frames: int) -> None:
    key = nested(450, 1)
    stored = json.dumps([[key, 1], [key, 2]]).encode()
    entries = [
        *(
            [f"/{side}/0" + "/0" * level, "tuple"]
            for level in range(449, -1, -1)
            for side in (0, 1)
        ),
        ["", "map"],
    ]
    with pytest.raises(CorruptError):
        at_depth(frames, lambda: restore(stored, json.dumps(entries).encode()))


@pytest.mark.parametrize("limit", [640, 4300, 0])
def test_long_integers_in_annotations_are_corrupt_under_any_limit(limit: int) -> None:
    with integer_limit(limit):
        for digits in (700, 5000):
            entries = b'[["","nan*",[0,' + b"9" * digits + b"]]]"
            with pytest.raises(CorruptError):
                restore(b"[null]", entries)


def test_every_restored_nan_is_a_new_object() -> None:
    """One NaN twice as a key would be one key."""
    encoded = encode({math.nan: 1, float("nan"): 2, (math.nan,): 3, (float("nan"),): 4})
    for _ in range(2):
        restored = restore(encoded.text, encoded.annotations)
        assert len(restored) == 4
    nans = restore(*_parts([math.nan] * 6))
    assert len(set(map(id, nans))) == 6


def _parts(value: object) -> tuple[bytes, bytes | None]:
    encoded = encode(value)
    return encoded.text, encoded.annotations


def test_each_call_gives_a_value_of_its_own() -> None:
    text, annotations = _parts([(1, [math.nan]), {1: []}])
    first, second = restore(text, annotations), restore(text, annotations)
    first[0][1].append(0)
    first[1][1].append(0)
    assert_same(second, [(1, [math.nan]), {1: []}])


TARGETS = ["", "/0", "/a", "/0/0", "/1", "/-", "/00", "/", "/~", "/~2", "/9" * 30, "/0" * 30, "x"]
TAGS = ["nan", "inf", "-inf", "tuple", "map", "sur", "text", "nan*", "tuple*", "map*", "", "NaN", 1]
ARGS = [[0, 1], [0, 4], [1, 1], [0], [], [-1, 1], [True, 1], [0, 1.5], [0, 1, 0, 1], None,
"x", {}, 7,
        [0, 0xD800], [1, 0xDFFF, 0, 0xD800], [0, 65], [10**20, 10**20], [[0, 1]], ["0",
         1]]  # fmt: skip


def _mutated(entries: list[Any], draw: random.Random) -> list[Any]:
    entries = copy.deepcopy(entries) or [["", "tuple"]]
    for _ in range(draw.randrange(1, 3)):
        entry = draw.choice(entries)
        match draw.randrange(7):
            case 0:
                entries.append(copy.deepcopy(entry))
            case 1:
                draw.shuffle(entries)
            case 2:
                entry[0:1] = [draw.choice([*TARGETS, f"{entry[0]}/0", str(entry[0])[:-1]])]
            case 3:
                entry[1:2] = [draw.choice(TAGS)]
            case 4:
                entry[2:3] = [draw.choice(ARGS)]
            case 5:
                entries.insert(0, [draw.choice(TARGETS), draw.choice(TAGS)])
            case _:
                entry.pop()
                entry.append(draw.choice([None, 0, "", []]))
    return entries


def _damaged(data: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(damaged) + 1)
        match draw.randrange(3):
            case 0:
                del damaged[place : place + 1]
            case 1:
                damaged[place : place + 1] = bytes([draw.randrange(256)])
            case _:
                damaged[place:place] = draw.choice(
                    (b'"', b"[", b"]", b"null", b"9" * 5000, b",", rb"\ud800", b"\\", b"[" * 900)
                )
    return bytes(damaged)


def _only_known_outcomes(text: bytes, annotations: bytes | None) -> None:
    for call in (restore, verbatim):
        try:
            call(text, annotations)
        except (CorruptError, IntegerError):
            continue


@pytest.mark.fuzz
def test_mutated_text_and_annotations_give_a_value_or_a_typed_error() -> None:
    draw = random.Random(40)
    for _ in range(random_values(2000)):
        text, annotations = _parts(random_value(draw))
        entries = json.loads(annotations or b"[]")
        _only_known_outcomes(text, json.dumps(_mutated(entries, draw)).encode())
        _only_known_outcomes(_damaged(text, draw), annotations)
        _only_known_outcomes(text, _damaged(annotations or b'[["","text"]]', draw))


@given(st.binary(max_size=30), st.binary(max_size=30) | st.none())
def test_any_bytes_give_a_value_or_a_typed_error(text: bytes, annotations: bytes | None) -> None:
    _only_known_outcomes(text, annotations)


@given(st.text(max_size=20))
def test_any_stored_text_gives_a_value_or_a_typed_error(text: str) -> None:
    _only_known_outcomes(json.dumps(text).encode(), b'[["","text"]]')
