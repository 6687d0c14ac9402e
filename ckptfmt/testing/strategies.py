"""Hypothesis strategies for what the format carries: values, JSON text, records.

:func:`random_value` draws from the same tables with a plain generator, for runs of
millions of values; it does not shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record

__all__ = [
    "AWKWARD_FLOATS",
    "AWKWARD_INTEGERS",
    "AWKWARD_STRINGS",
    "ODD_TOKENS",
    "episode_ids",
    "exact_values",
    "json_texts",
    "payloads",
    "random_value",
    "records",
]

_NAN: Final = float("nan")
_INF: Final = float("inf")

AWKWARD_FLOATS: Final[Sequence[float]] = (
    _NAN, -_NAN, _INF, -_INF, 0.0, -0.0, 1.0, -1.0, 0.1, 1e16, 1e22, 1e23, 1.5e300, 5e-324,
    -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 123456789012345680.0, 2.0**63,
)  # fmt: skip
"""Non-finite, signed zeros, subnormal, and such that spellings differ between encoders."""

AWKWARD_INTEGERS: Final[Sequence[int]] = (
    0, 1, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 2**64 + 1,
    -(2**65), 10**29 + 7, -(10**640), 10**4300 - 1, 1 - 10**4300, 0xCB7FF0, 0x7FCBFFF8,
)  # fmt: skip
"""Around 53, 64 and 65 bits, 30, 640 and 4,300 digits, and bytes like those of a NaN."""

AWKWARD_STRINGS: Final[Sequence[str]] = (
    "", "0", "-0", "01", "10", "9", "~", "/", "~0", "~1", "a/b~c", "$exact", "$", "nan", "NaN",
    "null", "true", "episode_id", "\x00", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ufffd",
    '"', "\\", "\\u0000", "\n", "\r\n", "\t", "\x1b[31m", "\u202e", "\ud800", "\udfff",
    "\ud83d\ude00", "\ude00\ud83d", "\U0001f600", "\U0001f600\ud800", "\ufffd\ud800\ufffd",
    "\u02fd", "\u02ff\u07ff", "e\u0301", "\u00e9", "\U0010ffff", "\ufffe", "a" * 300,
)  # fmt: skip
"""Control and bidi characters, lone and split surrogates, pointer escapes, reserved names."""

ODD_TOKENS: Final[Sequence[str]] = (
    "1E5", "1e+5", "1E-5", "-0", "-0.0", "0e0", "-0E-0", "0.1000000000000000055", "1.0", "1e400",
    "-1e400", "1e-400", "123456789012345678901234567890", "-18446744073709551616", "9" * 400,
    "9007199254740993.0", "2.2250738585072011e-308", "0." + "3" * 60, r'"\u0041"', r'"\/"',
    r'"\ud83d\ude00"', r'"\ud800"', r'"\udc00\ud800"', r'"\\ud800"', r'"\uD834\uDD1E\udd1e"',
    r'"é\u00e9"', r'"\u0000"', r'"\b\f\n\r\t"', '"\u2028\x7f\ufeff"', '"[{\\"]}"', r'"\\\""',
)  # fmt: skip
"""Spellings of scalars that no encoder writes, but that RFC 8259 permits."""

_SPACES: Final = ("", "", "", "", " ", "\n", "\t", "\r\n", "  ")


def exact_values(*, max_leaves: int = 20) -> st.SearchStrategy[Any]:
    """Any value that the format accepts."""
    scalars = _scalars()
    keys = st.one_of(_strings(), scalars, _tuple_keys(scalars))
    return st.recursive(
        scalars | st.lists(st.sampled_from(AWKWARD_FLOATS), max_size=12),
        lambda inner: st.one_of(
            st.lists(inner, max_size=6),
            st.lists(inner, max_size=6).map(tuple),
            st.dictionaries(_strings(), inner, max_size=6),
            st.dictionaries(keys, inner, max_size=4),
        ),
        max_leaves=max_leaves,
    )


def _strings() -> st.SearchStrategy[str]:
    # `characters()` draws surrogates too.
    return st.one_of(
        st.text(max_size=8), st.sampled_from(AWKWARD_STRINGS), st.text(st.characters(), max_size=8)
    )


def _scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(2**70), 2**70),
        st.sampled_from(AWKWARD_INTEGERS),
        st.floats(),
        st.sampled_from(AWKWARD_FLOATS),
        _strings(),
    )


def _tuple_keys(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.recursive(
        st.lists(scalars, max_size=5).map(tuple),
        lambda inner: st.lists(inner | scalars, max_size=3).map(tuple),
        max_leaves=6,
    )


def json_texts(*, max_leaves: int = 15) -> st.SearchStrategy[bytes]:
    """Any JSON text in UTF-8: odd spelling, white space, escapes, duplicate members."""
    scalars = st.one_of(
        st.sampled_from(("null", "true", "false")),
        st.sampled_from(ODD_TOKENS),
        st.integers().map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        _spelled_strings(),
    )
    texts = st.recursive(
        scalars,
        lambda inner: st.one_of(_spelled_arrays(inner), _spelled_objects(inner)),
        max_leaves=max_leaves,
    )
    return st.tuples(_spaces(), texts, _spaces()).map(lambda parts: "".join(parts).encode())


def _spaces() -> st.SearchStrategy[str]:
    return st.sampled_from(_SPACES)


def _spelled_strings() -> st.SearchStrategy[str]:
    """String tokens in which each character is raw or escaped, whichever was drawn."""
    escaped = st.integers(0, 0xFFFF).map("\\u{:04x}".format)
    upper = st.integers(0xD700, 0xE0FF).map("\\u{:04X}".format)
    short = st.sampled_from((r"\"", r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t"))
    raw = st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters='"\\')
    pieces = st.lists(st.one_of(raw, escaped, upper, short), max_size=6)
    return pieces.map(lambda parts: f'"{"".join(parts)}"')


def _spelled_arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    elements = st.lists(st.tuples(_spaces(), inner, _spaces()).map("".join), max_size=4)
    return st.tuples(_spaces(), elements).map(
        lambda parts: f"[{','.join(parts[1]) if parts[1] else parts[0]}]"
    )


def _spelled_objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # Few names, one of them in two spellings: duplicates are common.
    names = st.sampled_from(('"a"', r'"\u0061"', '"b"', '"$exact"', '""')) | _spelled_strings()
    member = st.tuples(_spaces(), names, _spaces(), st.just(":"), _spaces(), inner, _spaces())
    return st.lists(member.map("".join), max_size=4).map(lambda parts: f"{{{','.join(parts)}}}")


def payloads() -> st.SearchStrategy[JsonPayload]:
    """Payloads of either origin."""
    from_values = exact_values(max_leaves=8).map(JsonPayload.from_value)
    return st.one_of(from_values, json_texts(max_leaves=8).map(JsonPayload.from_json))


def episode_ids() -> st.SearchStrategy[EpisodeId]:
    """Episodes of any attempt; their rollout ids never end like an attempt."""
    rollouts = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
    attempts = st.integers(0, 3) | st.integers(0, 2**63 - 1)
    return st.builds(EpisodeId, rollouts.map(lambda text: f"{text}_"), attempts)


def records() -> st.SearchStrategy[Record]:
    """Records of no role's schema, with any members and mostly with a sub-key."""
    text = st.text(max_size=6) | st.sampled_from(AWKWARD_STRINGS)
    names = text.filter(lambda name: name not in ("episode_id", "sub_key") and _is_member(name))
    members = st.dictionaries(names, payloads(), max_size=4)
    sub_keys = st.none() | st.text(max_size=8).map(JsonPayload.from_value)
    return st.builds(
        lambda episode_id, members, sub_key: Record(
            episode_id=episode_id,
            members={**members, **({} if sub_key is None else {"sub_key": sub_key})},
        ),
        episode_ids(),
        members,
        sub_keys,
    )


def _is_member(name: str) -> bool:
    return not name.startswith("$") and not any("\ud800" <= mark <= "\udfff" for mark in name)


def random_value(random: Random, depth: int = 4) -> Any:
    """One accepted value of at most ``depth`` levels above its scalars."""
    kind = random.randrange(8) if depth else 0
    if kind < 3:
        return _random_scalar(random)
    count = random.choice((0, 1, 2, 3, 5, 8))
    if kind == 3:
        return [random.choice(AWKWARD_FLOATS) for _ in range(count)]
    if kind in (4, 5):
        elements = [random_value(random, depth - 1) for _ in range(count)]
        return elements if kind == 4 else tuple(elements)
    key = _random_string if kind == 6 else _random_key
    return {key(random): random_value(random, depth - 1) for _ in range(count)}


def _random_scalar(random: Random) -> Any:
    match random.randrange(8):
        case 0:
            return random.choice((None, True, False))
        case 1:
            return random.choice(AWKWARD_INTEGERS[:12])
        case 2:
            return random.getrandbits(random.randrange(1, 80)) - 2**62
        case 3:
            return random.choice(AWKWARD_FLOATS)
        case 4:
            return random.uniform(-1e9, 1e9)
        case _:
            return _random_string(random)


def _random_string(random: Random) -> str:
    if random.random() < 0.4:
        return random.choice(AWKWARD_STRINGS)
    top = random.choice((0x7F, 0x7F, 0xFF, 0xFFFF, 0x10FFFF))
    return "".join(chr(random.randint(0, top)) for _ in range(random.randrange(12)))


def _random_key(random: Random) -> Any:
    if random.random() < 0.3:
        return tuple(_random_scalar(random) for _ in range(random.randrange(6)))
    return _random_scalar(random)
