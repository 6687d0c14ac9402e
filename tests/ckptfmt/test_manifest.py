"""Manifests: sealed bytes, strict members, what is unknown."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from ckptfmt.errors import CkptError, CorruptError, SizeError, TornError, UnsupportedError
from ckptfmt.manifest import (
    CheckpointManifest,
    DataObject,
    Expected,
    ParticipantManifest,
    Provenance,
    Tombstone,
    decode_manifest,
    encode_manifest,
)
from ckptfmt.metadata import metadata
from tests.support.deep import at_depth

TOKEN = "0123456789abcdef01234567"
SHA = "a" * 64
PROVENANCE = Provenance(
    library="ckptfmt 0.1.0",
    python="CPython 3.11",
    host="h",
    created_at="2026-01-01T00:00:00.000Z",
    user={},
)


def data_object(**changes: Any) -> DataObject:
    fields = {
        "name": f"records-{TOKEN}-000.jsonl.zst",
        "size_bytes": 900,
        "sha256": SHA,
        "first_ordinal": 0,
        "records": 2,
        "blocks": 1,
        "raw_bytes": 80,
        "index_offset": 500,
        "index_length": 300,
    }
    return DataObject(**{**fields, **changes})  # type: ignore[arg-type]


def participant(**changes: Any) -> ParticipantManifest:
    fields = {
        "checkpoint_id": "ck-1",
        "kind": "agent",
        "instance": "a",
        "token": TOKEN,
        "schema": "agent",
        "schema_version": 1,
        "objects": [data_object()],
        "record_count": 2,
        "content_digest": SHA,
        "episode_ids": ["r1", "r1-a2"],
        "provenance": PROVENANCE,
    }
    return ParticipantManifest(**{**fields, **changes})  # type: ignore[arg-type]


def aggregate(**changes: Any) -> CheckpointManifest:
    fields = {
        "checkpoint_id": "ck-1",
        "token": TOKEN,
        "sequence": 7,
        "participants": [
            Expected(kind="agent", instance="a", manifest_sha256=SHA, manifest_bytes=10)
        ],
        "provenance": PROVENANCE,
    }
    return CheckpointManifest(**{**fields, **changes})  # type: ignore[arg-type]


def resealed(members: dict[str, Any]) -> bytes:
    """A manifest with these members, whose seal is right."""
    sealed = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()[:-1]
    digest = hashlib.sha256(sealed).hexdigest().encode()
    return sealed + b',"self":"sha256:' + digest + b'"}\n'


def members_of(data: bytes) -> dict[str, Any]:
    members = json.loads(data)
    del members["self"]
    return dict(members)


def test_a_manifest_comes_back_and_follows_the_byte_rules() -> None:
    sealed = encode_manifest(participant())
    data = sealed.data
    assert data.isascii()
    assert data.endswith(b'"}\n')
    prefix, _, seal = data.rpartition(b',"self":"sha256:')
    assert seal[:64].decode() == hashlib.sha256(prefix).hexdigest()
    names = list(json.loads(data))
    assert names[:-1] == sorted(names[:-1])
    assert names[-1] == "self"
    assert b": " not in data
    assert b", " not in data
    read = decode_manifest(data, ParticipantManifest)
    assert read.body == participant()
    assert read.sha256 == hashlib.sha256(data).hexdigest()


def test_non_ascii_provenance_is_escaped() -> None:
    body = participant(
        provenance=Provenance(library="l", python="p", host="h\u202e\x1b", created_at="t", user={})
    )
    assert encode_manifest(body).data.isascii()


def test_unknown_members_are_kept_as_the_bytes_they_came_as() -> None:
    """F48."""
    unknown = {"zz": b'{"b":1.50,"a":[1E5]}', "aa": b'"\\u0061"'}
    sealed = encode_manifest(participant(), unknown)
    read = decode_manifest(sealed.data, ParticipantManifest)
    assert read.unknown == unknown
    assert encode_manifest(read.body, read.unknown).data == sealed.data


def test_user_metadata_is_kept_as_the_bytes_it_came_as() -> None:
    body = aggregate(user_metadata=msgspec.Raw(b'{"b":1.50,"a":1E5}'))
    read = decode_manifest(encode_manifest(body).data, CheckpointManifest)
    assert isinstance(read.body, CheckpointManifest)
    assert bytes(read.body.user_metadata) == b'{"b":1.50,"a":1E5}'


@pytest.mark.parametrize("body", [participant(), aggregate()], ids=["participant", "aggregate"])
def test_every_flipped_bit_is_found_and_never_called_torn(
    body: ParticipantManifest | CheckpointManifest,
) -> None:
    """F27, F34."""
    data = encode_manifest(body).data
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(CorruptError):
            decode_manifest(bytes(damaged), type(body))


@pytest.mark.parametrize("body", [participant(), aggregate()], ids=["participant", "aggregate"])
def test_every_cut_is_torn(body: ParticipantManifest | CheckpointManifest) -> None:
    """S12: a manifest of zero bytes included."""
    data = encode_manifest(body).data
    for length in range(len(data)):
        with pytest.raises(TornError):
            decode_manifest(data[:length], type(body))


def test_bytes_after_the_seal_are_corrupt() -> None:
    data = encode_manifest(participant()).data
    for tail in (b"\n", b"\0", b"x" * 300):
        with pytest.raises((CorruptError, TornError)):
            decode_manifest(data + tail, ParticipantManifest)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("record_count", True),
        ("record_count", 2.0),
        ("record_count", -1),
        ("record_count", "2"),
        ("record_count", 3),
        ("schema_version", None),
        ("content_digest", "A" * 64),
        ("content_digest", "a" * 64 + "\n"),
        ("token", "zz"),
        ("kind", "../x"),
        ("instance", ".hidden"),
        ("instance", "a\n"),
        ("checkpoint_id", "a/b"),
        ("episode_ids", ["r1", "r1"]),
        ("episode_ids", ["r2", "r1"]),
        ("episode_ids", ["bad!id"]),
        ("objects", [{}]),
        ("objects", None),
        ("provenance", {"library": 1}),
    ],
)
def test_a_malformed_member_is_corrupt_and_named(member: str, value: object) -> None:
    """F54: bool is no integer, neither is 1.0."""
    members = members_of(encode_manifest(participant()).data)
    with pytest.raises(CorruptError) as caught:
        decode_manifest(resealed({**members, member: value}), ParticipantManifest)
    words = {"kind": "kind", "checkpoint_id": "checkpoint id", "episode_ids": ""}
    assert words.get(member, member) in str(caught.value)


@pytest.mark.parametrize(
    "member",
    sorted(set(members_of(encode_manifest(participant()).data)) - {"required_features", "role"}),
)
def test_a_missing_member_is_corrupt_and_named(member: str) -> None:
    members = members_of(encode_manifest(participant()).data)
    del members[member]
    with pytest.raises(CorruptError, match=member):
        decode_manifest(resealed(members), ParticipantManifest)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "records-ffffffffffffffffffffffff-000.jsonl.zst"},
        {"name": f"records-{TOKEN}-001.jsonl.zst"},
        {"name": "/etc/passwd"},
        {"name": "../../x"},
        {"name": "s3://bucket/x"},
        {"first_ordinal": 1},
        {"index_offset": 10**9},
    ],
)
def test_an_object_that_is_not_its_own_is_corrupt(changes: dict[str, Any]) -> None:
    """S61, F35."""
    body = participant(objects=[data_object(**changes)])
    with pytest.raises(CorruptError):
        decode_manifest(encode_manifest(body).data, ParticipantManifest)


def test_two_members_of_one_name_are_corrupt_at_any_level() -> None:
    sealed = encode_manifest(participant()).data.rpartition(b',"self"')[0]
    for old, new in (
        (b'{"checkpoint_id"', b'{"aa":1,"aa":2,"checkpoint_id"'),
        (b'{"created_at"', b'{"a":1,"a":2,"created_at"'),
    ):
        twice = sealed.replace(old, new, 1)
        assert twice != sealed
        digest = hashlib.sha256(twice).hexdigest().encode()
        with pytest.raises(CorruptError, match=r"two members|members named"):
            decode_manifest(twice + b',"self":"sha256:' + digest + b'"}\n', ParticipantManifest)


def test_missing_features_are_listed_in_order_with_the_release_that_has_them() -> None:
    """F47."""
    members = members_of(encode_manifest(participant()).data)
    members["required_features"] = ["tensors", "ecc"]
    members["provenance"]["library"] = "ckptfmt 9.1"
    members["objects"] = "of another shape altogether"
    with pytest.raises(UnsupportedError, match=r"'tensors', 'ecc'.*ckptfmt 9\.1"):
        decode_manifest(resealed(members), ParticipantManifest)


def test_a_newer_major_is_refused_and_a_newer_minor_is_read() -> None:
    members = members_of(encode_manifest(participant()).data)
    with pytest.raises(UnsupportedError, match=r"2\.0"):
        decode_manifest(resealed({**members, "major": 2}), ParticipantManifest)
    newer = decode_manifest(resealed({**members, "minor": 9, "added": 1}), ParticipantManifest)
    assert newer.unknown == {"added": b"1"}


def test_another_format_is_unsupported() -> None:
    members = members_of(encode_manifest(participant()).data)
    with pytest.raises(UnsupportedError):
        decode_manifest(resealed({**members, "format": "other"}), ParticipantManifest)


def test_participants_that_clash_where_case_is_ignored_are_corrupt() -> None:
    """S60."""
    twins = [
        Expected(kind="agent", instance=name, manifest_sha256=SHA, manifest_bytes=1)
        for name in ("Foo", "foo")
    ]
    with pytest.raises(CorruptError, match="twice"):
        decode_manifest(encode_manifest(aggregate(participants=twins)).data, CheckpointManifest)


def test_a_tombstone_is_read_in_place_of_either_manifest() -> None:
    stone = Tombstone(checkpoint_id="ck-1", kind="agent", instance="a", token=TOKEN)
    data = encode_manifest(stone).data
    for expected in (ParticipantManifest, CheckpointManifest):
        assert decode_manifest(data, expected).body == stone


def test_a_manifest_over_the_cap_is_refused() -> None:
    body = participant(episode_ids=[f"r{number:0100}" for number in range(700_000)])
    with pytest.raises(SizeError):
        encode_manifest(body)


def test_deep_or_foreign_content_under_a_right_seal_is_corrupt() -> None:
    """F53: the same class each time, and never a foreign exception."""
    for content in (b"[" * 5_000, b'{"a":' * 5_000, b'{"format":"ckptfmt"', b"\xff\xfe", b""):
        digest = hashlib.sha256(content).hexdigest().encode()
        data = content + b',"self":"sha256:' + digest + b'"}\n'
        for _ in range(3):
            with pytest.raises(CkptError):
                decode_manifest(data, ParticipantManifest)


@pytest.mark.parametrize("frames", [0, 600, 900])
def test_deep_metadata_is_written_and_read_from_any_stack(frames: int) -> None:
    """F22: what could be written can always be read, wherever in a program."""
    deep: object = 1
    for level in range(497):
        deep = [deep] if level % 2 else {"a": deep}
    user_metadata = at_depth(frames, lambda: metadata({"deep": deep}))
    assert user_metadata == metadata({"deep": deep})
    sealed = encode_manifest(aggregate(user_metadata=user_metadata))
    found = at_depth(frames, lambda: decode_manifest(sealed.data, CheckpointManifest))
    assert found.body == sealed.body
