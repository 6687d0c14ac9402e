"""``get``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.errors import SizeError
from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import write_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalStore
from tests.ckptfmt.test_verify import rewrite_participant
from tests.support.damage import data_file, flip
from tests.support.inspecting import Ran, inspect

OWNER = ParticipantId("controller", "c")
STATE = {
    "int": 13911860366432393, "big": 2**128, "float": 1908.0, "small": 4.4, "one": 1.0,
    "nan": math.nan, "list": [math.nan, math.inf, -math.inf, math.nan, 0.5, math.nan],
    "null": None, "text": "a\nb", "lone": "\ud800", "bad": "\x1b[2J", "pair": (1, 2),
    "a/b ~#%\"'": {"": [10, 20]},
}  # fmt: skip


@pytest.fixture
def ck(tmp_path: Path) -> Path:
    members = {
        "s": JsonPayload.from_value(STATE),
        "own": JsonPayload.from_json(b'{"a": 1.0E5,\n "a": 1e400}'),
    }
    record = Record(episode_id=EpisodeId("r"), members=members)
    write_checkpoint(LocalStore(tmp_path / "run"), "ck", {OWNER: [record]}).require()
    return tmp_path / "run" / "ck"


def at(ck: Path, pointer: str, *options: str, **kind: Any) -> Ran:
    return inspect("get", ck, "controller/c/r#" + pointer, *options, **kind)


@pytest.mark.parametrize(
    ("pointer", "text"),
    [
        ("/s/int", "13911860366432393"),
        ("/s/big", "340282366920938463463374607431768211456"),
        ("/s/float", "1908.0"),
        ("/s/small", "4.4"),
        ("/s/one", "1.0"),
        ("/s/null", "null"),
        ("/s/nan", "NaN"),
        ("/s/list", "[NaN,Infinity,-Infinity,NaN,0.5,NaN]"),
        ("/s/list/2", "-Infinity"),
        ("/s/text", '"a\\nb"'),
        ("/s/a~1b%20~0%23%25%22'//1", "20"),
        ("/own", '{"a": 1.0E5,\n "a": 1e400}'),
        ("/own/a", "1e400"),
        ("/episode_id", '{"rollout_id":"r","attempt":0}'),
    ],
)
def test_a_value_is_printed_as_it_is_stored(ck: Path, pointer: str, text: str) -> None:
    """I1, I2, I3, I4, I5."""
    got = at(ck, pointer)
    assert (got.code, got.text) == (0, text + "\n")


@pytest.mark.parametrize("pointer", ["/s/big", "/s", "", "/own", "/s/nan"])
def test_raw_gives_stored_bytes_and_nothing_else(ck: Path, pointer: str) -> None:
    """I3."""
    raw = at(ck, pointer, "--raw").stdout
    line = inspect("cat", ck, "--bare").stdout.rstrip(b"\n")
    own = b'{"a": 1.0E5,\n "a": 1e400}'
    assert raw == own if pointer == "/own" else raw in line
    assert not raw.endswith(b"\n")


@pytest.mark.parametrize("pointer", ["/s/nan", "/s/list", "/s/pair", "/own", "/s/lone", "/s"])
def test_json_is_strict_and_tags_what_it_cannot_spell(ck: Path, pointer: str) -> None:
    """I3."""
    (item,) = at(ck, pointer, "--json").items("value")
    assert item["exact"]
    assert item["address"] == "controller/c/r#" + pointer
    assert at(ck, "/s/small", "--json").items("value")[0]["exact"] == []


def test_what_text_cannot_show_is_said(ck: Path) -> None:
    assert "tuple" in at(ck, "/s/pair").stderr
    assert at(ck, "/s/small").stderr == ""


@pytest.mark.parametrize(
    "address",
    ["c/r#/s/no", "controller/c/no", "c/r#/s/list/9", "controller/c/r#/s/int/0", "nobody/x/y"],
)
def test_what_does_not_exist_is_code_1_and_nothing_on_stdout(ck: Path, address: str) -> None:
    """I28."""
    got = inspect("get", ck, address)
    assert (got.code, got.stdout) == (1, b"")
    assert got.stderr
    for options in (("--raw",), ("--string",), ("-q",)):
        assert inspect("get", ck, address, *options).stdout == b""
    assert inspect("get", ck, address, "--json").summary["found"] is False


def test_a_default_stands_in_for_what_does_not_exist_only(ck: Path) -> None:
    """I28."""
    got = at(ck, "/s/no", "--default", "none")
    assert (got.code, got.text) == (0, "none\n")
    assert at(ck, "/s/null", "--default", "none").text == "null\n"
    (item,) = at(ck, "/s/no", "--default", "[1]", "--json").items("value")
    assert (item["value"], item["default"]) == ([1], True)
    assert at(ck, "/s/no", "--default", "no json", "--json").code == 2


def test_string_gives_the_text_of_a_string(ck: Path) -> None:
    assert at(ck, "/s/text", "--string").stdout == b"a\nb\n"
    assert at(ck, "/s/bad", "--string").stdout == b"\x1b[2J\n"
    for pointer in ("/s/int", "/s/lone"):
        got = at(ck, pointer, "--string")
        assert (got.code, got.stdout) == (1, b"")


@pytest.mark.parametrize("options", [(), ("--raw",), ("--string",), ("--json",)])
def test_on_a_terminal_a_payload_does_nothing(ck: Path, options: tuple[str, ...]) -> None:
    """I13."""
    shown = at(ck, "/s/bad", *options, terminal=True).text
    assert "\x1b" not in shown
    assert "1b[2J" in shown


@pytest.mark.parametrize(
    "options", [("--raw", "--string"), ("--raw", "--json"), ("--string", "--format", "ndjson")]
)
def test_options_that_contradict_each_other_are_refused(ck: Path, options: tuple[str, ...]) -> None:
    assert at(ck, "/s", *options).code == 2


def test_an_address_that_names_no_record_is_refused(ck: Path) -> None:
    assert inspect("get", ck, "controller/c").code == 2
    assert inspect("get", ck, "controller/c/r#s").code == 2


def test_an_episode_with_one_record_names_it_and_with_several_lists_them(
    tmp_path: Path, checkpoint: Path
) -> None:
    """I71."""
    assert inspect("get", checkpoint, "a1/r1#/session_key").text == '"s"\n'
    two = [
        Record(episode_id=EpisodeId("r"), members={"sub_key": JsonPayload.from_value(name)})
        for name in ("x", "y")
    ]
    write_checkpoint(LocalStore(tmp_path / "two"), "ck", {OWNER: two}).require()
    got = inspect("get", tmp_path / "two" / "ck", "c/r")
    assert got.code == 2
    assert "r/x, r/y" in got.stderr


@pytest.mark.parametrize("part", [b"PAGE", b"INDX"])
def test_a_value_is_found_past_a_damaged_index(checkpoint: Path, part: bytes) -> None:
    """I25."""
    file = data_file(checkpoint, "agent/a1")
    flip(file, file.read_bytes().index(part) + 6)
    got = inspect("get", checkpoint, "agent/a1/r2/s#/session_key")
    assert (got.code, got.text) == (3, '"s"\n')


@pytest.mark.parametrize("gone", ["records", "manifest"])
def test_damage_is_never_told_as_not_found(checkpoint: Path, gone: str) -> None:
    """I28, I40: code 3 for whatever is gone, and a default does not hide it."""
    file = data_file(checkpoint, "agent/a1")
    (file if gone == "records" else file.with_name("manifest.json")).unlink()
    for options in ((), ("--default", "x"), ("--raw",)):
        got = inspect("get", checkpoint, "agent/a1/r2/s", *options)
        assert (got.code, got.stdout) == (3, b"")
        assert "manifest" in got.stderr or gone == "records"


def test_a_value_of_an_unknown_schema_is_one_error(checkpoint: Path) -> None:
    """F25."""
    rewrite_participant(checkpoint.parent, lambda members: members.update(schema_version=2))
    for address in ("agent/a1/r1/s#/session", "agent/a1/r1", "agent/a1/none"):
        ran = inspect("get", checkpoint, address)
        assert (ran.code, ran.stdout) == (4, b"")
        assert "schema 'agent' version 2" in ran.stderr
    assert inspect("get", checkpoint, "resources/r1/r1").code == 0


@pytest.mark.parametrize("address", ["agent/a1/r1/s", "agent/a1/r1"])
def test_a_damage_is_told_once_however_often_it_is_met(checkpoint: Path, address: str) -> None:
    """I24: through the index, past it, and through the index again."""
    flip(data_file(checkpoint, "agent/a1"), 200)
    ran = inspect("get", checkpoint, address, "--json")
    assert ran.code == 3
    assert len(ran.told) == 1
    assert "more)" not in ran.summary["reason"]


def test_the_whole_key_is_meant_before_those_that_begin_with_it(tmp_path: Path) -> None:
    """Also where its record is damaged: then nothing else is offered."""
    records = [
        Record(episode_id=EpisodeId("r"), members={"s": JsonPayload.from_value("x" * 3_000_000)}),
        Record(episode_id=EpisodeId("r"), members={"sub_key": JsonPayload.from_value("k")}),
    ]
    write_checkpoint(LocalStore(tmp_path), "ck", {OWNER: records}).require()
    flip(data_file(tmp_path / "ck", "controller/c"), 200)
    ran = inspect("get", tmp_path / "ck", "c/r", "--raw")
    assert (ran.code, ran.stdout) == (3, b"")


def test_a_record_that_cannot_be_judged_for_its_size_is_told(
    ck: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> object:
        raise SizeError("more short members than can be held").at(key="r")

    monkeypatch.setattr("ckptfmt.participant_reader.ParticipantReader.read", refuse)
    ran = at(ck, "", "--raw")
    assert (ran.code, ran.stdout) == (3, b"")
    assert "short members" in ran.stderr


def test_a_long_record_gives_what_a_short_one_gives(tmp_path: Path) -> None:
    """I8, in small: every option, whether the line is held or not."""
    given = []
    for size in (10, 5 << 20):
        members = {
            "s": JsonPayload.from_value({"n": [math.nan, 1.0], "x": "é\u202e"}),
            "own": JsonPayload.from_json(b' {"a": 1.0E5, "a": "\\ud83d\\ude00"} '),
            "z": JsonPayload.from_value("a" * size),
        }
        record = Record(episode_id=EpisodeId("r"), members=members)
        run = tmp_path / str(size)
        write_checkpoint(LocalStore(run), "ck", {OWNER: [record]}).require()
        given.append(
            [
                (ran.code, ran.stdout)
                for pointer in ("/s", "/s/n", "/s/n/0", "/s/x", "/own", "/own/a", "/nope", "/own/b")
                for options in (
                    ("--raw",),
                    (),
                    ("--string",),
                    ("--json",),
                    ("--raw", "--default", "7"),
                )
                for ran in [at(run / "ck", pointer, *options), at(run / "ck", pointer, "--raw")]
            ]
        )
    assert given[0] == given[1]
    whole = inspect("get", tmp_path / str(5 << 20) / "ck", "c/r", "--raw").stdout
    bare = inspect("cat", tmp_path / str(5 << 20) / "ck", "--bare").stdout
    assert bare == whole + b"\n"
    assert b'"z":"%b"' % (b"a" * (5 << 20)) in whole
