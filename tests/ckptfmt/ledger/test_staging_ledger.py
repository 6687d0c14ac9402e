"""External staging: rows, write-once, parents, fences, import and export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptfmt.errors import (
    ConflictError,
    CorruptError,
    NameRefusedError,
    RetiredError,
    SizeError,
    ValueRefusedError,
)
from ckptfmt.ledger.fingerprint import assistant_fingerprint, conversation_digest
from ckptfmt.ledger.limits import MAX_BATCH_KEYS
from ckptfmt.ledger.parents import Standing
from ckptfmt.ledger.row import Row
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.testing.os_faults import RecordingOs
from tests.support.ledgers import call_id, entry, failure, files, row, sha


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[StagingLedger]:
    with StagingLedger(tmp_path) as opened:
        yield opened


def chain(length: int) -> list[Row]:
    """Rows of which each continues the one before."""
    rows = [row(0)]
    for number in range(1, length):
        rows.append(row(number, rows[-1]))
    return rows


# Recording


def test_a_row_is_one_line_of_sorted_compact_json(ledger: StagingLedger, tmp_path: Path) -> None:
    assert ledger.record("r", row(0)) is True
    data = (tmp_path / "r.lineage.jsonl").read_bytes()
    members = json.loads(data)
    assert list(members) == sorted(members)
    assert data == json.dumps(members, separators=(",", ":")).encode() + b"\n"
    assert "capture_key" not in members
    assert len(members) == 22


def test_a_failure_row_has_two_fields(ledger: StagingLedger, tmp_path: Path) -> None:
    ledger.record_failure("r", failure(0))
    assert json.loads((tmp_path / "r.lineage.jsonl").read_bytes()) == {
        "model_call_id": call_id(0),
        "failure_reason": "worker_capture_failed",
    }


def test_a_call_is_written_once(ledger: StagingLedger, tmp_path: Path) -> None:
    """L13, L20: a success and a failure of one call exclude each other."""
    ledger.record("r", row(0))
    ledger.record_failure("r", failure(1))
    before = files(tmp_path)
    with StagingLedger(tmp_path) as other:
        for each in (ledger, other):
            assert each.record("r", row(0)) is True
            assert each.record_failure("r", failure(1)) is True
            with pytest.raises(ConflictError):
                each.record("r", row(0, response_id="other"))
            with pytest.raises(ConflictError):
                each.record("r", row(0, admitted_at=None))
            with pytest.raises(ConflictError):
                each.record_failure("r", failure(0))
            with pytest.raises(ConflictError):
                each.record("r", row(1))
    assert files(tmp_path) == before


def test_staging_keys_are_unique_and_parents_come_first(ledger: StagingLedger) -> None:
    ledger.record("r", row(0))
    ledger.record_failure("r", failure(7))
    with pytest.raises(ConflictError, match="staging key"):
        ledger.record("r", row(1, staging_key=row(0).staging_key))
    for parent in (row(9), row(7)):
        with pytest.raises(ValueRefusedError, match="parent"):
            ledger.record("r", row(2, parent))
    assert ledger.record("r", row(2, row(0))) is True


ROOT_BREACHES: list[dict[str, Any]] = [
    {"prev_len": 1, "cum_len": 11},
    {"mode": "token_in"},
    {"delta_len": 0, "cum_len": 0},
    {"cum_len": 11},
    {"digest": sha("other")},
    {"digest": sha("tokens 0") + "\n", "cumulative_hash": sha("tokens 0") + "\n"},
    {"chain_hash": "F" * 64},
    {"weight_version": -1},
    {"weight_version": True},
    {"response_id": ""},
    {"admitted_at": float("inf")},
    {"model_call_id": ""},
]
CHILD_BREACHES: list[dict[str, Any]] = [
    {"prev_len": 0, "cum_len": 10},
    {"mode": "text"},
    {"parent_call_id": ""},
]


@pytest.mark.parametrize("changes", ROOT_BREACHES, ids=repr)
def test_a_root_that_breaks_an_invariant_cannot_be_made(changes: dict[str, Any]) -> None:
    """L40."""
    with pytest.raises(ValueRefusedError):
        row(0, **changes)


@pytest.mark.parametrize("changes", CHILD_BREACHES, ids=repr)
def test_a_child_that_breaks_an_invariant_cannot_be_made(changes: dict[str, Any]) -> None:
    """L40."""
    with pytest.raises(ValueRefusedError):
        row(1, row(0), **changes)


@pytest.mark.parametrize("name", sorted(row(0).members()))
def test_a_row_without_a_field_is_refused(name: str) -> None:
    """L41."""
    members = row(0).members()
    del members[name]
    with pytest.raises(ValueRefusedError, match=name):
        Row.from_mapping(members)


def test_a_row_with_a_field_too_many_is_refused() -> None:
    """L41."""
    with pytest.raises(ValueRefusedError, match="surplus"):
        Row.from_mapping({**row(0).members(), "surplus": 1})


# Reading


def test_the_manifest_holds_records_and_failures(ledger: StagingLedger) -> None:
    ledger.record("r", row(0))
    ledger.record_failure("r", failure(1))
    manifest = ledger.manifest("r")
    assert set(manifest) == {"schema_version", "rollout_id", "records", "failures"}
    (record,) = manifest["records"]
    assert record["digest"] == row(0).staging_digest
    assert (record["schema_version"], record["digest_version"]) == (2, 2)
    assert "fingerprint" not in record
    (failed,) = manifest["failures"]
    assert (failed["model_call_id"], failed["reason"]) == (call_id(1), "worker_capture_failed")


def test_an_unknown_rollout_has_an_empty_manifest(ledger: StagingLedger, tmp_path: Path) -> None:
    manifest = ledger.manifest("r")
    assert (manifest["records"], manifest["failures"]) == ([], [])
    assert ledger.has_rows("r") is False
    assert files(tmp_path) == {}


@pytest.mark.parametrize("name", ["response_id", "chain_hash", "staging_key", "cum_len"])
def test_a_row_that_lacks_a_field_is_a_failure_of_its_call(
    ledger: StagingLedger, tmp_path: Path, name: str
) -> None:
    """L38."""
    members = row(0).members()
    del members[name]
    lines = [json.dumps(members), json.dumps(row(1).members()), json.dumps({"odd": 1})]
    (tmp_path / "r.lineage.jsonl").write_text("\n".join(lines) + "\n")
    manifest = ledger.manifest("r")
    assert [record["model_call_id"] for record in manifest["records"]] == [call_id(1)]
    reasons = {item["model_call_id"]: item["reason"] for item in manifest["failures"]}
    assert reasons[call_id(0)] == f"ledger_row_missing_{name}"
    assert set(reasons) == {call_id(0), "row-2"}


def test_readers_read_only_the_tail(tmp_path: Path) -> None:
    calls = RecordingOs()
    with StagingLedger(tmp_path) as writer, StagingLedger(tmp_path, calls=calls) as reader:
        for number in range(10):
            writer.record("r", row(number))
            assert len(reader.export_rows("r")) == number + 1
        calls.names.clear()
        assert len(reader.export_rows("r")) == 10
        assert "pread" not in calls.names
        writer.record("r", row(10))
        assert reader.has_rows("r")
        assert calls.names.count("pread") == 1


def test_a_cache_notices_that_the_file_shrank_or_was_replaced(tmp_path: Path) -> None:
    """L10."""
    path = tmp_path / "r.lineage.jsonl"
    with StagingLedger(tmp_path) as ledger:
        ledger.record("r", row(0))
        whole = path.read_bytes()
        ledger.record("r", row(1))
        path.write_bytes(whole)
        assert len(ledger.export_rows("r")) == 1
        ledger.record("r", row(2, row(0)))
        path.unlink()
        path.write_text("\n".join(json.dumps(r.members()) for r in chain(9)) + "\n")
        assert [r["model_call_id"] for r in ledger.export_rows("r")] == [
            call_id(number) for number in range(9)
        ]
        path.unlink()
        assert ledger.export_rows("r") == []


def test_a_torn_row_is_cut_off_by_the_next_write_only(
    ledger: StagingLedger, tmp_path: Path
) -> None:
    """L1."""
    ledger.record("r", row(0))
    path = tmp_path / "r.lineage.jsonl"
    torn = path.read_bytes() + b'{"model_call_id": "call-0000'
    path.write_bytes(torn)
    assert len(ledger.export_rows("r")) == 1
    assert path.read_bytes() == torn
    ledger.record("r", row(1))
    assert len(path.read_bytes().splitlines()) == 2
    assert len(ledger.export_rows("r")) == 2


def test_a_malformed_row_before_others_is_an_error(ledger: StagingLedger, tmp_path: Path) -> None:
    """L3."""
    path = tmp_path / "r.lineage.jsonl"
    path.write_text("[1]\n" + json.dumps(row(0).members()) + "\n")
    with pytest.raises(CorruptError) as caught:
        ledger.manifest("r")
    assert (caught.value.location.file, caught.value.location.offset) == ("r.lineage.jsonl", 0)


# Fences


def test_a_retired_ledger_is_not_an_empty_one(ledger: StagingLedger, tmp_path: Path) -> None:
    """L21, L22."""
    ledger.record("r", row(0))
    with StagingLedger(tmp_path) as other:
        assert other.has_rows("r") is True
        result = ledger.retire(["r", "unknown"])
        assert (result.removed, result.absent) == (("r",), ("unknown",))
        assert files(tmp_path) == {"r.lineage.retired": b"", "unknown.lineage.retired": b""}
        for each in (ledger, other):
            for read in (each.manifest, each.has_rows, each.export_rows):
                for key in ("r", "unknown"):
                    with pytest.raises(RetiredError):
                        read(key)
            assert each.record("r", row(1)) is False
            assert each.record_failure("r", failure(2)) is False
            with pytest.raises(RetiredError):
                each.admit("r", call_id(3), [])
        assert "r.lineage.jsonl" not in files(tmp_path)
        result = ledger.delete(["r", "unknown"])
        assert (result.removed, result.absent) == ((), ("r", "unknown"))
        assert files(tmp_path) == {}
        assert other.has_rows("r") is False
        assert other.record("r", row(1)) is True


# Import and export


def test_rows_are_exported_with_the_key_that_staged_them(
    ledger: StagingLedger, tmp_path: Path
) -> None:
    rows = chain(3)
    for each in rows:
        ledger.record("r", each)
    ledger.record_failure("r", failure(8))
    exported = ledger.export_rows("r")
    assert [item.get("capture_key") for item in exported] == ["r", "r", "r", None]
    ledger.import_rows_many({"r-a1": exported})
    again = ledger.export_rows("r-a1")
    assert again == exported
    ledger.import_rows_many({"r-a2": again})
    assert ledger.export_rows("r-a2") == exported


def test_an_import_replaces_the_target_and_clears_later_attempts(tmp_path: Path) -> None:
    """L28, L29, L30."""
    kept_keys = ["r", "r1", "r1-a2", "r-b", "r-a1-x"]
    with StagingLedger(tmp_path) as ledger, TokenStore(tmp_path) as tokens:
        for key in [*kept_keys, "r-a1", "r-a2", "r-a3", "r-a10"]:
            ledger.record(key, row(5))
            tokens.begin_call(key, "a")
            tokens.put(entry(key))
            tokens.freeze(key)
        ledger.retire(["r-a1", "r-a2"])
        tokens.retire(["r-a3"])
        kept = {
            name: data
            for name, data in files(tmp_path).items()
            if name.split(".", maxsplit=1)[0] in kept_keys
        }
        assert len(kept) == 4 * len(kept_keys)
        for _ in range(2):
            ledger.import_rows_many({"r-a1": [row(0).members()]})
            found = files(tmp_path)
            assert found.pop("r-a1.lineage.jsonl").count(b"\n") == 1
            assert found == kept
            # The replacement makes calls, and is lost again.
            ledger.record("r-a1", row(1, row(0)))
            ledger.record("r-a2", row(0))
            tokens.put(entry("r-a1"))
        assert ledger.has_rows("r-a1")


def test_several_attempts_of_one_rollout_in_one_import(ledger: StagingLedger) -> None:
    ledger.import_rows_many({"r-a1": [row(1).members()], "r-a2": [row(2).members()]})
    assert ledger.has_rows("r-a1")
    assert ledger.has_rows("r-a2")


def test_an_import_without_rows_gives_an_empty_ledger(
    ledger: StagingLedger, tmp_path: Path
) -> None:
    ledger.retire(["r"])
    ledger.import_rows_many({"r": []})
    assert files(tmp_path) == {"r.lineage.jsonl": b""}
    assert ledger.has_rows("r") is False
    assert ledger.retire(["r"]).removed == ("r",)


BAD_IMPORTS: list[tuple[list[dict[str, Any]], type[Exception]]] = [
    ([{}], ValueRefusedError),
    ([{**row(0).members(), "cum_len": 1}], ValueRefusedError),
    ([row(0).members(), row(0).members()], ConflictError),
    ([row(1, row(0)).members(), row(0).members()], ValueRefusedError),
    ([row(0).members(), row(1, staging_key=row(0).staging_key).members()], ConflictError),
    ([{"model_call_id": "a", "failure_reason": "b", "more": 1}], ValueRefusedError),
]


@pytest.mark.parametrize(("rows", "kind"), BAD_IMPORTS)
def test_an_import_of_rows_that_do_not_fit_changes_nothing(
    ledger: StagingLedger, tmp_path: Path, rows: list[dict[str, Any]], kind: type[Exception]
) -> None:
    """L35."""
    ledger.record("a", row(0))
    ledger.retire(["b"])
    before = files(tmp_path)
    with pytest.raises(kind) as caught:
        ledger.import_rows_many({"a": [row(3).members()], "b": rows})
    assert "key 'b'" in str(caught.value)
    assert files(tmp_path) == before


def test_a_batch_syncs_the_directory_once(tmp_path: Path) -> None:
    """L33."""
    calls = RecordingOs()
    with StagingLedger(tmp_path, calls=calls) as ledger:
        ledger.record("old", row(0))
        counts = []
        for size in (1, 50):
            calls.names.clear()
            ledger.import_rows_many({f"r{n}": [row(0).members()] for n in range(size)})
            counts.append(calls.names.count("fsync") - size)
            calls.names.clear()
            ledger.retire([f"r{number}" for number in range(size)])
            counts.append(calls.names.count("fsync"))
            calls.names.clear()
            ledger.delete([f"r{number}" for number in range(size)])
            counts.append(calls.names.count("fsync"))
    assert counts == [1, 2, 1] * 2


def test_batches_are_bounded_and_no_bare_strings(ledger: StagingLedger) -> None:
    """L25."""
    with pytest.raises(SizeError):
        ledger.import_rows_many({f"r{n}": [] for n in range(MAX_BATCH_KEYS + 1)})
    for act in (ledger.retire, ledger.delete):
        with pytest.raises(NameRefusedError):
            act("abc")
    with pytest.raises(NameRefusedError):
        ledger.import_rows_many({"../r": []})


# Parents


def conversation(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in turns]


def call_of(number: int, request: list[dict[str, Any]], answer: str, **changes: Any) -> Row:
    """The row of a call that answered ``request`` with ``answer``."""
    items = [*request, {"role": "assistant", "content": answer}]
    fingerprints = {
        "fingerprint": assistant_fingerprint(items),
        "context_len": len(request),
        "context_digest": conversation_digest(request),
    }
    return row(number, **{**fingerprints, **changes})


ASKED = conversation(("system", "Today is Monday."), ("user", "Hi"))
ANSWERED = [*ASKED, *conversation(("assistant", "Hello"), ("user", "More"))]


def test_a_request_finds_the_call_that_it_continues(ledger: StagingLedger) -> None:
    ledger.record("r", call_of(0, ASKED, "Hello"))
    parent = ledger.admit("r", call_id(1), ANSWERED)
    assert parent.standing is Standing.RESOLVED
    assert parent.row is not None
    assert parent.row["model_call_id"] == call_id(0)
    assert ledger.admit("r", call_id(1), ASKED).standing is Standing.ROOT


def test_the_date_in_the_instructions_does_not_hide_the_parent(ledger: StagingLedger) -> None:
    """L36."""
    ledger.record("r", call_of(0, ASKED, "Hello"))
    tomorrow = [{"role": "system", "content": "Today is Tuesday."}, *ANSWERED[1:]]
    assert ledger.admit("r", call_id(1), tomorrow).standing is Standing.RESOLVED
    rewritten = [ANSWERED[0], {"role": "user", "content": "Ho"}, *ANSWERED[2:]]
    parent = ledger.admit("r", call_id(1), rewritten)
    assert (parent.standing, parent.reason) == (Standing.UNRESOLVED, "no_match")


def test_of_two_calls_with_the_same_tokens_the_smaller_id_is_the_parent(
    ledger: StagingLedger,
) -> None:
    """L37."""
    tokens = {"digest": sha("same"), "cumulative_hash": sha("same")}
    ledger.record("r", call_of(5, ASKED, "Hello", **tokens))
    ledger.record("r", call_of(2, ASKED, "Hello", **tokens))
    parent = ledger.admit("r", call_id(9), ANSWERED)
    assert parent.row is not None
    assert parent.row["model_call_id"] == call_id(2)
    ledger.record("r", call_of(1, ASKED, "Hello"))
    parent = ledger.admit("r", call_id(9), ANSWERED)
    assert (parent.standing, parent.reason) == (Standing.UNRESOLVED, "ambiguous")


def test_an_unresolved_call_is_recorded_as_failure(ledger: StagingLedger) -> None:
    """L37."""
    assert ledger.admit("r", call_id(0), ANSWERED).standing is Standing.ROOT
    ledger.record("r", call_of(0, ASKED, "Something else"))
    assert ledger.admit("r", call_id(1), ANSWERED).standing is Standing.UNRESOLVED
    (failed,) = ledger.manifest("r")["failures"]
    assert (failed["model_call_id"], failed["reason"]) == (call_id(1), "unresolved_parent")


def test_a_continued_rollout_finds_its_parent_among_imported_rows(ledger: StagingLedger) -> None:
    """L31."""
    ledger.record("r", call_of(0, ASKED, "Hello"))
    ledger.import_rows_many({"r-a1": ledger.export_rows("r")})
    ledger.retire(["r"])
    parent = ledger.admit("r-a1", call_id(1), ANSWERED)
    assert parent.row is not None
    assert parent.row["capture_key"] == "r"
    assert parent.row["staging_key"] == row(0).staging_key


def test_fingerprints_of_another_algorithm_match_nothing(ledger: StagingLedger) -> None:
    ledger.record("r", call_of(0, ASKED, "Hello", fingerprint_version=2))
    assert ledger.admit("r", call_id(1), ANSWERED).standing is Standing.UNRESOLVED
