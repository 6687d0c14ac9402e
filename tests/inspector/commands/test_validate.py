"""``validate``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.layout import Folder
from ckptfmt.ledger import Kind, LedgerReader, pin_ledger
from ckptfmt.participant_writer import write_participant
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import publish_checkpoint, write_checkpoint
from ckptfmt.record import Record
from ckptfmt.rules import RULES
from ckptfmt.store.local import LocalStore
from inspector.commands import validate as module
from tests.ckptfmt.test_verify import CK, rewrite_aggregate, rewrite_participant
from tests.support.damage import cut, data_file, flip
from tests.support.inspecting import inspect


def test_a_whole_checkpoint_is_valid_at_every_level(checkpoint: Path) -> None:
    for level in ("quick", "full", "deep"):
        ran = inspect("validate", checkpoint, "--level", level, "--json")
        assert ran.code == 0
        (told,) = ran.items("input")
        assert (told["valid"], told["level"], told["errors"]) == (True, level, 0)
        assert told["records"] == (0 if level == "quick" else 6)


def test_the_words_and_the_code_agree(checkpoint: Path) -> None:
    """I21, I24: the last line repeats the reason: counts, kinds, an address to start from."""
    good = inspect("validate", checkpoint)
    assert "valid (full: 2 participants, 6 records" in good.text
    flip(data_file(checkpoint, "agent/a1"), 200)
    bad = inspect("validate", checkpoint)
    assert bad.code == 1
    assert "INVALID" in bad.text
    last = bad.text.splitlines()[-1]
    assert "error" in last
    assert "stream" in last
    assert "start at agent/a1" in last
    assert last in bad.stderr


def test_all_that_is_damaged_or_missing_is_found_in_one_run(checkpoint: Path) -> None:
    """I40: a missing object weighs as much as a damaged one."""
    flip(data_file(checkpoint, "agent/a1"), 200)
    data_file(checkpoint, "resources/r1").unlink()
    ran = inspect("validate", checkpoint, "--json")
    found = ran.items("finding")
    assert {item["address"].split("/")[0] for item in found} == {"agent", "resources"}
    assert {item["severity"] for item in found} == {"error"}
    assert ran.summary["errors"] == len(found)


def test_several_inputs_are_judged_together(run: Path) -> None:
    cut(data_file(run / "ck-2", "agent/a1"), -1)
    ran = inspect("validate", run / "ck-1", run / "ck-2", "--json")
    assert [item["valid"] for item in ran.items("input")] == [True, False]
    assert (ran.code, ran.summary["inputs"], ran.summary["valid"]) == (1, 2, 1)
    assert ran.items("finding")[0]["input"] == str(run / "ck-2")


def test_a_missing_input_outweighs_findings_and_the_others_are_judged(run: Path) -> None:
    """I23."""
    flip(data_file(run / "ck-1", "agent/a1"), 200)
    ran = inspect("validate", run / "nothing", run / "ck-1", "--json")
    assert ran.code == 4
    assert ran.summary["errors"] > 0
    assert ran.summary["unreadable"] == 1
    assert "could not be opened" in ran.summary["verdict"]


def test_warnings_gate_only_where_asked_for(checkpoint: Path) -> None:
    """I22."""
    (checkpoint / "stranger.txt").write_text("hello")
    assert inspect("validate", checkpoint).code == 0
    assert inspect("validate", checkpoint, "--fail-on", "error").code == 0
    ran = inspect("validate", checkpoint, "--fail-on", "warning", "--json")
    assert (ran.code, ran.summary["errors"], ran.summary["warnings"]) == (1, 0, 1)


@pytest.mark.parametrize("fail_on", ["warning", "error"])
def test_damage_gates_whatever_is_asked_for(checkpoint: Path, fail_on: str) -> None:
    """I22."""
    flip(data_file(checkpoint, "agent/a1"), 200)
    assert inspect("validate", checkpoint, "--fail-on", fail_on).code == 1


def test_exit_zero_reports_without_gating_but_hides_no_trouble(run: Path) -> None:
    """I20."""
    flip(data_file(run / "ck-1", "agent/a1"), 200)
    ran = inspect("validate", run / "ck-1", "--exit-zero", "--json")
    assert ran.code == 0
    assert ran.summary["errors"] > 0
    assert inspect("validate", run / "ck-1", run / "nothing", "--exit-zero").code == 4


def test_an_incomplete_checkpoint_is_a_finding(checkpoint: Path) -> None:
    """I45."""
    (checkpoint / "checkpoint.json").unlink()
    ran = inspect("validate", checkpoint, "--json")
    assert ran.code == 1
    assert "incomplete" in ran.summary["by_rule"]


def test_rules_are_listed_and_explained(checkpoint: Path) -> None:
    listed = inspect("validate", "--list-rules", "--json")
    assert [item["rule"] for item in listed.items("rule")] == list(RULES)
    for rule in RULES.values():
        text = inspect("validate", "--explain", rule.rule_id).text
        assert rule.explanation in text
        assert rule.advice in text
    unknown = inspect("validate", "--explain", "no-such")
    assert (unknown.code, unknown.stdout) == (2, b"")
    assert inspect("validate").code == 2


def test_pinned_ledgers_are_held_against_the_directory(tmp_path: Path) -> None:
    """L9: with both sizes, and only where the directory is given."""
    ledger = tmp_path / "captures/r.tokens.jsonl"
    ledger.parent.mkdir()
    ledger.write_bytes(b"{}\n{}\n")
    pin = pin_ledger(LedgerReader(ledger.parent), "r", Kind.TOKENS)
    store, folder, owner = LocalStore(tmp_path / "run"), Folder("ck"), ParticipantId("model", "m")
    write_participant(store, folder, "ck", owner, [], ledger_pins=[pin]).require()
    publish_checkpoint(store, folder, "ck", [owner]).require()
    (told,) = inspect("info", tmp_path / "run/ck", "--json").items("participant")
    assert told["ledger_pins"] == 1
    call = ("validate", tmp_path / "run/ck", "--level", "quick", "--ledgers", ledger.parent)
    assert inspect(*call).code == 0
    ledger.write_bytes(b"{}\n")
    ran = inspect(*call, "--json")
    assert (ran.code, ran.summary["by_rule"]) == (1, {"ledger-pin": 1})
    (found,) = ran.items("finding")
    assert found["address"] == "model/m"
    assert found["location"]["file"] == "r.tokens.jsonl"
    assert "truncated after checkpoint: it has 3 bytes; 6 are pinned" in found["message"]
    assert inspect(*call[:-2]).code == 0
    assert inspect(*call[:-1], tmp_path / "nothing").code == 4


def test_advice_is_printed_with_findings_and_never_names_the_running_command(
    checkpoint: Path,
) -> None:
    """I41, I42."""
    flip(data_file(checkpoint, "agent/a1"), 200)
    text = inspect("validate", checkpoint).text
    assert RULES["stream"].advice in text
    assert all("validate" not in rule.advice for rule in RULES.values())


def test_a_record_that_does_not_come_back_is_a_finding_with_its_address(tmp_path: Path) -> None:
    """I46: the annotation is written in a spelling that our encoder does not use."""
    line = (
        b'{"episode_id":{"rollout_id":"r","attempt":0},"s":[null,null,null,null],'
        b'"$exact":{"s":[["/0","nan"],["/1","nan"],["/2","nan"],["/3","nan"]]}}'
    )
    owner = ParticipantId("controller", "c")
    store, folder = LocalStore(tmp_path), Folder("ck")
    odd = Record.from_line(line)
    assert str(odd.members["s"].value()) == "[nan, nan, nan, nan]"
    write_participant(store, folder, "ck", owner, [odd]).require()
    publish_checkpoint(store, folder, "ck", [owner]).require()
    assert inspect("validate", tmp_path / "ck").code == 0
    ran = inspect("validate", tmp_path / "ck", "--level", "deep", "--json")
    assert ran.code == 1
    (finding,) = ran.items("finding")
    assert (finding["rule"], finding["address"]) == ("round-trip", "controller/c/r#/s")


def test_validate_never_crashes_on_damage(checkpoint: Path, tmp_path: Path) -> None:
    """I41: every file replaced, emptied, cut, or turned into a directory."""
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    for number, file in enumerate(files):
        name = file.relative_to(checkpoint)
        for kind, content in enumerate((b"", b"\x00" * 64, b"{}", None)):
            copy = Path(shutil.copytree(checkpoint, tmp_path / f"{number}-{kind}"))
            (copy / name).unlink()
            if content is None:
                (copy / name).mkdir()
            else:
                (copy / name).write_bytes(content)
            ran = inspect("validate", copy, "--level", "deep", "--json")
            assert ran.code in (1, 4), (name, content)
            if ran.code == 1:
                assert ran.summary["errors"] > 0


def test_a_manifest_that_names_another_place_is_a_finding(checkpoint: Path) -> None:
    """I74: nothing outside is read; the manifest is not the one that was published."""
    manifest = checkpoint / "agent/a1/manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"records-", b"../../r-"))
    ran = inspect("validate", checkpoint, "--json")
    assert ran.code == 1
    assert ran.summary["by_rule"].keys() == {"participant"}


def test_an_interrupted_run_does_not_claim_to_be_done(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I27, I37."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "verify", interrupted)
    ran = inspect("validate", checkpoint, "--json")
    assert ran.code == 130
    assert ran.summary["finished"] is False
    assert ran.summary["verdict"].startswith("not finished")


def test_text_from_a_damaged_checkpoint_cannot_act_on_the_terminal(checkpoint: Path) -> None:
    """I14."""
    (checkpoint / "\x1b[2Jx\u202e").write_text("")
    ran = inspect("validate", checkpoint, "--fail-on", "warning")
    assert ran.code == 1
    assert "\x1b" not in ran.text + ran.stderr
    assert "\u202e" not in ran.text + ran.stderr
    assert "1b[2Jx" in ran.text


def test_file_names_that_are_no_text_are_told_in_strict_json(checkpoint: Path) -> None:
    """I14, I35."""
    (checkpoint / "b\udcff").write_text("")
    ran = inspect("validate", checkpoint, "--json")
    assert ran.items("finding")[0]["location"]["file"] == "b\\udcff"


def with_state(tmp_path: Path, text: bytes) -> Path:
    """A checkpoint of one record with this JSON in its member ``s``."""
    owner = ParticipantId("controller", "c")
    record = Record(episode_id=EpisodeId("r"), members={"s": JsonPayload.from_json(text)})
    store, folder = LocalStore(tmp_path), Folder("ck")
    write_participant(store, folder, "ck", owner, [record]).require()
    publish_checkpoint(store, folder, "ck", [owner]).require()
    return tmp_path / "ck"


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        (b'{"a":1,"a":2}', ["#/s/a"]),
        (
            b'{"x":[0,{"b~/ ":{},"b~/ ":{"c":1,"c":1,"c":1}}]}',
            ["#/s/x/1/b~0~1%20", "#/s/x/1/b~0~1%20/c"],
        ),
        (b'{"a":1,\n"\\u0061":2}', ["#/s/a"]),
        (b'{ "a" : 1.00, "b": [ {"a": 1}, {"a": 1} ] }', []),
        (b"[" * 300 + b'{"k":1,"k":2}' + b"]" * 300, ["#/s" + "/0" * 300 + "/k"]),
    ],
    ids=["plain", "nested", "kept as text", "none", "deep"],
)
def test_a_member_that_stands_twice_is_named_and_is_no_damage(
    text: bytes, pointers: list[str], tmp_path: Path
) -> None:
    """I4: both are shown, and validate names them by pointer."""
    checkpoint = with_state(tmp_path, text)
    assert inspect("get", checkpoint, "c/r#/s", "--raw").stdout == text
    ran = inspect("validate", checkpoint, "--level", "deep", "--json")
    assert ran.code == 0
    assert [item["address"] for item in ran.items("finding")] == [
        f"controller/c/r{pointer}" for pointer in pointers
    ]
    assert {item["rule"] for item in ran.items("finding")} <= {"duplicate-member"}
    for pointer in pointers:
        assert inspect("get", checkpoint, f"c/r{pointer}").code == 0
    gated = inspect("validate", checkpoint, "--level", "deep", "--fail-on", "warning")
    assert gated.code == (1 if pointers else 0)


def test_a_record_that_takes_too_much_memory_to_decode_is_told_and_judged_otherwise(
    tmp_path: Path,
) -> None:
    """I8, I46: not decoded is neither valid to the last byte nor damaged."""
    owner = ParticipantId("controller", "c")
    texts = {"r1": b"[" + b"{}," * (2 << 20) + b"1]", "r2": b"[1]"}
    records = [
        Record(episode_id=EpisodeId(name), members={"s": JsonPayload.from_json(text)})
        for name, text in texts.items()
    ]
    write_checkpoint(LocalStore(tmp_path), "ck", {owner: records}).require()
    ck = tmp_path / "ck"
    assert inspect("validate", ck).code == 0
    deep = inspect("validate", ck, "--level", "deep", "--json")
    assert deep.code == 3
    (told,) = deep.items("finding")
    assert (told["rule"], told["severity"], told["code"]) == ("undecoded", "warning", "too_large")
    assert told["address"] == "controller/c/r1"
    assert f"{len(texts['r1']):,}"[:4] in told["message"]
    assert "--large" in deep.summary["advice"]["undecoded"]
    assert deep.summary["valid"] == 1
    assert inspect("validate", ck, "--level", "deep", "--exit-zero").code == 3
    assert inspect("validate", ck, "--level", "deep", "--large").code == 0


def test_a_long_record_is_judged_as_any_other(tmp_path: Path) -> None:
    """The same findings, whether a line is held or not."""
    owner = ParticipantId("controller", "c")
    found = []
    for size in (10, 5 << 20):
        text = b'["' + b"a" * size + b'", 1.0E5, {"a":1,"a":2}]'
        record = Record(episode_id=EpisodeId("r"), members={"s": JsonPayload.from_json(text)})
        folder = tmp_path / str(size)
        write_checkpoint(LocalStore(folder), "ck", {owner: [record]}).require()
        ran = inspect("validate", folder / "ck", "--level", "deep", "--json")
        assert ran.code == 0
        found.append([(item["rule"], item["address"]) for item in ran.items("finding")])
    assert found[0] == found[1] == [("duplicate-member", "controller/c/r#/s/2/a")]


def test_what_a_later_release_added_is_told_and_read_past(run: Path) -> None:
    """I44: of either manifest; the records are read all the same."""

    def newer(members: dict[str, Any]) -> None:
        members |= {"minor": 9, "x_new": [1], "x_\u202e": {}}

    rewrite_participant(run, newer)
    rewrite_aggregate(run, newer)
    ck = run / CK.prefix
    for level in ("quick", "deep"):
        ran = inspect("validate", ck, "--level", level, "--json")
        assert ran.code == 0
        found = [(item["rule"], item["address"]) for item in ran.items("finding")]
        assert found == [("later-release", None), ("later-release", "agent/a1")]
        assert "minor version 9 and members 'x_new', 'x_" in ran.items("finding")[0]["message"]
    assert inspect("validate", ck, "--fail-on", "warning").code == 1
    assert inspect("cat", ck).code == inspect("ls", ck).code == inspect("info", ck).code == 0
