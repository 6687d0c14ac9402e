"""What a participant's manifest says of capture ledgers, and what holds it against them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from ckptfmt.commit import Committed, NotCommitted
from ckptfmt.errors import CorruptError, FencedError, NameRefusedError
from ckptfmt.layout import Folder
from ckptfmt.ledger import Kind, LedgerReader, StagingLedger, pin_ledger
from ckptfmt.ledger_pin import LedgerPin
from ckptfmt.manifest import ParticipantManifest, decode_manifest, encode_manifest
from ckptfmt.participant_writer import write_participant
from ckptfmt.publish import publish_checkpoint
from ckptfmt.recover import recover_checkpoint
from ckptfmt.store.local import LocalStore
from ckptfmt.verify import Level, verify
from tests.support.checkpoints import AGENT, agent_record
from tests.support.damage import flip
from tests.support.ledgers import row

FOLDER = Folder("ck")
EMPTY = hashlib.sha256().hexdigest()


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    """Two ledgers of three rows each."""
    root = tmp_path / "captures"
    with StagingLedger(root) as ledger:
        for key in ("r1", "r2"):
            for number in range(3):
                ledger.record(key, row(number))
    return root


def pins_of(captures: Path) -> list[LedgerPin]:
    reader = LedgerReader(captures)
    return [pin_ledger(reader, key, Kind.LINEAGE) for key in ("r2", "r1")]


def written(tmp_path: Path, pins: list[LedgerPin]) -> LocalStore:
    """A checkpoint of one participant that pins these ledgers."""
    store = LocalStore(tmp_path / "run")
    records = [agent_record("r1")]
    write_participant(store, FOLDER, "ck", AGENT, records, ledger_pins=pins).require()
    publish_checkpoint(store, FOLDER, "ck", [AGENT]).require()
    return store


def manifest_of(store: LocalStore, folder: Folder = FOLDER) -> ParticipantManifest:
    data = store.read_small(folder.manifest(AGENT), 1 << 20)
    body = decode_manifest(data, ParticipantManifest).body
    assert isinstance(body, ParticipantManifest)
    return body


def decoded(store: LocalStore, pins: object) -> ParticipantManifest:
    """The manifest with this for a member, its seal right."""
    plain = msgspec.structs.replace(manifest_of(store), ledger_pins=[])
    sealed = encode_manifest(plain, {"ledger_pins": json.dumps(pins).encode()})
    body = decode_manifest(sealed.data, ParticipantManifest).body
    assert isinstance(body, ParticipantManifest)
    return body


def judged(store: LocalStore, captures: Path, **options: Level) -> list[tuple[str, str]]:
    """Rule and first words of every finding."""
    findings = verify(store, FOLDER, ledgers=captures, **options)
    return [(item.rule.rule_id, item.message.partition(":")[0]) for item in findings]


def test_pins_are_read_back_sorted(tmp_path: Path, captures: Path) -> None:
    pins = pins_of(captures)
    assert manifest_of(written(tmp_path, pins)).ledger_pins == pins[::-1]


def test_a_manifest_without_pins_has_no_such_member(tmp_path: Path) -> None:
    store = written(tmp_path, [])
    assert b"ledger_pins" not in store.read_small(FOLDER.manifest(AGENT), 1 << 20)
    assert manifest_of(store).ledger_pins == []


def test_a_ledger_is_pinned_once(tmp_path: Path, captures: Path) -> None:
    with pytest.raises(NameRefusedError, match="twice"):
        written(tmp_path, pins_of(captures) * 2)


@pytest.mark.parametrize(
    "pins",
    [
        pytest.param([{"name": "../x.tokens.jsonl", "size_bytes": 0, "sha256": EMPTY}], id="path"),
        pytest.param([{"name": "/x.tokens.jsonl", "size_bytes": 0, "sha256": EMPTY}], id="root"),
        pytest.param([{"name": "x.tokens.lock", "size_bytes": 0, "sha256": EMPTY}], id="no lines"),
        pytest.param([{"name": "x.tokens.jsonl", "size_bytes": -1, "sha256": EMPTY}], id="size"),
        pytest.param([{"name": "x.tokens.jsonl", "size_bytes": 1.0, "sha256": EMPTY}], id="float"),
        pytest.param([{"name": "x.tokens.jsonl", "size_bytes": 0, "sha256": "0"}], id="digest"),
        pytest.param([{"name": "x.tokens.jsonl", "sha256": EMPTY}], id="lacking"),
        pytest.param(
            [{"name": "x.tokens.jsonl", "size_bytes": 0, "sha256": EMPTY}] * 2, id="twice"
        ),
        pytest.param(
            [{"name": f"{name}.tokens.jsonl", "size_bytes": 0, "sha256": EMPTY} for name in "ba"],
            id="unsorted",
        ),
        pytest.param({}, id="no array"),
    ],
)
def test_a_malformed_pin_is_corrupt_before_any_path_is_built(pins: object, tmp_path: Path) -> None:
    """L27, L35."""
    store = written(tmp_path, [])
    assert decoded(store, []).ledger_pins == []
    with pytest.raises(CorruptError):
        decoded(store, pins)


def test_what_a_later_release_says_of_a_pin_is_ignored(tmp_path: Path, captures: Path) -> None:
    store = written(tmp_path, pins_of(captures))
    pins = [{**msgspec.to_builtins(pin), "later": 1} for pin in manifest_of(store).ledger_pins]
    assert decoded(store, pins).ledger_pins == manifest_of(store).ledger_pins


def test_pins_are_content(tmp_path: Path, captures: Path) -> None:
    """A repeat with the same pins is the same commit; with other pins it is fenced."""
    store, records = LocalStore(tmp_path / "run"), [agent_record("r1")]
    pins = pins_of(captures)
    for repeat in (pins, pins[::-1]):
        done = write_participant(store, FOLDER, "ck", AGENT, records, ledger_pins=repeat)
        assert isinstance(done, Committed)
    for other in ([], pins[:1]):
        done = write_participant(store, FOLDER, "ck", AGENT, records, ledger_pins=other)
        assert isinstance(done, NotCommitted)
        assert isinstance(done.reason, FencedError)


def test_ledgers_that_grew_are_as_pinned(tmp_path: Path, captures: Path) -> None:
    store = written(tmp_path, pins_of(captures))
    with StagingLedger(captures) as ledger:
        ledger.record("r1", row(9))
    assert judged(store, captures) == []


@pytest.mark.parametrize("level", Level)
def test_what_became_of_a_pinned_ledger_is_found(
    level: Level, tmp_path: Path, captures: Path
) -> None:
    """L9, L35."""
    store = written(tmp_path, pins_of(captures))
    first, second = captures / "r1.lineage.jsonl", captures / "r2.lineage.jsonl"
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    flip(second, 3)
    assert judged(store, captures, level=level) == [
        ("ledger-pin", "truncated after checkpoint"),
        ("ledger-pin", "rewritten"),
    ]
    (truncated, _) = verify(store, FOLDER, ledgers=captures, level=level)
    assert f"{len(whole) - 1:,} bytes; {len(whole):,} are pinned" in truncated.message
    assert (truncated.location.participant, truncated.location.file) == (str(AGENT), first.name)
    first.unlink()
    second.unlink()
    assert (
        judged(store, captures, level=level) == [("ledger-pin", "truncated after checkpoint")] * 2
    )
    assert judged(store, tmp_path / "nowhere") == [("ledger-pin", "truncated after checkpoint")] * 2
    assert list(verify(store, FOLDER)) == []


def test_a_link_in_place_of_a_ledger_is_not_followed(tmp_path: Path, captures: Path) -> None:
    store = written(tmp_path, pins_of(captures)[1:])
    (captures / "r1.lineage.jsonl").rename(tmp_path / "elsewhere")
    (captures / "r1.lineage.jsonl").symlink_to(tmp_path / "elsewhere")
    ((rule, _),) = judged(store, captures)
    assert rule == "unreadable"


def test_pins_of_an_unpublished_checkpoint_are_judged_too(tmp_path: Path, captures: Path) -> None:
    store = written(tmp_path, pins_of(captures))
    store.delete(FOLDER.aggregate)
    (captures / "r1.lineage.jsonl").unlink()
    assert [rule for rule, _ in judged(store, captures)] == ["incomplete", "ledger-pin"]


def test_salvage_carries_pins_over(tmp_path: Path, captures: Path) -> None:
    store = written(tmp_path, pins_of(captures))
    flip(next((tmp_path / "run/ck/agent/a1").glob("records-*")), 200)
    target = LocalStore(tmp_path / "new")
    recover_checkpoint(store, FOLDER, target)
    assert manifest_of(target, Folder()).ledger_pins == manifest_of(store).ledger_pins
