"""The vectors of version 1: one case a feature, named by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec

from ckptfmt.identity import ParticipantId
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.manifest import Previous, Tombstone, encode_manifest
from ckptfmt.stream import output
from ckptfmt.stream.framing import encode_piece
from ckptfmt.wire import EMPTY_ZSTD_FRAME, TAG_HEAD
from tests.support.deep import nested
from tests.support.streams import parts_of
from tests.vectors.building import (
    STREAM,
    Case,
    Group,
    Made,
    make_checkpoint,
    make_stream,
    record,
    stream_reading,
    text,
)

__all__ = ["golden_cases"]

NAN = float("nan")
INF = float("inf")
AGENT = ParticipantId("agent", "a1")
RESOURCES = ParticipantId("resources", "r1")


def golden_cases() -> Iterator[Case]:
    """All of them."""
    yield from _streams()
    yield from _values()
    yield from _records()
    yield from _checkpoints()


def _stream(name: str, about: str, *records: Made, kind: str = "generic", **options: Any) -> Case:
    data, _ = make_stream(records, name=name, kind=kind, **options)
    return Case(name, stream_reading(records, about, kind=kind), {STREAM: data})


def _few(count: int) -> list[Made]:
    return [record(f"r{count - number}", n=number) for number in range(count)]


def _streams() -> Iterator[Case]:
    yield _stream("empty-stream", "no record: no block, no page, no section")
    yield _stream("one-block", "keys do not ascend with the ordinals", *_few(3))
    yield _stream("many-blocks", "each record a block", *_few(4), block_target_bytes=1)
    long = record("r2", state="".join(chr(0x4E00 + n * n % 5003) for n in range(3000)))
    yield _stream(
        "long-record-own-block",
        "a record over the block target between two that are not",
        record("r1", n=1),
        long,
        record("r3", n=3),
        block_target_bytes=4096,
    )
    with mock.patch.object(output, "PAGE_ENTRIES", 2):
        yield _stream("index-three-pages", "pages of two entries, the last of one", *_few(5))
    with mock.patch.object(output, "DIGESTS_PER_SECTION", 2):
        yield _stream("digests-three-sections", "sections of two, the last of one", *_few(5))
    yield _stream("level-19", "the strongest compression", *_few(3), level=19)
    yield _stream("level-minus-7", "the fastest compression", *_few(3), level=-7)
    yield _later_minor()


def _later_minor() -> Case:
    records = _few(2)
    data, _ = make_stream(records, name="later-minor")
    head, *others = parts_of(data)
    body = data[head.offset + 12 : head.end - 4]
    later = body[:2] + (1).to_bytes(2, "little") + body[4:]
    # The names grow by as much as is added, so that offsets stay: the id is cut by three.
    assert later.endswith(b"\x04ck-1")
    piece = encode_piece(TAG_HEAD, later[:-5] + b"\x02ck" + b"+1")
    assert len(piece) == head.end - head.offset
    changed = EMPTY_ZSTD_FRAME + piece + data[others[0].offset :]
    about = "HEAD of minor version 1 with two bytes more than this version knows"
    expected = stream_reading(records, about, checkpoint_id="ck")
    return Case("later-minor-version", expected, {STREAM: changed})


def _values() -> Iterator[Case]:
    def case(name: str, about: str, *values: Any) -> Case:
        made = (record(f"r{number}", state=value) for number, value in enumerate(values, 1))
        return _stream(name, about, *made)

    yield case("floats", "shortest spelling", [0.1, 1e22, 5e-324, 1.0, 1e16, -0.0, 1e-7], -0.0)
    yield case("nan", "NaN and infinities", NAN, [1, INF], {"x": {"y": -INF, "z": [NAN, None]}})
    yield case("nan-run-starred", "runs", [NAN] * 4, [NAN, 1.5, NAN, NAN, None, INF, NAN])
    yield case("inf-run-starred", "two tags in one array", [INF, -INF, 0.5, NAN] * 4)
    yield case(
        "integers",
        "of any size",
        [0, 1, -1, 2**53 + 1, 2**63 - 1, 2**64 - 1, 2**64 + 1, -(2**65), 10**29],
        10**4299,
    )
    yield case("tuple", "at any depth, empty ones too", (), [(), [1, (2, [3, (4,)])]], {"a": (1,)})
    yield case("tuple-run-starred", "from four on", [(1, 2), (3,), (), (4,)], ([1], (2,), [3]))
    yield case(
        "map-nonstring-keys",
        "keys of other types, in order",
        {1: "int", 2.5: "float", None: "null", False: "bool", "s": "string"},
        {"plain": {10**20: {-1: [{}]}}},
    )
    yield case(
        "map-annotated-keys",
        "tuples, NaN and lone surrogates as keys",
        {(1, (2,)): "tuple", NAN: "nan", "\udc80": "surrogate", INF: (NAN,)},
    )
    yield case(
        "surrogate",
        "lone surrogates, counted in code points",
        "\ud800",
        ["a\udfffb\U0001f600\ud83d", {"k": "\ufffd\udead\ufffd"}, "\U0001f600"],
        "\udc00\ud800",
    )
    yield case(
        "pointer-escapes", "tilde and slash", {"a/b": {"~": NAN, "": {"~1": INF}, "0": (1,)}}
    )
    yield case(
        "text-lines", "what breaks lines elsewhere", '\0\u2028\u2029\ufeff\x7f\x85\b\r\n"\\/'
    )
    yield case("deep", "as deep as a record permits", nested(499, 1), nested(499, NAN))
    yield case("deep-objects", "objects", nested(499, None, lambda inner: {"k": inner}))
    yield case("mixed", "children before parents", ({1: (NAN, [INF, "\ud800"])}, [({},)]))
    yield case("constants", "as JSON has them", None, True, False, "", [], {}, 0, 0.0)
    yield case(
        "text-verbatim",
        "JSON text that cannot stand in a line",
        text(b'{"a": 1,\n "a": 2}'),
        text(b'"\\ud800"'),
        text(b" 1 "),
        text(b'"\r"'.replace(b"\r", b"") + b"\r"),
        text(b"[" * 251 + b"]" * 251),
    )
    yield case(
        "text-inline",
        "JSON text that stands as it came",
        text(b'{"a":1E5,"a":0.1000000000000000055, "b":[-0,-0.0,1e400]}'),
        text(b'"\\u00e9\\ud83d\\ude00\xc3\xa9\\/"'),
        text(b"[" * 250 + b"]" * 250),
    )
    yield case(
        "exact-is-data", "a member of this name below the top", {"$exact": {"a": [["", "nan"]]}}
    )


def _records() -> Iterator[Case]:
    yield _stream(
        "attempts",
        "capture keys",
        record("4-2", attempt=0),
        record("4-2", attempt=1),
        record("4-2-a0", attempt=12),
    )
    yield _stream(
        "sub-keys",
        "percent-encoded",
        record("r1", sub_key="a/b c~é%"),
        record("r1", sub_key=""),
        record("r1", sub_key=None),
        record("r2", sub_key="A-Z.a_z"),
    )
    later = {"later": {"a": (1,)}, "x": NAN}
    yield _stream("unknown-members", "kept, their annotations too", record("r1", state=1, **later))
    digest = "0f" * 32
    yield _stream(
        "schema-environment",
        "a boundary, and none",
        record("r1", kind="environment", task_digest=digest, boundary={"turn": 3}),
        record("r2", kind="environment", task_digest=digest, boundary=None, later=[1]),
        kind="environment",
    )
    yield _stream(
        "schema-agent",
        "two sessions of an episode",
        record("r1", kind="agent", session_key="a", session={}, boundary=None, episode=None),
        record(
            "r1", kind="agent", session_key="b:c", session=(1,), boundary=[], episode={"n": NAN}
        ),
        kind="agent",
    )
    yield _stream(
        "schema-resources",
        "with and without a state",
        record("r1", kind="resources", session_id="s/1", state={"p": [0.5, NAN]}, owner=None),
        record("r2", kind="resources", session_id="s/2", state=None, owner="worker-1"),
        kind="resources",
    )
    yield _stream(
        "schema-model",
        "rows and cuts",
        record("r1", kind="model", rows=[{"n": 1}], generation_cuts=[]),
        kind="model",
    )


def _agent(rollout: str, key: str = "s") -> Made:
    return record(rollout, kind="agent", session_key=key, session=[], boundary=None, episode=None)


def _groups() -> list[Group]:
    states = [
        record(name, kind="resources", session_id="s", state=(NAN,), owner=None)
        for name in ("r1", "r2")
    ]
    return [Group(AGENT, [[_agent("r1"), _agent("r2")]]), Group(RESOURCES, [states])]


def _checkpoints() -> Iterator[Case]:
    def case(name: str, about: str, groups: list[Group], **changes: Any) -> Case:
        made = make_checkpoint(groups, **changes)
        return Case(name, {"about": about, **made.reading}, made.files)

    yield case("aggregate-two-participants", "an agent and a resources server", _groups())
    yield case("participant-empty", "nothing to restore", [Group(AGENT, [[]])])
    parts = [[_agent("r1"), _agent("r3")], [_agent("r2")], []]
    yield case("objects-three", "records in the order of the objects", [Group(AGENT, parts)])
    yield case(
        "scope-and-metadata",
        "episodes that go on; a predecessor; what the caller says",
        _groups(),
        scope=["r1", "r2-a3"],
        run_id="run 1",
        config_digest="ab12",
        previous=Previous(checkpoint_id="ck-0", sha256="12" * 32),
        user_metadata=msgspec.Raw(b'{"b":1.5,"a":[1e400,"\\u00e9"]}'.replace(b"1e400", b"1e300")),
    )
    groups = _groups()
    groups[0].unknown = {"later": b'{"z":1,"a":[1.50]}'}
    groups[0].changes = {"role": msgspec.Raw(b'{"mode":"stateful"}'), "minor": 9}
    yield case(
        "unknown-manifest-members",
        "of a later minor version, kept as they are",
        groups,
        unknown={"zz_later": b"[1.0,true]"},
        minor=9,
    )
    groups = _groups()
    groups[0].changes = {"ledger_pins": [_pin("r1"), _pin("r2-a1")]}
    yield case("ledger-pins", "prefixes of ledgers that go with the records", groups)
    yield from _unfinished()


def _pin(capture_key: str) -> LedgerPin:
    return LedgerPin(name=f"{capture_key}.tokens.jsonl", size_bytes=5, sha256="ab" * 32)


def _unfinished() -> Iterator[Case]:
    made = make_checkpoint(_groups())
    without = {name: data for name, data in made.files.items() if "checkpoint.json" not in name}
    yield Case("incomplete", {"about": "never published", "error": "incomplete"}, without)
    whole = encode_manifest(Tombstone(checkpoint_id="ck-1", token="d" * 24)).data
    closed = {**made.files, "checkpoint/checkpoint.json": whole}
    yield Case("tombstone", {"about": "given up for good", "error": "aborted"}, closed)
    stone = Tombstone(checkpoint_id="ck-1", kind="agent", instance="a1", token="d" * 24)
    data = encode_manifest(stone).data
    yield Case(
        "tombstone-participant",
        {"about": "a participant's commit given up; nobody published", "error": "incomplete"},
        {"checkpoint/agent/a1/manifest.json": data},
    )
