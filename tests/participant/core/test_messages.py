"""Control bodies: what is read, what is refused, and how replies are spelled."""

from __future__ import annotations

import json

import msgspec
import pytest

from ckptfmt.identity import EpisodeId
from participant.core.errors import InvalidRequestError
from participant.core.messages import (
    Commit,
    CommitReply,
    Report,
    Retire,
    StatusReply,
    decode_request,
    encode_reply,
)
from participant.core.phases import Phase

C = {"checkpoint_id": "ck-1", "deadline_ts": 1_700_000_000}
EPISODE = {"rollout_id": "4-2", "attempt": 1}

REFUSED: list[tuple[str, bytes | dict[str, object]]] = [
    ("prepare", b""),
    ("prepare", b"null"),
    ("prepare", b"[]"),
    ("prepare", b"{"),
    ("prepare", b"\xff"),
    ("prepare", b"[" * 100_000),
    ("prepare", b'{"checkpoint_id":"a","deadline_ts":NaN}'),
    ("prepare", b'{"checkpoint_id":"a","deadline_ts":1e999}'),
    ("prepare", b'{"checkpoint_id":"a","deadline_ts":Infinity}'),
    ("prepare", {"checkpoint_id": "ck"}),
    ("prepare", {"deadline_ts": 1.0}),
    ("prepare", C | {"deadline_ts": "1"}),
    ("prepare", C | {"deadline_ts": True}),
    ("prepare", C | {"deadline_ts": None}),
    ("prepare", C | {"checkpoint_id": 7}),
    ("prepare", C | {"checkpoint_id": ""}),
    ("prepare", C | {"checkpoint_id": "-a"}),
    ("prepare", C | {"checkpoint_id": "a\n"}),
    ("prepare", C | {"checkpoint_id": "a/b"}),
    ("prepare", C | {"checkpoint_id": "a" * 129}),
    ("prepare", C | {"extra": 1}),
    ("retire", C),
    ("retire", C | {"episode_ids": []}),
    ("retire", C | {"episode_ids": None}),
    ("retire", C | {"episode_ids": ["4-2"]}),
    ("retire", C | {"episode_ids": [{"attempt": 1}]}),
    ("retire", C | {"episode_ids": [EPISODE | {"x": 1}]}),
    ("retire", C | {"episode_ids": [EPISODE | {"attempt": -1}]}),
    ("retire", C | {"episode_ids": [EPISODE | {"attempt": 1.5}]}),
    ("retire", C | {"episode_ids": [EPISODE | {"attempt": True}]}),
    ("retire", C | {"episode_ids": [EPISODE | {"rollout_id": "4-2-a1"}]}),
    ("retire", C | {"episode_ids": [EPISODE | {"rollout_id": "a\n"}]}),
    ("commit", C | {"episode_ids": []}),
    ("commit", C | {"checkpoint_dir": "d"}),
    ("commit", C | {"checkpoint_dir": "", "episode_ids": []}),
    ("commit", C | {"checkpoint_dir": "a\0b", "episode_ids": []}),
    ("commit", C | {"checkpoint_dir": "a" * 4097, "episode_ids": []}),
    ("retire", C | {"episode_ids": [{"rollout_id": "a" * 201}]}),
    ("commit", C | {"checkpoint_dir": "d", "episode_ids": [{"rollout_id": "a" * 201}]}),
    ("restore", C | {"checkpoint_dir": "d", "episode_ids": [{"rollout_id": "a" * 200}]}),
    ("restore", C | {"checkpoint_dir": "d", "episode_ids": None}),
    ("restore", C | {"checkpoint_dir": "d", "episode_ids": [EPISODE, EPISODE | {"attempt": 2}]}),
]


@pytest.mark.parametrize(("command", "body"), REFUSED)
def test_a_malformed_body_is_refused(command: str, body: bytes | dict[str, object]) -> None:
    """P13."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(InvalidRequestError):
        decode_request(command, raw)


def test_a_body_is_read_as_it_is_meant() -> None:
    body = C | {"checkpoint_id": "a" * 128, "checkpoint_dir": "/x", "episode_ids": [EPISODE] * 2}
    commit = decode_request("commit", json.dumps(body).encode())
    assert isinstance(commit, Commit)
    assert commit.scope.episodes == {EpisodeId("4-2", 1)}
    assert type(commit.deadline_ts) is float
    everything = decode_request("commit", json.dumps(body | {"episode_ids": None}).encode())
    assert isinstance(everything, Commit)
    assert everything.scope.episodes is None


def test_the_attempt_of_an_episode_is_0_by_default_and_their_order_is_kept() -> None:
    body = C | {"episode_ids": [{"rollout_id": "b"}, EPISODE, {"rollout_id": "a"}]}
    retire = decode_request("retire", json.dumps(body).encode())
    assert isinstance(retire, Retire)
    assert [episode.capture_key for episode in retire.episodes] == ["b", "4-2-a1", "a"]


REPORT = Report(ready=True, blockers=(), blocker_count=0, counts={"sessions": 2})


def test_what_a_role_adds_replaces_no_member_of_the_status() -> None:
    """P14."""
    status = StatusReply(
        kind="agent",
        instance="a",
        phase=Phase.IDLE,
        checkpoint_id=None,
        lease_expires_at=None,
        report=REPORT,
        retiring=0,
        publication=None,
        extras={"accepting": True, "phase": "mine"},
    )
    assert json.loads(encode_reply(status)) == {
        "kind": "agent",
        "instance": "a",
        "phase": "idle",
        "checkpoint_id": None,
        "lease_expires_at": None,
        "report": {"ready": True, "blockers": [], "blocker_count": 0, "counts": {"sessions": 2}},
        "retiring": 0,
        "accepting": True,
    }


def test_a_manifest_is_handed_on_as_the_bytes_it_is() -> None:
    reply = CommitReply(
        phase=Phase.COMMITTED,
        manifest=msgspec.Raw(b'{"a":1.0,"b":[1e2]}'),
        episode_ids=("r",),
        extras={"staging_keys": ["k"]},
    )
    assert encode_reply(reply) == (
        b'{"phase":"committed","manifest":{"a":1.0,"b":[1e2]},"episode_ids":["r"],'
        b'"staging_keys":["k"]}'
    )
