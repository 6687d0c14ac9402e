"""Findings about capture directories, against a checker written from the document."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.ledger.calls import call_tree, list_rollouts, rollout_calls
from ckptfmt.ledger.digest import token_digest
from ckptfmt.ledger.entry import TokenEntry
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.ledger.verify import verify_directory, verify_rollout
from ckptfmt.rules import Severity
from tests.support.ledger_checker import check_directory
from tests.support.ledgers import call_id, child_entry, entry, failure, row


def found(root: Path) -> set[tuple[str, str]]:
    """Rule and place of every finding."""
    return {
        (finding.rule.rule_id, finding.location.file or finding.location.key or "")
        for finding in verify_directory(LedgerReader(root))
    }


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Name, content and time of every file, and the directory's own time."""
    files = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.iterdir())
        if path.is_file()
    }
    return {**files, ".": (b"", root.stat().st_mtime_ns)}


def delta_entry(parent: TokenEntry, before: list[int], number: int, **changes: Any) -> TokenEntry:
    """An entry whose prompt continues its parent's tokens, ``before``."""
    made = child_entry(parent, number, prompt_token_ids=[7, number], prompt_is_delta=True)
    tokens = [*before, *made.prompt_token_ids, *made.generation_token_ids]
    members = {**json.loads(made.line()), "cum_len": len(tokens), "digest": token_digest(tokens)}
    return TokenEntry.from_mapping({**members, **changes})


def fill(root: Path) -> None:
    """A directory with something of everything, all of it healthy."""
    with TokenStore(root) as tokens, StagingLedger(root) as staging:
        first = entry("chain")
        tokens.begin_call("chain", first.model_call_id)
        tokens.put(first)
        second = child_entry(first, 1)
        tokens.put(second)
        held = [*second.prompt_token_ids, *second.generation_token_ids]
        third = delta_entry(second, held, 2)
        tokens.put(third)
        held = [*held, *third.prompt_token_ids, *third.generation_token_ids]
        tokens.put(delta_entry(third, held, 3))
        tokens.put(delta_entry(second, held[: second.cum_len], 4))
        tokens.freeze("chain")
        for number in range(3):
            tokens.begin_call("open-a1", call_id(number))
            tokens.put(entry("open-a1", number, output_items=[{"text": "x" * 30_000}]))
        tokens.put(entry("old", 0))
        tokens.freeze("old")
        tokens.put(entry("old-a1", 0))
        tokens.put(entry("gone", 0))
        tokens.retire(["gone"])
        parent = row(0)
        staging.record("rows", parent)
        for number in range(1, 6):
            child = row(number, parent)
            staging.record("rows", child)
            parent = child if number % 2 else parent
        staging.import_rows_many({"rows-a1": staging.export_rows("rows"), "empty": []})
        staging.retire(["rows"])


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("healthy")
    fill(root)
    return root


def test_a_healthy_directory_has_no_findings(healthy: Path) -> None:
    assert found(healthy) == check_directory(healthy) == set()


def test_reading_changes_nothing(healthy: Path) -> None:
    """L4."""
    before = snapshot(healthy)
    reader = LedgerReader(healthy)
    assert list(verify_directory(reader)) == []
    for rollout in list_rollouts(reader):
        rollout_calls(reader, rollout.key)
    assert snapshot(healthy) == before


def test_a_directory_of_version_1_is_read(tmp_path: Path) -> None:
    """L17: files as a public release wrote them, without a state or with an old one."""
    names = [
        "schema_version", "rollout_id", "model_call_id", "model", "prompt_token_ids",
        "generation_token_ids", "generation_log_probs", "routed_experts", "output_items",
        "token_item_index", "created_at",
    ]  # fmt: skip
    for key in ("r0", "r1"):
        lines = []
        for number in range(3):
            members = {**json.loads(entry(key, number).line()), "schema_version": 1}
            lines.append(json.dumps({name: members[name] for name in names}))
        (tmp_path / f"{key}.tokens.jsonl").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{key}.tokens.lock").touch()
    old_state = {"frozen": False, "incomplete": False, "snapshot_id": "", "version": 3}
    (tmp_path / "r1.tokens.state.json").write_text(json.dumps(old_state))
    assert found(tmp_path) == check_directory(tmp_path) == set()
    reader = LedgerReader(tmp_path)
    assert [(rollout.key, rollout.calls) for rollout in list_rollouts(reader)] == [
        ("r0", 3),
        ("r1", 3),
    ]
    assert [call.cum_len for call in rollout_calls(reader, "r0").calls] == [6, 6, 6]
    with TokenStore(tmp_path) as store:
        store.put(entry("r1", 3))
        assert store.freeze("r1").entries == 4


def edit_line(path: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the members of one line."""
    lines = path.read_bytes().splitlines(keepends=True)
    members = json.loads(lines[number])
    change(members)
    lines[number] = json.dumps(members, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join(lines))


def edit_state(path: Path, **members: Any) -> None:
    """Change members of a state file."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **members}))


TOKENS, ROWS = "open-a1.tokens.jsonl", "rows-a1.lineage.jsonl"
DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "torn": ("ledger-torn", lambda r: cut(r / TOKENS, 10)),
    "torn row": ("ledger-torn", lambda r: cut(r / ROWS, 10)),
    "newline": ("ledger-newline", lambda r: cut(r / ROWS, 1)),
    "line": ("ledger-line", lambda r: insert(r / TOKENS, b"{bad}\n")),
    "array": ("ledger-line", lambda r: insert(r / ROWS, b"[]\n")),
    "version": ("ledger-version", lambda r: edit(r, TOKENS, 1, schema_version=6)),
    "log probs": ("ledger-entry", lambda r: edit(r, TOKENS, 1, generation_log_probs=[])),
    "no version": ("ledger-entry", lambda r: edit_line(r / TOKENS, 1, drop("schema_version"))),
    "owner": ("ledger-owner", lambda r: edit(r, TOKENS, 1, rollout_id="other")),
    "conflict": ("ledger-conflict", lambda r: edit(r, TOKENS, 1, model_call_id=call_id(0))),
    "repeated": ("ledger-repeated", lambda r: repeat(r / ROWS)),
    "row conflict": ("ledger-conflict", lambda r: edit(r, ROWS, 1, model_call_id=call_id(0))),
    "parent": ("ledger-parent", lambda r: edit(r, "chain.tokens.jsonl", 1, parent_call_id="no")),
    "later parent": ("ledger-parent", lambda r: swap(r / ROWS)),
    "cycle": ("ledger-parent", lambda r: edit(r, ROWS, 1, parent_call_id=call_id(1))),
    "digest": ("ledger-digest", lambda r: edit(r, TOKENS, 1, digest="0" * 64)),
    "cum_len": ("ledger-digest", lambda r: edit(r, TOKENS, 1, cum_len=99)),
    "delta digest": ("ledger-digest", lambda r: edit(r, "chain.tokens.jsonl", 3, digest="0" * 64)),
    "row digest": ("ledger-digest", lambda r: edit(r, ROWS, 1, digest="0" * 64)),
    "state": ("ledger-state", lambda r: cut(r / "chain.tokens.state.json", 3)),
    "beyond": ("ledger-state", lambda r: cut(r / "chain.tokens.jsonl", 30)),
    "lines gone": ("ledger-state", lambda r: (r / "chain.tokens.jsonl").unlink()),
    "index": ("ledger-index", lambda r: edit(r, "chain.tokens.jsonl", 1, model="evil!!")),
    "row lengths": ("ledger-row", lambda r: edit(r, ROWS, 1, cum_len=1)),
    "row field": ("ledger-row", lambda r: edit_line(r / ROWS, 1, drop("mode"))),
    "staging key": (
        "ledger-staging-key",
        lambda r: edit(r, ROWS, 1, staging_key=row(0).staging_key),
    ),
    "gap": ("ledger-gap", lambda r: edit(r, ROWS, 1, prev_len=9, cum_len=19)),
    "prompt gap": ("ledger-gap", lambda r: edit(r, "chain.tokens.jsonl", 1, prompt_token_ids=[1])),
    "incomplete": ("ledger-incomplete", lambda r: (r / "old-a1.tokens.incomplete").touch()),
    "intent": ("ledger-intent", lambda r: (r / "new.tokens.intents").write_text("a\nb\n-b\nc")),
    "rest": ("ledger-retired-rest", lambda r: (r / "gone.tokens.intents").touch()),
    "row rest": ("ledger-retired-rest", lambda r: (r / "rows.lineage.jsonl").touch()),
    "continued": ("ledger-continued", lambda r: (r / "open-a2.lineage.jsonl").touch()),
    "leftover": ("ledger-leftover", lambda r: (r / f".ledger-tmp-{'0' * 24}").touch()),
    "lock": ("ledger-leftover", lambda r: (r / "lone.tokens.lock").touch()),
    "stranger": ("ledger-stranger", lambda r: (r / "r-a1-a2.tokens.jsonl").touch()),
    "folder": ("ledger-stranger", lambda r: (r / "r.tokens.jsonl").mkdir()),
    "link": ("ledger-stranger", lambda r: (r / "r.tokens.jsonl").symlink_to("elsewhere")),
}


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:-size])


def insert(path: Path, data: bytes) -> None:
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, data, *rest]))


def repeat(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[0]]))


def swap(path: Path) -> None:
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([second, first, *rest]))


def edit(root: Path, name: str, number: int, **members: Any) -> None:
    edit_line(root / name, number, lambda line: line.update(members))


def drop(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda members: members.pop(name)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_found_by_its_rule(healthy: Path, tmp_path: Path, damage: str) -> None:
    rule, act = DAMAGES[damage]
    root = tmp_path / "root"
    shutil.copytree(healthy, root)
    act(root)
    ours = found(root)
    assert rule in {rule_id for rule_id, _ in ours}
    assert ours == check_directory(root)


def test_a_failed_call_is_a_finding(tmp_path: Path) -> None:
    with StagingLedger(tmp_path) as ledger:
        ledger.record_failure("r", failure(0))
    assert found(tmp_path) == check_directory(tmp_path) == {("ledger-failure", "r.lineage.jsonl")}


def test_findings_name_the_place_and_say_what_to_do(tmp_path: Path) -> None:
    with TokenStore(tmp_path) as store:
        for number in range(3):
            store.put(entry("r", number))
    edit(tmp_path, "r.tokens.jsonl", 1, digest="0" * 64)
    (finding,) = verify_rollout(LedgerReader(tmp_path), "r")
    assert finding.location.offset == len(entry("r", 0).line()) + 1
    assert finding.location.key == call_id(1)
    assert (finding.rule.severity, finding.code) == (Severity.ERROR, "corrupt")
    assert finding.rule.explanation
    assert finding.rule.advice


@given(seed=st.integers(0, 2**32))
def test_random_damage_is_judged_alike(healthy: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = healthy.parent / "damaged"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(healthy, root)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([path for path in sorted(root.iterdir()) if path.stat().st_size])
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at:]
            case 2:
                del data[at : at + rng.randint(1, 300)]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 2000)]
        path.write_bytes(data)
    assert found(root) == check_directory(root)


def test_a_reader_beside_a_writer_finds_no_damage(tmp_path: Path) -> None:
    """Nothing is locked by the reader, and the writer goes through whole lives of ledgers."""
    done = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        reader = LedgerReader(tmp_path)
        while not done.is_set():
            seen.update(
                f"{finding.rule.rule_id}: {finding.message}"
                for finding in verify_directory(reader)
                if finding.rule.severity is Severity.ERROR
            )
            list(list_rollouts(reader))

    with TokenStore(tmp_path) as tokens, StagingLedger(tmp_path) as staging:
        thread = threading.Thread(target=read)
        thread.start()
        try:
            for round_number in range(12):
                key = f"r{round_number % 3}"
                parent = row(0)
                staging.record(key, parent)
                for number in range(8):
                    tokens.begin_call(key, call_id(number))
                    tokens.put(entry(key, number, output_items=[{"text": "x" * 30_000}]))
                    staging.record(key, row(number + 1, parent))
                tokens.freeze(key)
                for act in (tokens.retire, staging.retire, tokens.delete, staging.delete):
                    act([key])
        finally:
            done.set()
            thread.join()
    assert seen == set()


# Lists and trees


def test_a_list_shows_every_rollout_and_what_is_damaged(healthy: Path, tmp_path: Path) -> None:
    """L8."""
    root = tmp_path / "root"
    shutil.copytree(healthy, root)
    (root / "chain.tokens.state.json").write_bytes(b"{")
    insert(root / ROWS, b"bad\n")
    rollouts = {rollout.key: rollout for rollout in list_rollouts(LedgerReader(root))}
    assert list(rollouts) == [
        "chain", "empty", "gone", "old", "old-a1", "open-a1", "rows", "rows-a1",
    ]  # fmt: skip
    assert rollouts["chain"].fault is not None
    assert rollouts["chain"].calls is None
    assert (rollouts["open-a1"].calls, rollouts["open-a1"].fault) == (3, None)
    assert (rollouts["old"].is_frozen, rollouts["old"].continued_by) == (True, "old-a1")
    assert (rollouts["gone"].is_retired, rollouts["rows"].is_retired) == (True, True)
    assert rollouts["rows-a1"].calls == 6
    assert rollouts["rows-a1"].fault is not None
    assert rollouts["empty"].calls == 0
    assert rollouts["open-a1"].size_bytes > 90_000


def test_calls_are_shown_as_a_tree(healthy: Path) -> None:
    calls = rollout_calls(LedgerReader(healthy), "chain")
    assert [(depth, call.call_id) for depth, call in call_tree(calls.calls)] == [
        (0, call_id(0)),
        (1, call_id(1)),
        (2, call_id(2)),
        (3, call_id(3)),
        (2, call_id(4)),
    ]
    third = calls.calls[2]
    assert (third.prompt_len, third.generated_len, third.cum_len) == (2, 2, 14)
    assert third.note == "delta"
    assert calls.faults == ()


def test_calls_around_a_damaged_line_are_kept(tmp_path: Path) -> None:
    """L3."""
    with TokenStore(tmp_path) as store:
        for number in range(3):
            store.put(entry("r", number))
        store.begin_call("r", "begun")
        store.mark_incomplete("r", "lost")
    insert(tmp_path / "r.tokens.jsonl", b"\xff\xfe\n")
    reader = LedgerReader(tmp_path)
    calls = rollout_calls(reader, "r")
    assert [call.call_id for call in calls.calls] == [call_id(0), call_id(1), call_id(2)]
    assert (calls.open_intents, calls.lost) == (("begun",), ("lost",))
    (fault,) = calls.faults
    assert fault.location.offset == len(entry("r", 0).line()) + 1


def test_a_chain_of_ten_thousand_calls(tmp_path: Path) -> None:
    """L39."""
    count = 10_000
    rows = [row(0)]
    for number in range(1, count):
        rows.append(row(number, rows[-1]))
    with StagingLedger(tmp_path) as ledger:
        ledger.import_rows_many({"r": [each.members() for each in rows]})
        assert len(ledger.manifest("r")["records"]) == count
    reader = LedgerReader(tmp_path)
    assert list(verify_directory(reader)) == []
    depths = [depth for depth, _ in call_tree(rollout_calls(reader, "r").calls)]
    assert depths == list(range(count))
