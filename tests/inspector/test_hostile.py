"""Lines that no writer of ours would write, with every checksum right."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import write_participant
from ckptfmt.publish import publish_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from tests.support.inspecting import inspect, strict

OWNER = ParticipantId("controller", "c")
HEAD = b'{"episode_id":{"rollout_id":"r1","attempt":0},'

HOSTILE = {
    "deep": HEAD + b'"s":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep objects": HEAD + b'"s":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "not utf-8": HEAD + b'"s":"\xff\xfe"}',
    "surrogate bytes": HEAD + b'"s":"\xed\xa0\x80"}',
    "no json": b"\x1b[2J",
    "not an object": b"[1]",
    "cut": HEAD + b'"s":[1,',
    "trailing": HEAD + b'"s":1}}',
    "bare constant": HEAD + b'"s":NaN}',
    "leading zero": HEAD + b'"s":01}',
    "control in string": HEAD + b'"s":"\x01"}',
    "member twice": HEAD + b'"s":1,"s":2}',
    "no episode": b'{"s":1}',
    "annotations of nothing": HEAD + b'"s":1,"$exact":{"t":[["","nan"]]}}',
    "unknown tag": HEAD + b'"s":null,"$exact":{"s":[["","odd"]]}}',
    "endless runs": HEAD + b'"s":[null],"$exact":{"s":[["","nan*",[0,9223372036854775807]]]}}',
    "unknown reserved member": HEAD + b'"$new":1,"s":1}',
    "long integer": HEAD + b'"s":' + b"9" * 10_000 + b"}",
    "beyond a double": HEAD + b'"s":1e400}',
    "lone surrogate escape": HEAD + b'"s":"\\ud800"}',
}


def written(tmp_path: Path, line: bytes) -> Path:
    """A checkpoint of three records, the middle one hostile."""
    store, folder = LocalStore(tmp_path), Folder("ck")
    records = [Record(episode_id=EpisodeId(f"r{number}"), members={}) for number in range(3)]
    object.__setattr__(records[1], "stored_line", line)
    write_participant(store, folder, "ck", OWNER, records).require()
    publish_checkpoint(store, folder, "ck", [OWNER]).require()
    return tmp_path / "ck"


@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_crashes_a_command_and_its_neighbours_are_read(name: str, tmp_path: Path) -> None:
    """I6, I25, I41."""
    checkpoint = written(tmp_path, HOSTILE[name])
    cat = inspect("cat", checkpoint)
    assert cat.code in (0, 3)
    addresses = [item.get("address") for item in map(strict, cat.text.splitlines())]
    assert {"controller/c/r0", "controller/c/r2"} <= set(addresses)
    assert ("controller/c/r1" in addresses) == (cat.code == 0)
    for pointer in ("", "#/s", "#/s/0", "#/nothing"):
        for options in ((), ("--raw",), ("--json",)):
            got = inspect("get", checkpoint, f"c/r1{pointer}", *options)
            assert got.code in (0, 1, 3), got.stderr
    for level in ("full", "deep"):
        judged = inspect("validate", checkpoint, "--level", level, "--json")
        assert judged.code in (0, 1), judged.stderr
        assert judged.items("input")[0]["records"] == 3
    if cat.code == 3:
        assert judged.code == 1
    assert inspect("ls", checkpoint, "c").code == 0
    assert inspect("recover", checkpoint, "-o", tmp_path / "new").code in (0, 3)


def test_a_document_beyond_the_depth_limit_is_a_finding(tmp_path: Path) -> None:
    """I6."""
    checkpoint = written(tmp_path, HOSTILE["deep"])
    assert inspect("validate", checkpoint, "--level", "deep").code == 1
