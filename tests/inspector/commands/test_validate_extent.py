"""``validate --sample`` and ``--max-time``: a part is looked at, and it says so."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random

import pytest

from ckptfmt.identity import EpisodeId, ParticipantId
from ckptfmt.payload import JsonPayload
from ckptfmt.publish import write_checkpoint
from ckptfmt.record import Record
from ckptfmt.store.local import LocalSource, LocalStore
from tests.ckptfmt.test_verify import CK, rewrite_participant
from tests.support.damage import data_file, flip
from tests.support.gym import write_gym
from tests.support.inspecting import documented, inspect

OWNER = ParticipantId("controller", "c")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty records of a megabyte that does not compress well, two in a block."""
    random = Random(7)
    records = [
        Record(
            episode_id=EpisodeId(f"r{number:02}"),
            members={"s": JsonPayload.from_value(random.randbytes(1 << 19).hex())},
        )
        for number in range(40)
    ]
    folder = tmp_path_factory.mktemp("many")
    write_checkpoint(LocalStore(folder), "ck", {OWNER: records}).require()
    return folder / "ck"


@pytest.mark.parametrize("level", ["full", "deep"])
def test_a_sample_reads_its_share_and_is_never_called_valid(many: Path, level: str) -> None:
    """I43."""
    ran = inspect("validate", many, "--level", level, "--sample", "5%", "--json")
    assert ran.code == 3
    (told,) = ran.items("input")
    assert (told["records"], told["total_records"], told["partial"]) == (2, 40, True)
    assert told["raw_bytes"] < 3 << 20
    assert (told["valid"], ran.summary["valid"], ran.summary["partial"]) == (None, 0, 1)
    assert "looked at 2 of 40 records only" in ran.summary["reason"]
    assert ran.summary["finished"]
    documented("validate", told)
    documented("validate", ran.summary)
    text = inspect("validate", many, "--level", level, "--sample", "2")
    assert "no errors so far" in text.text
    assert "2 of 40 records" in text.text
    assert inspect("validate", many, "--sample", "2", "--exit-zero").code == 3


def test_a_sample_reads_no_other_blocks(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I43: a block and the index take a share of what all blocks do."""
    read_bytes = 0
    real = LocalSource.read_at

    def counted(source: LocalSource, offset: int, size_bytes: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size_bytes
        return real(source, offset, size_bytes)

    monkeypatch.setattr(LocalSource, "read_at", counted)
    stored_bytes = data_file(many, "controller/c").stat().st_size
    assert inspect("validate", many, "--sample", "5%").code == 3
    assert 0.04 * stored_bytes < read_bytes < 0.15 * stored_bytes


def test_a_sample_of_all_records_is_no_sample(checkpoint: Path) -> None:
    for asked in ("6", "100", "100%", "90%"):
        ran = inspect("validate", checkpoint, "--sample", asked, "--json")
        assert (ran.code, ran.items("input")[0]["partial"]) == (0, False)
    assert inspect("validate", checkpoint, "--sample", "5").code == 3


def test_a_layout_without_an_index_is_looked_at_whole(tmp_path: Path) -> None:
    ran = inspect("validate", write_gym(tmp_path / "ck-1"), "--sample", "1", "--json")
    assert (ran.code, ran.items("input")[0]["valid"]) == (0, True)


def test_damage_in_a_sample_is_found_with_its_address(checkpoint: Path) -> None:
    flip(data_file(checkpoint, "agent/a1"), 200)
    ran = inspect("validate", checkpoint, "--sample", "2", "--json")
    assert (ran.code, ran.summary["errors"]) == (3, 1)
    (found,) = ran.items("finding")
    assert (found["rule"], found["address"]) == ("stream", "agent/a1/r1/s")
    assert ran.items("input")[0]["valid"] is False
    assert "1 error" in ran.summary["reason"]


def test_a_sample_judges_manifests_and_sizes_of_all(checkpoint: Path) -> None:
    """I40: what is missing weighs as much."""
    data_file(checkpoint, "resources/r1").unlink()
    (checkpoint / "agent/a1/manifest.json").write_bytes(b"{}")
    ran = inspect("validate", checkpoint, "--sample", "1", "--json")
    assert {"participant", "data"} <= ran.summary["by_rule"].keys()


def test_a_sample_leaves_an_unknown_schema_alone(run: Path) -> None:
    rewrite_participant(run, lambda members: members.update(schema_version=9))
    ran = inspect("validate", run / CK.prefix, "--sample", "5", "--json")
    assert ran.summary["by_rule"] == {"unsupported": 1}


def test_a_sample_of_a_checkpoint_that_was_not_published(checkpoint: Path) -> None:
    (checkpoint / "checkpoint.json").unlink()
    ran = inspect("validate", checkpoint, "--sample", "2", "--json")
    assert (ran.code, ran.items("input")[0]["records"]) == (3, 2)
    assert ran.summary["by_rule"] == {"incomplete": 1}


def test_deep_samples_come_back_or_are_told(tmp_path: Path) -> None:
    """I46, I4."""
    texts = [b'{"a":1,"a":2}', b"1", b"2"]
    records = [
        Record(episode_id=EpisodeId(f"r{number}"), members={"s": JsonPayload.from_json(text)})
        for number, text in enumerate(texts)
    ]
    write_checkpoint(LocalStore(tmp_path), "ck", {OWNER: records}).require()
    call = ("validate", tmp_path / "ck", "--sample", "1", "--json")
    assert inspect(*call).items("finding") == []
    (found,) = inspect(*call, "--level", "deep").items("finding")
    assert (found["rule"], found["address"]) == ("duplicate-member", "controller/c/r0#/s/a")


@pytest.mark.parametrize("asked", ["0", "0%", "101%", "x", "-1"])
def test_what_cannot_be_sampled_is_refused(checkpoint: Path, asked: str) -> None:
    ran = inspect("validate", checkpoint, f"--sample={asked}")
    assert (ran.code, ran.stdout) == (2, b"")


def test_quick_has_nothing_to_sample(checkpoint: Path) -> None:
    assert inspect("validate", checkpoint, "--sample", "1", "--level", "quick").code == 2


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second goes by each time that somebody looks at the limit's clock."""
    ticks = count()
    monkeypatch.setattr("inspector.extent.monotonic", lambda: float(next(ticks)))


@pytest.mark.usefixtures("ticking")
def test_time_that_is_over_ends_it_with_what_was_found(run: Path) -> None:
    """Asked once before each input and after each record."""
    flip(run / "ck-2/checkpoint.json", 20)
    ran = inspect("validate", run / "ck-1", run / "ck-2", "--max-time", "4", "--json")
    assert ran.code == 3
    (told,) = ran.items("input")
    assert (told["records"], told["total_records"], told["valid"]) == (3, 6, None)
    summary = ran.summary
    assert (summary["finished"], summary["partial"], summary["skipped"]) == (False, 1, 1)
    assert summary["verdict"] == (
        "not finished; looked at 3 of 6 records only; 1 input not looked at; "
        "no findings in 1 checkpoint"
    )
    documented("validate", told)
    documented("validate", summary)


@pytest.mark.usefixtures("ticking")
def test_time_that_is_over_keeps_damage_an_error(checkpoint: Path) -> None:
    flip(data_file(checkpoint, "agent/a1"), 200)
    ran = inspect("validate", checkpoint, "--max-time", "2", "--json")
    assert (ran.code, ran.summary["errors"]) == (3, 1)
    assert ran.items("input")[0]["valid"] is False


@pytest.mark.usefixtures("ticking")
def test_enough_time_changes_nothing(checkpoint: Path) -> None:
    ran = inspect("validate", checkpoint, "--max-time", "1000", "--json")
    assert (ran.code, ran.summary["finished"], ran.summary["partial"]) == (0, True, 0)


@pytest.mark.parametrize("asked", ["0", "-1", "nan", "1.5", ""])
def test_what_is_no_time_is_refused(checkpoint: Path, asked: str) -> None:
    assert inspect("validate", checkpoint, f"--max-time={asked}").code == 2
