"""Checkpoints that no reader may believe: manifests that lie, files that are gone, links."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ckptfmt.identity import ParticipantId
from ckptfmt.stream.codec import Compressor
from ckptfmt.stream.index import Page
from ckptfmt.wire import TAG_PAGE
from tests.support.streams import parts_of
from tests.vectors.building import Case, Group, Link, Made, make_checkpoint, record

__all__ = ["hostile_checkpoints"]

OWN: Final = ParticipantId("controller", "c1")
FOLDER: Final = "checkpoint/controller/c1"
MANIFEST: Final = f"{FOLDER}/manifest.json"
AGGREGATE: Final = "checkpoint/checkpoint.json"

_Files = dict[str, bytes | Link]


def hostile_checkpoints() -> Iterator[Case]:
    """All of them."""
    for make in (_aggregates, _manifests, _members, _seals, _contents, _files, _links):
        for name, code, files in make():
            yield Case(name, {"code": code}, files)


_Found = Iterator[tuple[str, str, _Files]]


def _records() -> list[Made]:
    return [record(f"r{number}", n=number) for number in range(1, 4)]


def _group(participant: ParticipantId = OWN, **options: Any) -> Group:
    return Group(participant, [_records()], **options)


def _base() -> _Files:
    return make_checkpoint([_group()]).files


def _sealed(content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest().encode()
    return content + b',"self":"sha256:' + digest + b'"}\n'


def _content(files: _Files, name: str) -> bytes:
    data = files[name]
    assert isinstance(data, bytes)
    return data


def _spelled(name: str, old: bytes, new: bytes, files: _Files | None = None) -> _Files:
    """A checkpoint in whose manifest ``name`` one spelling is another; all digests are right."""
    files = files or _base()
    before = _content(files, name)
    assert before.count(old) >= 1, old
    files[name] = _sealed(before[:-83].replace(old, new))
    if name == MANIFEST:
        files[AGGREGATE] = _relisted(files, before)
    return files


def _relisted(files: _Files, before: bytes) -> bytes:
    after = _content(files, MANIFEST)
    content = _content(files, AGGREGATE)[:-83]
    for old, new in (
        (hashlib.sha256(before).hexdigest(), hashlib.sha256(after).hexdigest()),
        (f'"manifest_bytes":{len(before)}', f'"manifest_bytes":{len(after)}'),
    ):
        content = content.replace(old.encode(), new.encode())
    return _sealed(content)


def _aggregates() -> _Found:
    for name, code, old, new in (
        ("aggregate-major-2", "unsupported", b'"major":1', b'"major":2'),
        ("aggregate-format", "unsupported", b'"format":"ckptfmt"', b'"format":"other"'),
        ("aggregate-feature", "unsupported", b'features":[]', b'features":["b","a"]'),
        ("aggregate-feature-number", "corrupt", b'features":[]', b'features":[1]'),
        ("aggregate-id-escapes", "corrupt", b'"checkpoint_id":"ck-1"', b'"checkpoint_id":"../x"'),
        ("aggregate-kind-escapes", "corrupt", b'"kind":"controller"', b'"kind":".."'),
        ("aggregate-kind-separator", "corrupt", b'"kind":"controller"', b'"kind":"a/b"'),
        ("aggregate-instance-absolute", "corrupt", b'"instance":"c1"', b'"instance":"/etc"'),
        ("aggregate-instance-hidden", "corrupt", b'"instance":"c1"', b'"instance":".c1"'),
        ("aggregate-instance-drive", "corrupt", b'"instance":"c1"', b'"instance":"c:1"'),
        ("aggregate-instance-nul", "corrupt", b'"instance":"c1"', b'"instance":"c1\\u0000"'),
        ("aggregate-instance-line-break", "corrupt", b'"instance":"c1"', b'"instance":"c1\\n"'),
        ("aggregate-sequence-true", "corrupt", b'"sequence":7', b'"sequence":true'),
        ("aggregate-sequence-float", "corrupt", b'"sequence":7', b'"sequence":7.0'),
        ("aggregate-sequence-negative", "corrupt", b'"sequence":7', b'"sequence":-7'),
        ("aggregate-sequence-2-64", "corrupt", b'"sequence":7', b'"sequence":18446744073709551616'),
        ("aggregate-sequence-missing", "corrupt", b'"sequence":7,', b""),
        ("aggregate-scope-string", "corrupt", b'"scope":null', b'"scope":"r1"'),
        ("aggregate-scope-twice", "corrupt", b'"scope":null', b'"scope":["r1","r1"]'),
        ("aggregate-scope-descends", "corrupt", b'"scope":null', b'"scope":["r2","r1"]'),
        ("aggregate-scope-escapes", "corrupt", b'"scope":null', b'"scope":["../r1"]'),
        ("aggregate-member-twice", "corrupt", b'"sequence":7', b'"sequence":7,"sequence":7'),
        ("aggregate-member-twice-below", "corrupt", b'"kind":', b'"kind":"x","kind":'),
        (
            "aggregate-member-twice-in-metadata",
            "corrupt",
            b'data":{}',
            b'data":{"a":1,"\\u0061":2}',
        ),
        ("aggregate-nan", "corrupt", b'data":{}', b'data":{"a":NaN}'),
        (
            "aggregate-deep",
            "corrupt",
            b'data":{}',
            b'data":' + b'{"a":' * 2000 + b"1" + b"}" * 2000,
        ),
        ("aggregate-metadata-array", "corrupt", b'data":{}', b'data":[]'),
        ("aggregate-recovered-number", "corrupt", b'"recovered":null', b'"recovered":1'),
        ("aggregate-no-json", "corrupt", b'"sequence":7', b'"sequence":'),
        (
            "aggregate-manifest-of-2-62",
            "torn",
            b'"manifest_bytes":',
            b'"manifest_bytes":4611686018427',
        ),
    ):
        yield name, code, _spelled(AGGREGATE, old, new)
    yield "aggregate-no-participants", "corrupt", make_checkpoint([]).files
    yield from _pins()
    row = _content(_base(), AGGREGATE).partition(b'"participants":[')[2].partition(b"]")[0]
    twice = row + b"," + row
    yield "aggregate-participant-twice", "corrupt", _spelled(AGGREGATE, row, twice)
    folded = row + b"," + row.replace(b'"c1"', b'"C1"').replace(b'"controller"', b'"Controller"')
    yield "aggregate-participant-folded", "corrupt", _spelled(AGGREGATE, row, folded)


def _manifests() -> _Found:
    token = _group().token.encode()
    for name, code, old, new in (
        ("manifest-major-2", "unsupported", b'"major":1', b'"major":2'),
        ("manifest-feature", "unsupported", b'features":[]', b'features":["later"]'),
        ("manifest-schema", "unsupported", b'"schema":"generic"', b'"schema":"later"'),
        ("manifest-schema-version", "unsupported", b'"schema_version":1', b'"schema_version":2'),
        ("manifest-of-another-kind", "corrupt", b'"kind":"controller"', b'"kind":"agent"'),
        ("manifest-of-another-instance", "corrupt", b'"instance":"c1"', b'"instance":"c2"'),
        ("manifest-of-another-checkpoint", "corrupt", b'_id":"ck-1"', b'_id":"ck-2"'),
        ("object-name-escapes", "corrupt", b'"name":"records-', b'"name":"../c1/records-'),
        ("object-name-absolute", "corrupt", b'"name":"records-', b'"name":"/records-'),
        ("object-name-scheme", "corrupt", b'"name":"records-', b'"name":"file://records-'),
        ("object-name-number", "corrupt", b"-000.jsonl", b"-001.jsonl"),
        ("object-name-short-number", "corrupt", b"-000.jsonl", b"-00.jsonl"),
        ("object-name-of-another-token", "corrupt", b"records-" + token, b"records-" + b"0" * 24),
        ("object-size-true", "corrupt", b'"size_bytes":', b'"size_bytes":true,"x":'),
        ("object-size-negative", "corrupt", b'"size_bytes":', b'"size_bytes":-'),
        ("object-size-float", "corrupt", b'"size_bytes":', b'"size_bytes":1e2,"x":'),
        ("object-size-of-2-62", "torn", b'"size_bytes":', b'"size_bytes":4611686018427'),
        ("object-first-ordinal", "corrupt", b'"first_ordinal":0', b'"first_ordinal":1'),
        ("object-records", "corrupt", b'"records":3', b'"records":2'),
        ("object-blocks", "corrupt", b'"blocks":1', b'"blocks":2'),
        ("object-raw-bytes", "corrupt", b'"raw_bytes":', b'"raw_bytes":1'),
        ("object-index-past-the-end", "corrupt", b'"index_offset":', b'"index_offset":9'),
        ("object-sha256", "corrupt", b'"sha256":"', b'"sha256":"' + b"0" * 64 + b'","x":"'),
        (
            "object-sha256-upper-case",
            "corrupt",
            b'"sha256":"',
            b'"sha256":"' + b"A" * 64 + b'","x":"',
        ),
        ("manifest-record-count", "corrupt", b'"record_count":3', b'"record_count":2'),
        ("manifest-record-count-missing", "corrupt", b'"record_count":3,', b""),
        ("manifest-objects-missing", "corrupt", b'"objects":', b'"other":'),
        ("manifest-objects-object", "corrupt", b'"objects":[', b'"objects":{},"other":['),
        ("manifest-role-array", "corrupt", b'"role":{}', b'"role":[]'),
        ("manifest-token", "corrupt", b'"token":"', b'"token":"..'),
        ("manifest-episodes-twice", "corrupt", b'["r1","r2","r3"]', b'["r1","r1","r2","r3"]'),
        ("manifest-episodes-descend", "corrupt", b'["r1","r2","r3"]', b'["r2","r1","r3"]'),
        ("manifest-episodes-escape", "corrupt", b'["r1","r2","r3"]', b'["../r1","r2","r3"]'),
        (
            "manifest-member-twice",
            "corrupt",
            b'"record_count":3',
            b'"record_count":3,"record_count":3',
        ),
    ):
        yield name, code, _spelled(MANIFEST, old, new)


def _members() -> _Found:
    """A manifest without one of its members, or with a size that is too small."""
    for what, name in (("aggregate", AGGREGATE), ("manifest", MANIFEST)):
        plain = json.loads(_content(_base(), name))
        for member in sorted(plain.keys() - {"self", "format"}):
            content = _spelled_out({key: plain[key] for key in plain if key != member})
            files = _base()
            before, files[name] = _content(files, name), _sealed(content)
            if name == MANIFEST:
                files[AGGREGATE] = _relisted(files, before)
            yield f"{what}-without-{member.replace('_', '-')}", "corrupt", files
    for what, name, size in (
        ("aggregate-manifest-bytes", AGGREGATE, b'"manifest_bytes":'),
        ("object-size", MANIFEST, b'"size_bytes":'),
    ):
        yield f"{what}-too-small", "corrupt", _spelled(name, size, size + b'1,"x":')


def _spelled_out(members: dict[str, Any]) -> bytes:
    own = {name: members[name] for name in sorted(members) if name != "self"}
    return json.dumps(own, separators=(",", ":"), sort_keys=True).encode()[:-1]


def _pins() -> _Found:
    zeros = b"0" * 64
    for name, pin in {
        "pin-name-escapes": b'{"name":"../r1.tokens.jsonl","sha256":"%b","size_bytes":0}' % zeros,
        "pin-name-of-no-ledger": b'{"name":"r1.txt","sha256":"%b","size_bytes":0}' % zeros,
        "pin-name-hidden": b'{"name":".tokens.jsonl","sha256":"%b","size_bytes":0}' % zeros,
        "pin-without-size": b'{"name":"r1.tokens.jsonl","sha256":"%b"}' % zeros,
        "pin-size-negative": b'{"name":"r1.tokens.jsonl","sha256":"%b","size_bytes":-1}' % zeros,
        "pin-digest": b'{"name":"r1.tokens.jsonl","sha256":"0","size_bytes":0}',
        "pin-twice": b",".join(
            [b'{"name":"r1.tokens.jsonl","sha256":"%b","size_bytes":0}' % zeros] * 2
        ),
    }.items():
        spelled = _spelled(MANIFEST, b'"kind":', b'"ledger_pins":[%b],"kind":' % pin)
        yield name, "corrupt", spelled


def _seals() -> _Found:
    def with_aggregate(change: Callable[[bytes], bytes]) -> _Files:
        files = _base()
        files[AGGREGATE] = change(_content(files, AGGREGATE))
        return files

    def flipped(data: bytes) -> bytes:
        return data.replace(b'"sequence":7', b'"sequence":8')

    yield "seal-empty-file", "torn", with_aggregate(lambda _: b"")
    yield "seal-cut", "torn", with_aggregate(lambda data: data[:-100])
    yield "seal-cut-by-one", "torn", with_aggregate(lambda data: data[:-1])
    yield "seal-grown", "corrupt", with_aggregate(lambda data: data.replace(b"\n", b' "}\n'))
    yield "seal-content-changed", "corrupt", with_aggregate(flipped)
    yield "seal-digest-changed", "corrupt", with_aggregate(lambda d: d[:-4] + b"x" + d[-3:])
    yield "seal-begin-changed", "corrupt", with_aggregate(lambda d: d[:-80] + b"x" + d[-79:])
    yield "seal-other-text", "torn", with_aggregate(lambda _: b'{"format":"ckptfmt"}')


def _contents() -> _Found:
    zeros = "0" * 64
    for name, changes in {
        "content-digest": {"content_digest": zeros},
        "content-episode-more": {"episode_ids": ["r1", "r2", "r3", "r4"]},
        "content-episode-less": {"episode_ids": ["r1", "r2"]},
    }.items():
        yield name, "corrupt", make_checkpoint([_group(changes=changes)]).files
    files = make_checkpoint([_group(spoil=_with_key("r4"))]).files
    yield "content-key-of-no-record", "corrupt", files
    twice = Group(OWN, [_records()[:2], _records()[1:]])
    yield "content-key-in-two-objects", "corrupt", make_checkpoint([twice]).files


def _with_key(key: str) -> Callable[[bytes], bytes]:
    def spoil(data: bytes) -> bytes:
        place = next(part for part in parts_of(data) if part.tag == TAG_PAGE)
        page = Page.decode(data[place.offset : place.end])
        entries = (*page.entries[:-1], page.entries[-1]._replace(key=key))
        made = replace(page, entries=entries).encode(Compressor(1))
        assert len(made) == place.size_bytes
        return data[: place.offset] + made + data[place.end :]

    return spoil


def _object(files: Mapping[str, bytes | Link]) -> str:
    return next(name for name in files if name.endswith(".zst"))


def _files() -> _Found:
    def changed(change: Callable[[bytes], bytes | None], name: str | None = None) -> _Files:
        files = _base()
        name = name or _object(files)
        data = change(_content(files, name))
        del files[name]
        return files if data is None else {**files, name: data}

    yield "object-missing", "missing", changed(lambda _: None)
    yield "object-empty", "torn", changed(lambda _: b"")
    yield "object-cut", "torn", changed(lambda data: data[:-1])
    yield "object-grown", "corrupt", changed(lambda data: data + b"\0")
    yield "object-flipped", "corrupt", changed(lambda data: data[:99] + b"\xff" + data[100:])
    yield "object-of-another-checkpoint", "corrupt", changed(_of_another_checkpoint)
    yield "manifest-missing", "missing", changed(lambda _: None, MANIFEST)
    yield "manifest-cut", "torn", changed(lambda data: data[:-10], MANIFEST)
    yield "manifest-grown", "corrupt", changed(lambda data: data + b"\n", MANIFEST)
    yield "manifest-replaced", "corrupt", changed(_by_another_host, MANIFEST)
    yield "nothing-at-all", "missing", {"checkpoint/README": b"nothing\n"}


def _by_another_host(data: bytes) -> bytes:
    return _sealed(data[:-83].replace(b"host.example", b"host-example"))


def _of_another_checkpoint(data: bytes) -> bytes:
    files = make_checkpoint([_group()], checkpoint_id="ck-2").files
    other = _content(files, _object(files))
    assert len(other) == len(data)
    return other


def _links() -> _Found:
    files = _base()
    name = _object(files)
    base = name.rpartition("/")[2]

    def moved(old: str, new: str, target: str) -> _Files:
        """What lies under ``old`` lies under ``new``, and a link leads there."""
        linked: _Files = {
            (new + file[len(old) :] if file.startswith(old) else file): data
            for file, data in files.items()
        }
        return {**linked, old: Link(target)}

    yield "link-object", "corrupt", moved(name, f"elsewhere/{base}", f"../../../elsewhere/{base}")
    yield "link-object-beside", "corrupt", moved(name, f"{FOLDER}/copy", "copy")
    yield "link-manifest", "corrupt", moved(MANIFEST, "elsewhere/m", "../../../elsewhere/m")
    yield "link-aggregate", "corrupt", moved(AGGREGATE, "elsewhere/a", "../elsewhere/a")
    yield "link-participant", "corrupt", moved(FOLDER, "elsewhere/c1", "../../elsewhere/c1")
    kind = "checkpoint/controller"
    yield "link-kind", "corrupt", moved(kind, "elsewhere/controller", "../elsewhere/controller")
    dangling: _Files = {**files, name: Link("nowhere")}
    yield "link-dangling", "corrupt", dangling
    yield "link-to-itself", "corrupt", {**files, name: Link(base)}
    folder: _Files = {file: data for file, data in files.items() if file != name}
    yield "object-is-a-folder", "corrupt", {**folder, f"{name}/x": b"x"}
