"""``cat``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import write_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from tests.ckptfmt.test_verify import rewrite_participant
from tests.support.checkpoints import AGENT, RESOURCES, agent_record, small_records
from tests.support.damage import cut, data_file, flip
from tests.support.inspecting import PROGRAM, inspect
from tests.support.tools import require_tool


def stored_lines() -> list[bytes]:
    records = small_records()
    return [
        b"".join(map(bytes, record.line())) for key in (AGENT, RESOURCES) for record in records[key]
    ]


def test_records_come_as_ndjson_and_the_summary_last(checkpoint: Path) -> None:
    *records, summary = inspect("cat", checkpoint).lines
    assert [record["type"] for record in records] == ["record"] * 6
    assert records[0]["address"] == "agent/a1/r1/s"
    assert records[0]["record"]["session"]["messages"][0]["content"] == "hello"
    assert records[3]["record"]["$exact"]["state"][0] == ["/rows/0/1", "nan"]
    assert (summary["type"], summary["records"], summary["lost"]) == ("summary", 6, 0)


def test_bare_gives_the_stored_lines_byte_for_byte(checkpoint: Path) -> None:
    bare = inspect("cat", checkpoint, "--bare")
    assert bare.stdout == b"".join(line + b"\n" for line in stored_lines())


def test_addresses_select_participants_episodes_and_records(checkpoint: Path) -> None:
    def keys(*addresses: str) -> list[str]:
        return [item["address"] for item in inspect("cat", checkpoint, *addresses).lines[:-1]]

    assert keys("agent") == [f"agent/a1/r{n}/s" for n in (1, 2, 3)]
    assert keys("agent/a1/r2/s") == ["agent/a1/r2/s"]
    assert keys("agent/a1/r2") == ["agent/a1/r2/s"]
    assert keys("resources/r1/r3", "agent/a1/r1") == [
        "resources/r1/r3/session%2Fr3",
        "agent/a1/r1/s",
    ]


def test_every_address_that_is_printed_finds_its_record(checkpoint: Path) -> None:
    """I72."""
    for item in inspect("cat", checkpoint).lines[:-1]:
        found = inspect("get", checkpoint, item["address"], "--json")
        assert found.items("value")[0]["value"] == item["record"]


def test_an_address_without_a_record_is_a_negative_answer(checkpoint: Path) -> None:
    assert inspect("cat", checkpoint, "agent/a1/nothing").code == 1
    assert inspect("cat", checkpoint, "nobody/n").code == 4


def test_a_pointer_is_refused(checkpoint: Path) -> None:
    assert inspect("cat", checkpoint, "agent/a1/r1#/session").code == 2


def test_one_unreadable_block_among_many_is_skipped_and_listed(tmp_path: Path) -> None:
    """I25, I23: the rest is printed, the loss is listed, the code is 3."""
    records = [agent_record(f"r{n:02}", text=str(n) * 800_000) for n in range(9)]
    write_checkpoint(LocalStore(tmp_path), "ck", {AGENT: records}).require()
    file = data_file(tmp_path / "ck", "agent/a1")
    blocks = file.read_bytes().split(b"BLCK")
    assert len(blocks) > 3
    flip(file, len(b"BLCK".join(blocks[:2])) + len(blocks[2]) // 2)
    ran = inspect("cat", tmp_path / "ck")
    items = ran.lines
    kept = [item["address"] for item in items if item["type"] == "record"]
    lost = [item for item in items if item["type"] == "lost"]
    assert ran.code == 3
    assert 0 < len(kept) < 9
    assert kept[0] == "agent/a1/r00/s"
    assert kept[-1] == "agent/a1/r08/s"
    assert lost[0]["location"]["block"] == 1
    assert items[-1]["exit_code"] == 3
    assert items[-1]["lost"] == len(lost)
    assert inspect("cat", tmp_path / "ck", "--bare").stdout.count(b"\n") == len(kept)


@pytest.mark.parametrize("part", [b"INDX", b"PAGE", b"DGST", b"END."])
def test_damage_behind_the_records_loses_none(checkpoint: Path, part: bytes) -> None:
    """F42."""
    file = data_file(checkpoint, "agent/a1")
    flip(file, file.read_bytes().rindex(part) + 6)
    for address in ((), ("agent/a1/r2/s",)):
        ran = inspect("cat", checkpoint, *address)
        kept = [item for item in ran.lines if item["type"] == "record"]
        assert len(kept) == (1 if address else 6)
        assert ran.code == 3 or address


def test_a_cut_file_gives_what_is_before_the_cut(checkpoint: Path) -> None:
    file = data_file(checkpoint, "agent/a1")
    cut(file, file.read_bytes().index(b"PAGE"))
    ran = inspect("cat", checkpoint, "agent")
    assert ran.code == 3
    assert sum(item["type"] == "record" for item in ran.lines) == 3


def test_what_is_missing_is_listed_and_the_rest_comes(checkpoint: Path) -> None:
    """I40."""
    data_file(checkpoint, "agent/a1").unlink()
    ran = inspect("cat", checkpoint)
    assert ran.code == 3
    assert [item["type"] for item in ran.lines] == ["lost", "record", "record", "record", "summary"]


def test_a_limit_says_that_it_cut(checkpoint: Path) -> None:
    """I38."""
    *records, summary = inspect("cat", checkpoint, "--limit", "2").lines
    assert len(records) == 2
    assert (summary["truncated"], summary["total"]) == (True, None)
    assert "--limit" in inspect("cat", checkpoint, "--limit", "2", "--bare").stderr


def test_an_incomplete_checkpoint_is_read_on_request(checkpoint: Path) -> None:
    """I45."""
    (checkpoint / "checkpoint.json").unlink()
    assert inspect("cat", checkpoint).code == 4
    assert len(inspect("cat", checkpoint, "--incomplete").lines) == 7


def test_on_a_terminal_nothing_of_a_payload_takes_effect(tmp_path: Path) -> None:
    """I13: in every format, and the JSON is still the same JSON."""
    text = "\x1b[2J\x1b]52;c;aGk=\x07\x9b31m\r\u202e\u2066[/x]:thumbs_up:"
    record = Record(episode_id=EpisodeId("r"), members={"s": JsonPayload.from_value({text: text})})
    other = AGENT.__class__("controller", "c")
    write_checkpoint(LocalStore(tmp_path), "ck", {other: [record]}).require()
    piped = inspect("cat", tmp_path / "ck").lines
    assert piped[0]["record"]["s"] == {text: text}
    for options in ((), ("--format", "text"), ("--bare",), ("--json",)):
        shown = inspect("cat", tmp_path / "ck", *options, terminal=True).text
        for acting in "\x1b\x07\x9b\r\u202e\u2066":
            assert acting not in shown
        assert "[/x]:thumbs_up:" in shown
    assert inspect("cat", tmp_path / "ck", terminal=True).lines[0] == piped[0]


def test_jq_takes_what_cat_prints(checkpoint: Path) -> None:
    """I34."""
    jq = require_tool("jq")
    with subprocess.Popen(
        [PROGRAM, "cat", checkpoint, "--format", "ndjson"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as cat:
        done = subprocess.run(
            [jq, "-r", ".type"], stdin=cat.stdout, capture_output=True, text=True, check=True
        )
    assert done.stdout.split() == ["record"] * 6 + ["summary"]


def test_a_document_at_the_depth_limit_is_printed_whole(tmp_path: Path) -> None:
    """I6."""
    value: object = 1
    for _ in range(499):
        value = [value]
    record = Record(episode_id=EpisodeId("r"), members={"s": JsonPayload.from_value(value)})
    other = AGENT.__class__("controller", "c")
    write_checkpoint(LocalStore(tmp_path), "ck", {other: [record]}).require()
    bare = inspect("cat", tmp_path / "ck", "--bare").text
    assert bare.count("[") == bare.count("]") == 499
    assert inspect("get", tmp_path / "ck", "c/r#/s" + "/0" * 499).text == "1\n"
    assert inspect("validate", tmp_path / "ck", "--level", "deep").code == 0


@pytest.mark.parametrize("addresses", [[], ["agent/a1/r1/s"], ["agent/a1"]], ids=str)
def test_records_of_an_unknown_schema_are_one_loss(checkpoint: Path, addresses: list[str]) -> None:
    """F25: not one a record, and what is known is given all the same."""
    rewrite_participant(checkpoint.parent, lambda members: members.update(schema_version=2))
    ran = inspect("cat", checkpoint, *addresses)
    assert ran.code == 3
    lost = [item for item in ran.lines if item["type"] == "lost"]
    assert [(item["code"], item["location"]["participant"]) for item in lost] == [
        ("unsupported", "agent/a1")
    ]
    assert ran.lines[-1]["records"] == (0 if addresses else 3)
