"""Pins: the prefix of a ledger that belongs to a checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ckptfmt.errors import MissingError, NameRefusedError
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
