"""Pins: the prefix of a ledger that belongs to a checkpoint."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from ckptfmt.errors import MissingError, NameRefusedError, RetiredError
from ckptfmt.ledger import append_file
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.ledger.pins import pin_ledger, verify_pins
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.staging_ledger import StagingLedger
from ckptfmt.ledger.token_store import TokenStore
from ckptfmt.ledger_pin import LedgerPin
from tests.support.ledgers import entry, row

NAME = "r.lineage.jsonl"


@pytest.fixture
def pinned(tmp_path: Path) -> LedgerPin:
    with StagingLedger(tmp_path) as ledger:
        for number in range(3):
            ledger.record("r", row(number))
    return pin_ledger(LedgerReader(tmp_path), "r", Kind.LINEAGE)


def judged(root: Path, *pins: LedgerPin) -> list[tuple[str, str]]:
    """Rule and message of every finding."""
    findings = verify_pins(LedgerReader(root), pins)
    return [(finding.rule.rule_id, finding.message) for finding in findings]


def test_a_pin_is_name_size_and_digest(tmp_path: Path, pinned: LedgerPin) -> None:
    data = (tmp_path / NAME).read_bytes()
    assert (pinned.name, pinned.size_bytes) == (NAME, len(data))
    assert pinned.sha256 == hashlib.sha256(data).hexdigest()


def test_a_torn_tail_is_left_out_of_a_pin(tmp_path: Path, pinned: LedgerPin) -> None:
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"model_call_id":')
    assert pin_ledger(LedgerReader(tmp_path), "r", Kind.LINEAGE) == pinned


def test_what_was_recorded_later_does_not_matter(tmp_path: Path, pinned: LedgerPin) -> None:
    with StagingLedger(tmp_path) as ledger:
        ledger.record("r", row(9))
    assert judged(tmp_path, pinned) == []


def test_a_shorter_ledger_was_truncated_after_the_checkpoint(
    tmp_path: Path, pinned: LedgerPin
) -> None:
    """L9."""
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes()[:-1])
    ((rule, message),) = judged(tmp_path, pinned)
    assert rule == "ledger-pin"
    assert "truncated after checkpoint" in message
    assert f"{pinned.size_bytes:,}" in message
    assert f"{pinned.size_bytes - 1:,}" in message
    path.unlink()
    empty = LedgerPin(name="e.tokens.jsonl", size_bytes=0, sha256=hashlib.sha256().hexdigest())
    assert [rule for rule, _ in judged(tmp_path, pinned, empty)] == ["ledger-pin"] * 2


def test_another_prefix_was_rewritten(tmp_path: Path, pinned: LedgerPin) -> None:
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b"resp-1", b"resp-7") + b"{}\n")
    ((rule, message),) = judged(tmp_path, pinned)
    assert rule == "ledger-pin"
    assert "rewritten" in message


def test_complete_records_are_pinned_too(tmp_path: Path) -> None:
    with TokenStore(tmp_path) as store:
        store.put(entry("r"))
        reader = LedgerReader(tmp_path)
        pin = pin_ledger(reader, "r", Kind.TOKENS)
        store.put(entry("r", 1))
        assert judged(tmp_path, pin) == []
        store.retire(["r"])
    assert [rule for rule, _ in judged(tmp_path, pin)] == ["ledger-pin"]


@pytest.mark.parametrize(
    "name",
    ["../r.tokens.jsonl", "r.tokens.state.json", "r", "a/b.tokens.jsonl", "r-a1-a2.tokens.jsonl"],
)
def test_only_lines_of_ledgers_are_pinned(name: str) -> None:
    """L27."""
    with pytest.raises(NameRefusedError):
        LedgerPin(name=name, size_bytes=0, sha256="0" * 64)


def test_exactly_the_names_of_lines_can_be_pinned() -> None:
    for kind in Kind:
        name = file_name("r-a3", kind)
        if kind in (Kind.TOKENS, Kind.LINEAGE):
            assert LedgerPin(name=name, size_bytes=0, sha256="0" * 64).name == name
        else:
            with pytest.raises(NameRefusedError):
                LedgerPin(name=name, size_bytes=0, sha256="0" * 64)


def test_a_ledger_that_is_not_there_is_not_pinned(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        pin_ledger(LedgerReader(tmp_path), "r", Kind.TOKENS)


def test_rows_are_exported_with_the_pin_of_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rows that the ledger knows already, that another process wrote, and in pieces."""
    monkeypatch.setattr(append_file, "_CHUNK_BYTES", 1000)
    with StagingLedger(tmp_path) as ledger, StagingLedger(tmp_path) as other:
        for number in range(4):
            (ledger if number % 2 else other).record("r", row(number))
            rows, pin = ledger.export_pinned("r")
            assert rows == ledger.export_rows("r")
            assert len(rows) == number + 1
            assert pin == pin_ledger(LedgerReader(tmp_path), "r", Kind.LINEAGE)


def test_only_whole_lines_are_pinned_with_rows(tmp_path: Path) -> None:
    """A last line without its newline is a row, but not yet a line that stays as it is."""
    path = tmp_path / NAME
    with StagingLedger(tmp_path) as ledger:
        ledger.record("r", row(0))
        first = ledger.export_pinned("r")[1]
        ledger.record("r", row(1))
        path.write_bytes(path.read_bytes()[:-1])
        with StagingLedger(tmp_path) as after:
            rows, pin = after.export_pinned("r")
            assert (len(rows), pin) == (2, first)
            after.record("r", row(2))
            rows, pin = after.export_pinned("r")
        assert (len(rows), pin) == (3, pin_ledger(LedgerReader(tmp_path), "r", Kind.LINEAGE))
        path.write_bytes(path.read_bytes() + b'{"torn')
        assert ledger.export_pinned("r")[1] == pin


def test_a_ledger_that_was_replaced_is_pinned_anew(tmp_path: Path) -> None:
    with StagingLedger(tmp_path) as ledger, StagingLedger(tmp_path) as other:
        ledger.record("r", row(0))
        assert ledger.export_pinned("r")[1] is not None
        other.import_rows_many({"r": []})
        assert ledger.export_pinned("r") == ([], None)
        other.import_rows_many({"r": [row(1).members(), row(2).members()]})
        rows, pin = ledger.export_pinned("r")
        assert (len(rows), pin) == (2, pin_ledger(LedgerReader(tmp_path), "r", Kind.LINEAGE))


def test_nothing_is_pinned_where_there_are_no_rows(tmp_path: Path) -> None:
    with StagingLedger(tmp_path) as ledger:
        assert ledger.export_pinned("r") == ([], None)
        assert not (tmp_path / NAME).exists()
        ledger.retire(["r"])
        with pytest.raises(RetiredError):
            ledger.export_pinned("r")


def test_rows_and_pin_are_of_one_moment(tmp_path: Path) -> None:
    """Whoever records meanwhile is in both or in neither."""
    with StagingLedger(tmp_path) as ledger, StagingLedger(tmp_path) as other:
        writer = threading.Thread(
            target=lambda: [other.record("r", row(number)) for number in range(60)]
        )
        writer.start()
        seen = []
        while writer.is_alive():
            seen.append(ledger.export_pinned("r"))
        writer.join()
        seen.append(ledger.export_pinned("r"))
    data = (tmp_path / NAME).read_bytes()
    for rows, pin in seen:
        pinned = data[: pin.size_bytes if pin else 0]
        assert pinned.count(b"\n") == len(rows)
        assert pin is None or pin.sha256 == hashlib.sha256(pinned).hexdigest()
    assert len(seen[-1][0]) == 60
