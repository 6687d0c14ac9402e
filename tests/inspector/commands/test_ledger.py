"""``ledger``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ckptfmt.errors import StorageFailedError, TransientError
from ckptfmt.ledger import LEDGER_RULES, StagingLedger, TokenStore
from ckptfmt.ledger import calls as ledger_calls
from ckptfmt.ledger.limits import MAX_FINDINGS
from ckptfmt.ledger.reader import LedgerReader
from tests.support.inspecting import Ran, documented, inspect, spawn
from tests.support.ledgers import call_id, child_entry, entry, failure, row

HOSTILE = "\x1b[2J\u202e[red]:thumbs_up:"


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Forked and dangling calls (r), a retired attempt and its successor (q), rows (s)."""
    root = tmp_path / "captures"
    first = entry("r", 0)
    second = child_entry(first, 1)
    fourth = child_entry(second, 3)
    with TokenStore(root) as store:
        for made in (first, second, child_entry(second, 2), fourth, child_entry(fourth, 4)):
            store.begin_call("r", made.model_call_id)
            store.put(made)
        store.begin_call("r", "begun")
        store.mark_incomplete("r", "lost")
        store.put(entry("q", 0))
        store.freeze("q")
        store.retire(["q"])
        store.put(entry("q-a1", 0))
    with StagingLedger(root) as ledger:
        ledger.record("s", row(0))
        ledger.record("s", row(1, row(0)))
        ledger.record("s", failure(2))
    return root


def known(ran: Ran) -> Ran:
    """The run, its every line as documented."""
    for item in (*ran.document["items"], ran.summary):
        documented("ledger", item)
    for told in ran.told:
        documented("", told)
    return ran


def snapshot(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, change times and inode of every file, the directory's own time included."""
    paths = [root, *root.iterdir()]
    return {
        path.name: (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
            path.stat().st_ino,
        )
        for path in paths
    }


def test_every_rollout_is_listed_with_its_state(captures: Path) -> None:
    ran = known(inspect("ledger", captures, "--json"))
    assert ran.code == 0
    items = {item["key"]: item for item in ran.items("rollout")}
    assert list(items) == ["q", "q-a1", "r", "s"]
    assert (items["q"]["retired"], items["q"]["continued_by"]) == (True, "q-a1")
    assert (items["q-a1"]["rollout_id"], items["q-a1"]["attempt"]) == ("q", 1)
    assert (items["r"]["incomplete"], items["r"]["calls"]) == (True, 5)
    assert items["s"]["files"] == ["lineage.jsonl"]
    assert (ran.summary["rollouts"], ran.summary["damaged"]) == (4, 0)
    text = inspect("ledger", captures).text
    assert "q     " in text
    assert "frozen, retired" in text
    assert "4 rollouts: 1 frozen, 1 retired, 1 incomplete, 0 damaged" in text


def test_the_list_is_given_as_it_is_read(captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I37: what was read before the list ends early stands there, and the exit code is not 0."""

    def cut(*_: object) -> object:
        yield from list(ledger_calls.list_rollouts(LedgerReader(captures)))[:2]
        raise StorageFailedError("the disk went away")

    monkeypatch.setattr("inspector.commands.ledger.list_rollouts", cut)
    ran = known(inspect("ledger", captures, "--json"))
    assert ran.code == 4
    assert [item["key"] for item in ran.items("rollout")] == ["q", "q-a1"]
    assert ran.summary["rollouts"] == 2


def test_a_damaged_rollout_is_listed_and_hides_no_other(captures: Path) -> None:
    """L8."""
    (captures / "r.tokens.state.json").write_bytes(b"{")
    ran = known(inspect("ledger", captures, "--json"))
    assert ran.code == 3
    assert [item["key"] for item in ran.items("rollout")] == ["q", "q-a1", "r", "s"]
    (bad,) = (item for item in ran.items("rollout") if item["problem"])
    assert (bad["key"], bad["calls"], ran.summary["damaged"]) == ("r", None, 1)
    assert "DAMAGED" in inspect("ledger", captures).text


@pytest.mark.parametrize("kind", ["tokens", "lineage"])
def test_a_rollout_with_a_bad_line_is_told_in_the_list(captures: Path, kind: str) -> None:
    """L8: of what no index vouches for; a cut last line is no damage, a whole one counts."""
    (captures / f"t.{kind}.jsonl").write_bytes(b'{"a":1}\nbad\n{"b":1}\n\n{"c":')
    (captures / f"u.{kind}.jsonl").write_bytes(b'{"a":1}\n{"b":1}')
    ran = known(inspect("ledger", captures, "--json"))
    assert (ran.code, ran.summary["damaged"]) == (3, 1)
    found = {item["key"]: item for item in ran.items("rollout")}
    assert found["t"]["problem"]["code"] == "corrupt"
    assert (found["t"]["calls"], found["u"]["calls"]) == (2, 2)
    assert found["u"]["problem"] is None
    (told,) = ran.told
    assert told["location"] == {"file": f"t.{kind}.jsonl", "offset": 8, "key": "t"}


def test_a_rollout_whose_index_reaches_too_far_is_told_in_the_list(captures: Path) -> None:
    """L8, L9: the lines were cut after they were indexed."""
    (captures / "t.tokens.state.json").write_bytes(b'{"indexed_size":9}')
    (captures / "t.tokens.jsonl").write_bytes(b'{"a":1}\n')
    ran = known(inspect("ledger", captures, "--json"))
    assert (ran.code, ran.summary["damaged"]) == (3, 1)
    assert "beyond 8 bytes" in ran.told[0]["message"]


def test_calls_stand_below_their_parents_and_move_only_at_a_fork(captures: Path) -> None:
    ran = known(inspect("ledger", captures, "r", "--json"))
    assert ran.code == 0
    calls = ran.items("call")
    assert [(call["call_id"], call["depth"], call["column"]) for call in calls] == [
        (call_id(0), 0, 0),
        (call_id(1), 1, 0),
        (call_id(2), 2, 1),
        (call_id(3), 2, 1),
        (call_id(4), 3, 1),
    ]
    last = calls[-1]
    assert (last["prompt_tokens"], last["generated_tokens"], last["cumulative_tokens"]) == (
        16, 2, 18,
    )  # fmt: skip
    assert [(item["call_id"], item["reason"]) for item in ran.items("unrecorded")] == [
        ("begun", "begun"),
        ("lost", "lost"),
    ]
    text = inspect("ledger", captures, "r").text
    assert "\n  call-00004" in text
    assert "begun: begun, and neither recorded nor cancelled" in text


def test_rows_without_tokens_are_a_tree_too(captures: Path) -> None:
    ran = known(inspect("ledger", captures, "s", "--json"))
    calls = ran.items("call")
    assert [(call["depth"], call["cumulative_tokens"]) for call in calls] == [
        (0, 10), (1, 20), (0, None),
    ]  # fmt: skip
    assert calls[2]["note"] == "failed: worker_capture_failed"


def test_an_orphan_is_shown_and_told(captures: Path) -> None:
    path = captures / "r.tokens.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))
    ran = inspect("ledger", captures, "r", "--json")
    assert [call["depth"] for call in ran.items("call")] == [0, 0, 1]
    assert "parent is not recorded" in ran.items("call")[0]["note"]


def test_the_tail_is_what_was_recorded_last_and_says_that_it_is_one(captures: Path) -> None:
    """I38."""
    ran = known(inspect("ledger", captures, "r", "--tail", "2", "--json"))
    assert [(call["call_id"], call["depth"]) for call in ran.items("call")] == [
        (call_id(3), 2),
        (call_id(4), 3),
    ]
    summary = ran.summary
    assert (summary["shown"], summary["total"], summary["truncated"]) == (2, 5, True)
    assert "(the last 2 of 5 calls)" in inspect("ledger", captures, "r", "--tail", "2").text
    assert inspect("ledger", captures, "r", "--tail", "9", "--json").summary["truncated"] is False


def test_a_damaged_line_is_lost_and_its_neighbours_are_shown(captures: Path) -> None:
    """L3."""
    path = captures / "r.tokens.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"\xff bad\n" + b"".join(rest))
    ran = known(inspect("ledger", captures, "r", "--json"))
    assert ran.code == 3
    assert len(ran.items("call")) == 5
    (lost,) = ran.items("lost")
    assert lost["location"]["offset"] == len(first)
    assert "bad" not in inspect("ledger", captures, "r").text


def test_a_cut_last_line_is_told_with_its_offset_and_is_no_damage(captures: Path) -> None:
    """L1."""
    path = captures / "r.tokens.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"model_call_id":"c')
    ran = known(inspect("ledger", captures, "r", "--json"))
    assert (ran.code, len(ran.items("call"))) == (0, 5)
    (lost,) = ran.items("lost")
    assert (lost["code"], lost["location"]["offset"]) == ("torn", len(whole))
    judged = inspect("ledger", captures, "r", "--verify", "--json")
    assert "ledger-torn" in judged.summary["by_rule"]
    assert judged.code == 0


def test_findings_make_the_exit_code_and_warnings_do_not(captures: Path) -> None:
    """I21, I24."""
    ran = known(inspect("ledger", captures, "--verify", "--json"))
    assert ran.code == 0
    assert ran.summary["by_rule"] == {
        "ledger-failure": 1, "ledger-incomplete": 1, "ledger-intent": 1,
    }  # fmt: skip
    path = captures / "s.lineage.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"bad\n" + b"".join(rest))
    ran = known(inspect("ledger", captures, "--verify", "--json"))
    assert ran.code == 1
    assert ran.summary["start"] == f"s.lineage.jsonl at byte {len(first)}"
    assert ran.summary["advice"]["ledger-line"] == LEDGER_RULES["ledger-line"].advice
    assert "1 error, 3 warnings" in ran.summary["reason"]
    assert inspect("ledger", captures, "s", "--verify").code == 1
    assert inspect("ledger", captures, "r", "--verify").code == 0
    text = inspect("ledger", captures, "--verify").text
    assert "error   ledger-line  s.lineage.jsonl" in text
    assert LEDGER_RULES["ledger-line"].explanation in (
        inspect("validate", "--explain", "ledger-line").text
    )


def test_millions_of_bad_lines_are_counted_not_held(tmp_path: Path) -> None:
    more = 17
    (tmp_path / "r.tokens.jsonl").write_bytes(b"x\n" * (MAX_FINDINGS + more))
    (tmp_path / "s.lineage.jsonl").write_bytes(b"x\n" * (MAX_FINDINGS + more))
    for key in "rs":
        judged = known(inspect("ledger", tmp_path, key, "--verify", "--json"))
        assert len(judged.items("finding")) == MAX_FINDINGS + 1
        assert f"and {more} more" in judged.items("finding")[-1]["message"]
        shown = known(inspect("ledger", tmp_path, key, "--json"))
        assert len(shown.items("lost")) == MAX_FINDINGS
        assert shown.summary["lost"] == MAX_FINDINGS + more
        assert f"{more} further damaged lines" in shown.stderr


def test_a_store_that_fails_is_no_verdict(captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> object:
        raise TransientError("the file system timed out")

    monkeypatch.setattr(LedgerReader, "sidecars", failing)
    ran = known(inspect("ledger", captures, "--verify", "--json"))
    assert ran.code == 5
    assert ran.summary["by_rule"]["ledger-unreadable"] > 0
    assert inspect("ledger", captures).code == 5


def test_what_is_not_there_is_told_apart(captures: Path, tmp_path: Path) -> None:
    """I28, I29."""
    missing = known(inspect("ledger", captures, "no-such", "--json"))
    assert (missing.code, missing.summary["found"]) == (1, False)
    assert "there is q, q-a1" in inspect("ledger", captures, "q-a7").stderr
    assert inspect("ledger", captures, "../r").code == 2
    assert inspect("ledger", captures, "--tail", "2").code == 2
    assert inspect("ledger", captures, "r", "--verify", "--tail", "2").code == 2
    assert inspect("ledger", tmp_path / "nothing").code == 4
    assert inspect("ledger", "s3://bucket/captures").code == 4
    (tmp_path / "other").mkdir()
    assert inspect("ledger", tmp_path / "other").code == 0
    (tmp_path / "other" / "notes.txt").write_text("")
    assert inspect("ledger", tmp_path / "other").code == 4
    assert inspect("ledger", tmp_path / "other", "--verify").code == 4


def test_no_byte_time_lock_or_index_changes(captures: Path) -> None:
    """L4."""
    (captures / "torn.tokens.jsonl").write_bytes(entry("torn").line() + b'\n{"model')
    (captures / "torn.tokens.lock").touch()
    before = snapshot(captures)
    for arguments in ((), ("r",), ("torn",), ("--verify",), ("torn", "--verify"), ("no",)):
        inspect("ledger", captures, *arguments)
        assert snapshot(captures) == before


def test_text_from_outside_is_harmless(tmp_path: Path) -> None:
    """I13, I14, I15."""
    line = json.dumps(
        {"model_call_id": f"call{HOSTILE}", "parent_call_id": f"parent{HOSTILE}",
         "parent_resolution": "unresolved", "failure_reason": HOSTILE, "rollout_id": HOSTILE}
    )  # fmt: skip
    (tmp_path / "r.tokens.jsonl").write_text(line + "\n")
    (tmp_path / "r.lineage.jsonl").write_text(line.replace("call", "row") + "\n")
    (tmp_path / "r.tokens.intents").write_text(f"intent{HOSTILE}\n")
    (tmp_path / "r.tokens.incomplete").write_text(f"lost{HOSTILE}\n")
    os.close(os.open(os.fsencode(tmp_path) + b"/\x1b[2J\xff", os.O_CREAT | os.O_WRONLY))
    for arguments in (("r",), ("--verify",), ("r", "--verify"), ()):
        for options in ((), ("--json",)):
            ran = inspect("ledger", tmp_path, *arguments, *options, terminal=True)
            assert ran.code in (0, 1)
            assert not set("\x1b\u202e") & set(ran.text + ran.stderr)
    text = inspect("ledger", tmp_path, "r").text
    assert r"call\x1b[2J\u202e[red]:thumbs_up:" in text


def test_a_fork_at_every_call_stays_readable(tmp_path: Path) -> None:
    """L39: a caterpillar of forks moves one column a call; its far columns are in figures."""
    rows = [row(0)]
    for number in range(1, 3_000, 2):
        parent = rows[-1]
        rows += [row(number + 1, parent), row(number, parent)]
    with StagingLedger(tmp_path) as ledger:
        ledger.import_rows_many({"r": [each.members() for each in rows]})
    ran = inspect("ledger", tmp_path, "r")
    assert ran.code == 0
    assert "[1,500] " in ran.text
    assert max(map(len, ran.text.splitlines())) < 120


def test_a_chain_of_ten_thousand_calls_stays_in_one_column(tmp_path: Path) -> None:
    """L39."""
    rows = [row(0)]
    for number in range(1, 10_000):
        rows.append(row(number, rows[-1]))
    with StagingLedger(tmp_path) as ledger:
        ledger.import_rows_many({"r": [each.members() for each in rows]})
    ran = known(inspect("ledger", tmp_path, "r", "--json"))
    assert [call["depth"] for call in ran.items("call")] == list(range(10_000))
    assert {call["column"] for call in ran.items("call")} == {0}


def test_the_installed_program_gives_the_same(captures: Path) -> None:
    ran = spawn("ledger", str(captures), "--format", "ndjson")
    assert (ran.code, ran.stdout) == (0, inspect("ledger", captures, "--format", "ndjson").stdout)
