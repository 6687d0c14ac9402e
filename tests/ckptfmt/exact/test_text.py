"""JSON text is judged by RFC 8259, and decoded as ``json.loads`` decodes it."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import DepthError, IntegerError, JsonSyntaxError
from ckptfmt.exact import check_json, decode_json
from ckptfmt.testing.same import assert_same
from ckptfmt.testing.strategies import ODD_TOKENS, json_texts
from ckptfmt.wire import MAX_DEPTH, MAX_INLINE_DEPTH
from tests.support.amounts import random_values
from tests.support.deep import at_depth, integer_limit


class _RefusedError(Exception):
    pass


def _refuse(constant: str) -> None:
    raise _RefusedError(constant)


def _by_the_book(data: bytes) -> list[object] | None:
    """What RFC 8259 and Python's own decoder say: [value], or None for no JSON."""
    try:
        return [json.loads(data.decode(), parse_constant=_refuse)]
    except (ValueError, _RefusedError):
        return None


def _check(data: bytes) -> None:
    wanted = _by_the_book(data)
    if wanted is None:
        with pytest.raises(JsonSyntaxError) as caught:
            check_json(data)
        offset = caught.value.location.offset
        assert offset is not None
        assert 0 <= offset <= len(data)
        return
    inline = check_json(data)
    assert_same(decode_json(data), wanted[0])
    assert inline is _may_stand_in_a_line(data, wanted[0])


def _may_stand_in_a_line(data: bytes, value: object) -> bool:
    if {0x0A, 0x0D} & set(data) or data.strip() != data:
        return False
    # Duplicate members are not in the value: look at all of them.
    members = json.loads(data, object_pairs_hook=list, parse_int=len, parse_float=len)
    return not any(0xD800 <= ord(mark) < 0xE000 for mark in _characters(members))


def _characters(value: object) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list | tuple) else ()
    return "".join(map(_characters, parts))


@given(json_texts())
def test_any_json_text_is_accepted_and_decoded_as_python_does(data: bytes) -> None:
    """F13."""
    assert _by_the_book(data) is not None
    _check(data)


@pytest.mark.parametrize("token", ODD_TOKENS)
@pytest.mark.parametrize("form", ["%s", "[%s]", " [ %s\t,\n%s]\r\n", '{"a":%s,"a":%s}', '{"é":%s}'])
def test_an_odd_spelling_is_accepted_everywhere(token: str, form: str) -> None:
    _check(form.replace("%s", token).encode())


MARKS = [b'"', b"\\", b"\\u", b"0", b"-", b"+", b".", b"e", b",", b":", b" ", b"[", b"]", b"{",
b"}",
         b"NaN", b"Infinity", b"-Infinity", b"true", b"nul", b"\x00", b"\x0b", b"\x0c", b"\x1f",
         b"\x7f",
         b"\x80", b"\xff", b"\xc2\xa0", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc0\xaf", b"//", b"'",
         b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\xd9\xa1", b"0x", b"1_0", b"\\x",
         b"\\'"]  # fmt: skip


@pytest.mark.fuzz
def test_a_damaged_text_is_judged_as_the_book_does() -> None:
    draw = random.Random(41)
    for _ in range(random_values(4000)):
        first, second = draw.choices(ODD_TOKENS, k=2)
        name = draw.choice(['"a"', '"é\\u00e9"', '""'])
        text = bytearray(f"[{first}, {{{name}: {second}}}]".encode())
        for _ in range(draw.randrange(1, 3)):
            place = draw.randrange(len(text) + 1)
            text[place : place + draw.randrange(3)] = draw.choice([b"", *MARKS])
        _check(bytes(text))


@given(st.binary(max_size=12))
def test_any_bytes_are_judged_as_the_book_does(data: bytes) -> None:
    _check(data)


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0), (b"  ", 2), (b"[1,]", 3), (b"[1 2]", 3), (b'{"a" 1}', 5), (b'["\xc3\xa9" 1]', 6),
        (b"nul", 0), (b'["NaN",NaN]', 7), (b'{"Infinity":-Infinity}', 12),
        (b'["a\\"NaN", Infinity]', 11),
        (b'["\xff"]', 2), (b'["\xed\xa0\x80"]', 2), (b"\xef\xbb\xbf1", 0), (b"1 2", 2),
        (b"[1]]", 3),
        (b'"\n"', 1), (b'"\\x"', 1), (b"01", 1), (b"1.", 1), (b"\x00", 0), (b"{1:2}", 1),
    ],
)  # fmt: skip
def test_the_error_has_the_offset_in_bytes(data: bytes, offset: int) -> None:
    """F24."""
    with pytest.raises(JsonSyntaxError) as caught:
        check_json(data)
    assert caught.value.location.offset == offset


def test_a_syntax_error_shows_nothing_of_the_text() -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        check_json(b'["secret", secret]')
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "inline"),
    [
        (b'{"a":"\\u0041\xc3\xa9", "b" : 1}', True), (b'"\\ud83d\\ude00"', True),
        (b'"\\\\ud800"', True),
        (b'"\\ud800"', False), (b'{"\\uDFFF":1}', False), (b'"\\ud83d \\ude00"', False),
        (b'"\\ude00\\ud83d"', False), (b'"\\ud83d\\n\\ude00"', False),
        (b'"\\ud83d\\ud83d\\ude00"', False),
        (b'"\\ud83d\\ude00\\ude00"', False), (b'"\\\\\\ud800"', False), (b'"\\uD83D\\uDE00"', True),
        (b"[1,\n2]", False), (b"[1,\r2]", False), (b'"\\n\\r"', True), (b"[1,\t2]", True),
        (b" 1", False), (b"1 ", False), (b"\t1", False), (b'" 1 "', True), (b"[ 1 ]", True),
    ],
)  # fmt: skip
def test_which_text_may_stand_inside_a_line(data: bytes, inline: bool) -> None:
    assert check_json(data) is inline
    _check(data)


@pytest.mark.parametrize("frames", [0, 600, 900])
@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"\\"[":', b"}]")]
)
def test_499_levels_are_accepted_and_500_are_not(
    frames: int, opening: bytes, closing: bytes
) -> None:
    """F22."""
    step = 2 if opening.startswith(b"[{") else 1
    for levels in (MAX_INLINE_DEPTH, MAX_INLINE_DEPTH + step, MAX_DEPTH - step, MAX_DEPTH, 5000):
        count = levels // step
        data = opening * count + b"1e400" + closing * count
        if levels < MAX_DEPTH:
            inline = at_depth(frames, lambda data=data: check_json(data))  # type: ignore[misc]
            assert inline is (levels <= MAX_INLINE_DEPTH)
            found = at_depth(frames, lambda data=data: decode_json(data))  # type: ignore[misc]
            while isinstance(found, list | dict):
                (found,) = found if isinstance(found, list) else found.values()
            assert found == math.inf
        else:
            with pytest.raises(DepthError) as caught:
                at_depth(frames, lambda data=data: check_json(data))  # type: ignore[misc]
            assert (caught.value.location.pointer or "").count("/") == MAX_DEPTH - 1
            assert caught.value.location.offset == data.index(opening) + len(
                opening * ((MAX_DEPTH - 1) // step)
            ) + ((MAX_DEPTH - 1) % step)


def test_brackets_in_strings_are_no_levels() -> None:
    for data in (
        b'["' + b"[" * 5000 + b'"]',
        b'{"' + b'\\"{' * 5000 + b'":1}',
        b'["' + b"\\\\" * 300 + b'",' + b"[" * 400 + b"]" * 400 + b"]",
        b'["\\\\\\"' + b"[" * 600 + b'"]',
        b"[" + b"[]," * 2000 + b"1]",
        b"[" + b'{"a":[]},' * 2000 + b"1]",
    ):
        check_json(data)
        assert_same(decode_json(data), json.loads(data))


@pytest.mark.parametrize(
    ("start", "where"),
    [
        (b'{"a/b":', "/a~1b"),
        (b'{"x":["y",{"z":1}],"~":', "/~0"),
        (b'[1,"a",{"b":[]},', "/3"),
        (b'{"\\u0061\\n\\"":', '/a\n"'),
        (b'{"\xc3\xa9":', "/\u00e9"),
        (b'{"":', "/"),
    ],
)
def test_the_pointer_of_what_is_too_deep(start: bytes, where: str) -> None:
    with pytest.raises(DepthError) as caught:
        check_json(start + b"[" * 600)
    pointer = caught.value.location.pointer
    assert pointer is not None
    assert pointer == where + "/0" * (MAX_DEPTH - 2)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"[[" * 400 + b"]"])
@pytest.mark.parametrize("frames", [0, 900])
def test_openings_without_end_are_refused(data: bytes, frames: int) -> None:
    with pytest.raises((DepthError, JsonSyntaxError)) as caught:
        at_depth(frames, lambda: check_json(data))
    assert caught.value.location.offset is not None


@pytest.mark.parametrize("limit", [640, 4300, 0])
@pytest.mark.parametrize("sign", [b"", b"-"])
def test_integers_are_decoded_up_to_4300_digits_under_any_limit(limit: int, sign: bytes) -> None:
    """F11."""
    with integer_limit(limit):
        for digits in (18, 19, 20, 640, 641, 4299, 4300):
            text = b'[0.5,"a",' + sign + b"7" * digits + b"]"
            assert check_json(text)
            number = decode_json(text)[2]
            assert type(number) is int
            sevens = 7 * (10**digits - 1) // 9
            assert number == (-sevens if sign else sevens)
        for digits in (4301, 100_000):
            text = sign + b"7" * digits
            assert check_json(text)
            with pytest.raises(IntegerError, match=str(digits)):
                decode_json(text)


@pytest.mark.parametrize(
    "text",
    ["-0", "-0.0", "1e400", "-1e400", "1e-400", "1E5", "1.0", "1", "123456789012345678901234567890",
     "9007199254740993", "0.1000000000000000055", "2.2250738585072011e-308", "1e23", "8.5e-324",
     "179769313486231580793728971405301e276", "0." + "0" * 400 + "1", "1" * 309 + ".0",
     "1" * 310 + ".5"],
)  # fmt: skip
def test_numbers_are_those_of_python(text: str) -> None:
    """F11, F12."""
    assert_same(decode_json(text.encode()), json.loads(text))


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
)
def test_any_number_is_that_of_python(text: str) -> None:
    assert_same(decode_json(text.encode()), json.loads(text))
