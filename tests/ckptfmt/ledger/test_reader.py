"""Reading capture directories: lines as they are, whatever stands between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.errors import CorruptError, MissingError, NameRefusedError, TornError
from ckptfmt.ledger.calls import find_rollout
from ckptfmt.ledger.names import Kind
from ckptfmt.ledger.reader import LedgerReader
from tests.support.ledgers import entry

GOOD, NEXT = entry("r", 0).line(), entry("r", 1).line()


@pytest.mark.parametrize("bad", [b"\xff\x00 bad", b"[1]", b'{"a":', b"\x00" * 40])
def test_a_malformed_line_is_set_aside_verbatim(bad: bytes, tmp_path: Path) -> None:
    """L3: with its offset, and the lines after it are kept."""
    (tmp_path / "r.tokens.jsonl").write_bytes(GOOD + b"\n" + bad + b"\n" + NEXT + b"\n" + bad)
    first, damaged, second, last = LedgerReader(tmp_path).parsed("r", Kind.TOKENS)
    assert (first.line.text, second.line.text) == (GOOD, NEXT)
    assert (damaged.line.text, damaged.line.offset) == (bad, len(GOOD) + 1)
    assert isinstance(damaged.fault, CorruptError)
    # Only where it lacks its newline is it torn.
    assert (last.line.text, last.line.is_ended) == (bad, False)
    assert isinstance(last.fault, TornError)


def test_a_line_ends_at_a_line_feed_only(tmp_path: Path) -> None:
    """L7."""
    line = '{"a":"\u2028\u2029\x85"}'.encode()
    (tmp_path / "r.lineage.jsonl").write_bytes(line + b"\n\n \n" + line + b"\r\n\n")
    found = list(LedgerReader(tmp_path).parsed("r", Kind.LINEAGE))
    assert [item.members for item in found] == [{"a": "\u2028\u2029\x85"}] * 2


def test_strangers_are_what_no_writer_leaves(tmp_path: Path) -> None:
    own = {".ledger-lock-00", ".ledger-tmp-" + "0" * 24, "r.tokens.jsonl"}
    strange = {".ledger-lock-zz", "notes", "r.tokens.jsonl.gz"}
    for name in own | strange:
        (tmp_path / name).touch()
    (tmp_path / ".ledger-lock-01").mkdir()
    contents = LedgerReader(tmp_path).contents()
    assert {entry.name for entry in contents.strangers} == {*strange, ".ledger-lock-01"}
    assert set(contents.rollouts) == {"r"}


def test_one_rollout_is_found_as_the_list_has_it(tmp_path: Path) -> None:
    (tmp_path / "r.tokens.jsonl").write_bytes(GOOD + b"\n")
    (tmp_path / "r-a2.tokens.jsonl").touch()
    reader = LedgerReader(tmp_path)
    found = find_rollout(reader, "r")
    assert found is not None
    assert (found.calls, found.continued_by) == (1, "r-a2")
    assert find_rollout(reader, "r-a1") is None
    with pytest.raises(NameRefusedError):
        find_rollout(reader, "a/b")
    with pytest.raises(MissingError):
        find_rollout(LedgerReader(tmp_path / "nowhere"), "r")
