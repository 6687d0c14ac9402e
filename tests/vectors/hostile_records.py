"""Whole streams with lines that are no records, and values whose annotations do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.vectors.building import STREAM, Case, Made, make_stream

__all__ = ["hostile_records"]

EPISODE: Final = b'"episode_id":{"rollout_id":"r1","attempt":0}'


def hostile_records() -> Iterator[Case]:
    """All of them."""
    for name, line in _lines().items():
        code = "unsupported" if name == "record-reserved-member" else "corrupt"
        yield _case(name, code, line)
    for name, (state, entries) in _annotations().items():
        line = b'{%b,"state":%b,"$exact":{"state":%b}}'
        notes = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
        yield _case(f"exact-{name}", "corrupt", line % (EPISODE, json.dumps(state).encode(), notes))


def _case(name: str, code: str, line: bytes) -> Case:
    data, _ = make_stream([Made("r1", line, {})], name=name)
    return Case(name, {"code": code}, {STREAM: data})


def _lines() -> Mapping[str, bytes]:
    def of(members: bytes) -> bytes:
        return b"{%b,%b}" % (EPISODE, members)

    def episode(members: bytes) -> bytes:
        return b'{"episode_id":%b,"state":1}' % members

    return {
        "record-no-object": b"[1]",
        "record-no-json": b"{" + EPISODE,
        "record-two-values": b"{" + EPISODE + b"}{}",
        "record-trailing-comma": of(b'"state":[1,]'),
        "record-nan-literal": of(b'"state":NaN'),
        "record-infinity-literal": of(b'"state":[-Infinity]'),
        "record-leading-zero": of(b'"state":01'),
        "record-control-character": of(b'"state":"a\x01b"'),
        "record-not-utf8": of(b'"state":"\xff"'),
        "record-overlong-utf8": of(b'"state":"\xc0\xaf"'),
        "record-surrogate-in-utf8": of(b'"state":"\xed\xa0\x80"'),
        "record-byte-order-mark": b"\xef\xbb\xbf" + of(b'"state":1'),
        "record-lone-surrogate-escape": of(b'"state":["\\ud800"]'),
        "record-lone-surrogate-second": of(b'"state":"\\\\\\udc00"'),
        "record-lone-surrogate-key": of(b'"state":{"\\ud83d":1}'),
        "record-lone-surrogate-name": of(b'"st\\ud83d":1'),
        "record-reserved-member": of(b'"$later":1'),
        "record-member-twice": of(b'"state":1,"state":1'),
        "record-member-twice-escaped": of(b'"state":1,"st\\u0061te":2'),
        "record-episode-twice": of(EPISODE),
        "record-exact-twice": of(b'"state":null,"$exact":{},"$exact":{"state":[["","nan"]]}'),
        "record-exact-member-twice": of(
            b'"state":null,"$exact":{"state":[["","nan"]],"state":[["","inf"]]}'
        ),
        "record-exact-of-no-member": of(b'"state":1,"$exact":{"other":[["","nan"]]}'),
        "record-exact-of-episode": of(b'"state":1,"$exact":{"episode_id":[["/attempt","nan"]]}'),
        "record-exact-no-object": of(b'"state":1,"$exact":[["","nan"]]'),
        "record-nested-100000": of(b'"state":' + b'{"a":[' * 50_000 + b"]}" * 50_000),
        "record-no-episode": b'{"state":1}',
        "record-episode-null": episode(b"null"),
        "record-episode-string": episode(b'"r1"'),
        "record-episode-without-attempt": episode(b'{"rollout_id":"r1"}'),
        "record-episode-member-more": episode(b'{"rollout_id":"r1","attempt":0,"x":1}'),
        "record-episode-member-twice": episode(
            b'{"rollout_id":"r0","rollout_id":"r1","attempt":0}'
        ),
        "record-attempt-true": episode(b'{"rollout_id":"r1","attempt":true}'),
        "record-attempt-float": episode(b'{"rollout_id":"r1","attempt":0.0}'),
        "record-attempt-negative": episode(b'{"rollout_id":"r1","attempt":-1}'),
        "record-attempt-2-63": episode(b'{"rollout_id":"r1","attempt":9223372036854775808}'),
        "record-rollout-escapes": episode(b'{"rollout_id":"../r1","attempt":0}'),
        "record-rollout-hidden": episode(b'{"rollout_id":".r1","attempt":0}'),
        "record-rollout-line-break": episode(b'{"rollout_id":"r1\\n","attempt":0}'),
        "record-rollout-of-attempt": episode(b'{"rollout_id":"r1-a2","attempt":0}'),
        "record-rollout-number": episode(b'{"rollout_id":1,"attempt":0}'),
        "record-sub-key-number": of(b'"sub_key":1'),
        "record-sub-key-surrogate": of(
            b'"sub_key":"\xef\xbf\xbd","$exact":{"sub_key":[["","sur",[0,55296]]]}'
        ),
        "record-key-too-long": of(b'"sub_key":"%b"' % (b"/" * 400)),
    }


def _annotations() -> Mapping[str, tuple[Any, Any]]:
    return {
        **_malformed(),
        **_pointers(),
        **_targets(),
        **_runs(),
        **_surrogates(),
        **_maps(),
        **_texts(),
    }


def _malformed() -> dict[str, tuple[Any, Any]]:
    return {
        "no-list": (None, {"": "nan"}),
        "null": (None, None),
        "no-entries": (None, []),
        "entry-no-list": (None, ["nan"]),
        "entry-too-short": (None, [[""]]),
        "entry-too-long": (None, [["", "sur", [], []]]),
        "pointer-null": (None, [[None, "nan"]]),
        "tag-null": (None, [["", None]]),
        "tag-unknown": (None, [["", "date"]]),
        "tag-of-other-case": (None, [["", "NaN"]]),
        "tag-star-of-map": ([[["a", 1]]], [["", "map*", [0, 1]]]),
        "argument-missing": ([None] * 4, [["", "nan*"]]),
        "argument-too-many": (None, [["", "nan", []]]),
        "argument-null": ([None], [["", "nan*", None]]),
    }


def _pointers() -> dict[str, tuple[Any, Any]]:
    state = {"a": [None, None], "b~c": None, "s": "text"}
    entries = {
        "without-slash": "a",
        "bad-escape": "/b~2c",
        "bare-tilde": "/b~",
        "unescaped-tilde": "/b~c",
        "to-no-member": "/z",
        "into-null": "/a/0/0",
        "into-string": "/s/0",
        "index-out-of-range": "/a/2",
        "index-negative": "/a/-1",
        "index-with-sign": "/a/+1",
        "index-leading-zero": "/a/01",
        "index-dash": "/a/-",
        "index-empty": "/a/",
        "index-other-digits": "/a/\u0661",
        "index-spaces": "/a/ 1",
        "index-2-64": f"/a/{2**64}",
        "index-of-4000-digits": f"/a/{'1' * 4000}",
        "uri-fragment": "#/a/0",
    }
    return {f"pointer-{name}": (state, [[place, "nan"]]) for name, place in entries.items()}


def _targets() -> dict[str, tuple[Any, Any]]:
    pairs = [["a", [None]], [1, None]]
    return {
        "nan-of-number": (0, [["", "nan"]]),
        "inf-of-false": (False, [["", "inf"]]),
        "tuple-of-object": ({}, [["", "tuple"]]),
        "tuple-of-string": ("ab", [["", "tuple"]]),
        "map-of-object": ({}, [["", "map"]]),
        "surrogate-of-array": (["\ufffd"], [["", "sur", [0, 55296]]]),
        "target-twice-nan": (None, [["", "nan"], ["", "nan"]]),
        "target-twice-inf": ([None], [["/0", "nan"], ["/0", "inf"]]),
        "target-twice-tuple": ([], [["", "tuple"], ["", "tuple"]]),
        "target-twice-map": ([], [["", "map"], ["", "map"]]),
        "target-twice-starred": ([None] * 4, [["/1", "nan"], ["", "nan*", [0, 4]]]),
        "target-twice-surrogate": (
            "\ufffd\ufffd",
            [["", "sur", [0, 55296]], ["", "sur", [1, 55296]]],
        ),
        "parent-before-child-tuple": ([[None]], [["/0", "tuple"], ["/0/0", "nan"]]),
        "parent-before-child-map": (pairs, [["", "map"], ["/a/0", "nan"]]),
        "starred-of-null": (None, [["", "nan*", [0, 1]]]),
        "starred-of-object": ({"0": None}, [["", "nan*", [0, 1]]]),
        "starred-element-of-other-type": ([None, 1, None, None], [["", "nan*", [0, 4]]]),
    }


def _runs() -> dict[str, tuple[Any, Any]]:
    entries: dict[str, Any] = {
        "empty": [],
        "odd": [0, 1, 1],
        "count-zero": [0, 0],
        "touching": [0, 1, 0, 1],
        "gap-negative": [-1, 2],
        "count-negative": [3, -1],
        "out-of-range": [2, 4],
        "of-2-60": [0, 2**60],
        "of-2-64": [2**64, 2**64],
        "boolean": [0, True],
        "float": [0, 2.0],
        "string": "01",
        "object": {"0": 1},
        "nested": [[0, 1]],
    }
    return {f"runs-{name}": ([None] * 5, [["", "nan*", runs]]) for name, runs in entries.items()}


def _surrogates() -> dict[str, tuple[Any, Any]]:
    entries: dict[str, Any] = {
        "empty": [],
        "odd": [0],
        "index-out-of-range": [9, 55296],
        "index-negative": [-1, 55296],
        "index-of-other-character": [1, 55296],
        "index-twice": [0, 55296, 0, 55297],
        "index-descends": [2, 55296, 0, 55296],
        "code-below": [0, 55295],
        "code-above": [0, 57344],
        "code-float": [0, 55296.0],
        "index-boolean": [False, 55296],
        "string": "0",
    }
    state = "\ufffda\ufffd"
    return {f"surrogate-{name}": (state, [["", "sur", arg]]) for name, arg in entries.items()}


def _maps() -> dict[str, tuple[Any, Any]]:
    states: dict[str, Any] = {
        "of-no-pairs": [1, 2],
        "of-strings": ["ab"],
        "pair-too-short": [["a"]],
        "pair-too-long": [["a", 1, 2]],
        "key-twice": [["a", 1], ["a", 2]],
        "key-one-and-true": [[1, 1], [True, 2]],
        "key-zero-and-minus-zero": [[0, 1], [-0.0, 2]],
        "key-int-and-float": [[2**53, 1], [2.0**53, 2]],
        "key-array": [[[1], 1]],
        "key-object": [[{}, 1]],
    }
    found = {f"map-{name}": (state, [["", "map"]]) for name, state in states.items()}
    twice = [[[1], 1], [[True], 2]]
    entries = [["/0/0", "tuple"], ["/1/0", "tuple"], ["", "map"]]
    inner = [[[[["a", 1]]], 1]]
    return found | {
        "map-key-equal-tuples": (twice, entries),
        "map-key-of-map": (inner, [["/0/0", "map"], ["", "map"]]),
    }


def _texts() -> dict[str, tuple[Any, Any]]:
    return {
        "text-of-array": ([], [["", "text"]]),
        "text-below": (["1"], [["/0", "text"]]),
        "text-and-more": ("1", [["", "text"], ["", "text"]]),
        "text-no-json": ("{", [["", "text"]]),
        "text-nan": ("NaN", [["", "text"]]),
        "text-two-values": ("1 2", [["", "text"]]),
        "text-byte-order-mark": ("\ufeff1", [["", "text"]]),
    }
