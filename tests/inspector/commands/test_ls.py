"""``ls``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ckptfmt.errors import CkptError
from ckptfmt.layout import Folder
from ckptfmt.publish import abort_checkpoint
from ckptfmt.store.local import LocalStore
from tests.support.damage import cut, data_file, flip
from tests.support.inspecting import inspect


def states(run: Path) -> dict[str, str]:
    return {
        item["folder"]: item["state"] for item in inspect("ls", run, "--json").items("checkpoint")
    }


def test_a_run_is_listed_by_sequence_with_its_latest(run: Path) -> None:
    listed = inspect("ls", run, "--json")
    assert listed.code == 0
    rows = listed.items("checkpoint")
    assert [(row["folder"], row["sequence"], row["latest"]) for row in rows] == [
        ("ck-1", 1, False),
        ("ck-2", 2, True),
    ]
    assert all(row["records"] == 6 and row["bytes"] > 0 for row in rows)


def test_the_text_of_a_run(run: Path) -> None:
    text = inspect("ls", run).text
    head, first, second = text.splitlines()
    assert head.split() == ["CHECKPOINT", "STATE", "SEQUENCE", "RECORDS", "BYTES", "CREATED"]
    assert first.split()[:4] == ["ck-1", "complete", "1", "6"]
    assert second.split()[:5] == ["ck-2", "@latest", "complete", "2", "6"]


def test_every_state_is_told_and_only_a_complete_one_is_latest(run: Path) -> None:
    """I45."""
    shutil.copytree(run / "ck-1", run / "ck-3")
    run.joinpath("ck-3", "checkpoint.json").unlink()
    flip(run / "ck-2" / "checkpoint.json", 30)
    with pytest.raises(CkptError):
        abort_checkpoint(LocalStore(run), Folder("ck-4"), "ck-4").require()
    assert states(run) == {
        "ck-1": "complete",
        "ck-2": "damaged",
        "ck-3": "incomplete",
        "ck-4": "aborted",
    }
    latest = [
        row["folder"] for row in inspect("ls", run, "--json").items("checkpoint") if row["latest"]
    ]
    assert latest == ["ck-1"]


def test_a_missing_data_object_weighs_as_much_as_a_damaged_one(run: Path) -> None:
    """I40."""
    data_file(run / "ck-1", "agent/a1").unlink()
    cut(data_file(run / "ck-2", "agent/a1"), -1)
    assert set(states(run).values()) == {"damaged"}


def test_participants_of_a_checkpoint(checkpoint: Path) -> None:
    rows = inspect("ls", checkpoint, "--json").items("participant")
    assert [(row["address"], row["records"], row["episodes"]) for row in rows] == [
        ("agent/a1", 3, 3),
        ("resources/r1", 3, 3),
    ]


def test_a_damaged_participant_is_listed_as_such(checkpoint: Path) -> None:
    """I25."""
    flip(checkpoint / "agent/a1/manifest.json", 10)
    listed = inspect("ls", checkpoint, "--json")
    assert listed.code == 3
    assert [row["state"] for row in listed.items("participant")] == ["damaged", "complete"]


def test_records_below_an_address(checkpoint: Path) -> None:
    rows = inspect("ls", checkpoint, "resources", "--json").items("record")
    assert [row["address"] for row in rows] == [
        f"resources/r1/r{n}/session%2Fr{n}" for n in (1, 2, 3)
    ]
    assert [row["ordinal"] for row in rows] == [0, 1, 2]
    one = inspect("ls", checkpoint, "agent/a1/r2", "--json").items("record")
    assert [row["key"] for row in one] == ["r2/s"]
    size = len(inspect("get", checkpoint, "agent/a1/r2", "--raw").stdout)
    assert one[0]["bytes"] == size


def test_records_are_listed_where_the_index_is_damaged(checkpoint: Path) -> None:
    """I25."""
    file = data_file(checkpoint, "agent/a1")
    flip(file, file.read_bytes().index(b"INDX") + 8)
    listed = inspect("ls", checkpoint, "agent/a1", "--json")
    assert listed.code == 3
    assert [row["key"] for row in listed.items("record")] == ["r1/s", "r2/s", "r3/s"]


def test_listing_reads_no_data_object(checkpoint: Path) -> None:
    """I11: data of the right size and no content at all is not noticed."""
    file = data_file(checkpoint, "agent/a1")
    file.write_bytes(bytes(file.stat().st_size))
    assert inspect("ls", checkpoint.parent).code == 0
    assert inspect("ls", checkpoint).code == 0
    assert inspect("info", checkpoint).code == 0


@pytest.mark.parametrize("address", [(), ("agent/a1",)])
def test_a_limit_says_that_it_cut(checkpoint: Path, address: tuple[str, ...]) -> None:
    """I38."""
    cut_short = inspect("ls", checkpoint, *address, "--limit", "1", "--json")
    assert cut_short.summary["truncated"] is True
    assert cut_short.summary["shown"] == 1
    assert cut_short.summary["total"] != 1
    assert "--limit" in inspect("ls", checkpoint, *address, "--limit", "1", "-q").text
    whole = inspect("ls", checkpoint, *address, "--limit", "99", "--json").summary
    assert (whole["truncated"], whole["total"]) == (False, whole["shown"])


def test_the_latest_of_a_run_can_be_named(run: Path) -> None:
    assert inspect("ls", f"{run}@latest").stdout == inspect("ls", run / "ck-2").stdout


def test_an_incomplete_checkpoint_is_read_on_request(checkpoint: Path) -> None:
    """I45."""
    (checkpoint / "checkpoint.json").unlink()
    rows = inspect("ls", checkpoint, "--json").items("participant")
    assert {row["state"] for row in rows} == {"incomplete"}
    assert inspect("ls", checkpoint, "agent/a1").code == 4
    assert inspect("ls", checkpoint, "agent/a1", "--incomplete").code == 0


def test_a_directory_without_checkpoints_is_no_run(tmp_path: Path) -> None:
    """I29."""
    assert inspect("ls", tmp_path).code == 4


def test_a_folder_name_cannot_act_on_the_terminal(run: Path) -> None:
    """I14."""
    (run / "ck-1").rename(run / "ck\u202e1")
    listed = inspect("ls", run)
    assert "ck\\u202e1" in listed.text
    assert "\u202e" not in listed.text + listed.stderr


def test_an_address_that_no_record_matches_is_a_negative_answer(checkpoint: Path) -> None:
    """As for cat; what was cut, or has no records below a mere participant, is none."""
    for address in ("agent/a1/none", "agent/a1/r", "agent/a1/r1/s/t"):
        for command in ("ls", "cat"):
            ran = inspect(command, checkpoint, address, "--json")
            assert (ran.code, ran.document["items"]) == (1, [])
            assert "no record matches" in ran.summary["reason"]
    assert inspect("ls", checkpoint, "agent/a1/r1", "--limit", "0").code == 0
    assert inspect("ls", checkpoint, "agent/a1").code == 0
