from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptfmt.errors import DepthError, JsonSyntaxError, SizeError
from ckptfmt.exact.skim import Path as Place
from ckptfmt.exact.skim import Skim

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)
ANY_BYTES = st.text(st.sampled_from('[]{},:"\\ \t\n0123456789+-.eEtrufalsn/b\x00é')).map(str.encode)


def refuse(name: str) -> NoReturn:
    raise ValueError(name)


def is_json(text: bytes) -> bool:
    """What the standard library says; numbers are not converted."""
    try:
        json.loads(text.decode(), parse_constant=refuse, parse_int=len, parse_float=len)
    except ValueError:
        return False
    return True


def skimmed(text: bytes, cut: int) -> dict[Place, bytes]:
    """Every value in ``text``, which comes in pieces of ``cut`` bytes."""
    found: dict[Place, bytes] = {}

    def tell(path: Place, begin: int, end: int) -> None:
        found[path] = text[begin:end]

    skim = Skim(lambda _: True, tell)
    for start in range(0, len(text), cut):
        skim.feed(text[start : start + cut])
    skim.end()
    return found


def takes(text: bytes, cut: int, *, watched: bool) -> bool:
    skim = Skim(lambda _: watched, lambda *_: None)
    try:
        for start in range(0, len(text), cut):
            skim.feed(text[start : start + cut])
        skim.end()
    except JsonSyntaxError:
        return False
    return True


def agrees(text: bytes) -> None:
    wanted = is_json(text)
    for cut in (1, 2, 3, 7, max(len(text), 1)):
        for watched in (False, True):
            assert takes(text, cut, watched=watched) is wanted, (text, cut, watched)


def test_it_judges_the_suite_as_the_standard_library_does(shared_data: Path) -> None:
    judged = 0
    for path in sorted((shared_data / "json-test-suite").glob("*/*.json")):
        text = path.read_bytes()
        try:
            text.decode()
            wanted = is_json(text)
        except (UnicodeDecodeError, RecursionError):
            continue
        if text.count(b"[") < 500:
            judged += 1
            assert takes(text, 5, watched=False) is wanted, path.name
            assert takes(text, 5, watched=True) is wanted, path.name
    assert judged > 250


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_it_takes_every_value(value: Any, indent: Any, ascii_only: bool) -> None:
    agrees(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode())


@given(VALUES, st.data())
def test_a_byte_put_in_or_left_out_is_judged_as_the_standard_library_does(
    value: Any, data: st.DataObject
) -> None:
    text = json.dumps(value).encode()
    at = data.draw(st.integers(0, len(text)))
    put_in = data.draw(st.sampled_from([b"", *(bytes([byte]) for byte in b'[]{},:"\\ 01-.e\x1fx')]))
    agrees(text[:at] + put_in + text[at + data.draw(st.integers(0, 1)) :])


@given(ANY_BYTES)
@example(b"01")
@example(b"-")
@example(b"1.")
@example(b"1e+")
@example(b"[1,]")
@example(b'{"a":1,}')
@example(b'{"a"}')
@example(b'"\\u12G4"')
@example(b'"\\')
@example(b"[1 2]")
@example(b"nul")
@example(b"[true,falsee]")
@example(b"1 1")
def test_any_bytes_are_judged_as_the_standard_library_does(text: bytes) -> None:
    agrees(text)


@given(VALUES, st.integers(1, 9))
def test_it_tells_where_every_value_stands(value: Any, cut: int) -> None:
    def wanted(value: Any, path: Place) -> dict[Place, Any]:
        steps = value.items() if isinstance(value, dict) else enumerate(value)
        found: dict[Place, Any] = {}
        for step, child in steps:
            found[(*path, step)] = child
            if isinstance(child, dict | list):
                found |= wanted(child, (*path, step))
        return found

    found = skimmed(json.dumps(value, indent=1).encode(), cut)
    told = {path: json.loads(text) for path, text in found.items()}
    assert told == {(): value} | (wanted(value, ()) if isinstance(value, dict | list) else {})


@pytest.mark.parametrize("digits", [b"1" * 5_000, b"-0." + b"1" * 5_000, b"1e" + b"0" * 5_000])
def test_a_number_of_any_length_is_kept_in_little(digits: bytes) -> None:
    text = b" [%b,2] " % digits
    assert skimmed(text, 7) == {(0,): digits, (1,): b"2", (): text.strip()}
    agrees(digits)
    agrees(b"0" + digits)
    agrees(digits + b"x")


def test_what_is_nested_too_deep_is_refused_before_it_is_kept() -> None:
    assert takes(b"[" * 500 + b"]" * 500, 64, watched=False)
    with pytest.raises(DepthError):
        takes(b"[" * 501, 64, watched=False)


def test_a_name_that_would_have_to_be_kept_is_bounded() -> None:
    text = b'{"%b":1}' % (b"n" * (2 << 20))
    assert takes(text, 1 << 16, watched=False)
    with pytest.raises(SizeError):
        takes(text, 1 << 16, watched=True)
