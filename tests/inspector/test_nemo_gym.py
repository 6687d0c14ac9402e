"""NeMo Gym's layout gets the answers that the same records get in this format (I12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.damage import cut, flip
from tests.support.gym import tree, write_gym
from tests.support.inspecting import documented, inspect

STATE = "resources/r1/r1/session%2Fr1#/state"


@pytest.fixture
def gym(tmp_path: Path) -> Path:
    """A checkpoint in NeMo Gym's layout, the only one of its run."""
    return write_gym(tmp_path / "gym" / "ck-1")


@pytest.fixture
def ours(tmp_path: Path, gym: Path) -> Path:
    """The same records in this format."""
    new = tmp_path / "ours" / "ck-1"
    assert inspect("convert", gym, "-o", new, "--to", "ckptfmt").code == 0
    return new


def records_file(gym: Path) -> Path:
    """The agent's records."""
    (found,) = (gym / "gym" / "agent").rglob("records*")
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "{}"),
        ("cat", "{}", "--bare"),
        ("cat", "{}", "agent/a1/r2", "--json"),
        ("get", "{}", STATE),
        ("get", "{}", STATE, "--json"),
        ("get", "{}", STATE + "/rows/0/1"),
        ("get", "{}", STATE, "--raw"),
        ("get", "{}", "agent/a1/r2#/session/messages/0/content", "--string"),
        ("get", "{}", "agent/a1/none"),
        ("get", "{}", STATE + "/none", "--default", "x"),
        ("ls", "{}", "agent", "--json"),
        ("ls", "{}", "resources/r1/r3"),
        ("ls", "{}", "agent", "--limit", "1"),
    ],
)
def test_records_and_values_are_the_same(gym: Path, ours: Path, arguments: tuple[str, ...]) -> None:
    def run(checkpoint: Path) -> tuple[int, bytes, str]:
        ran = inspect(*(text.format(checkpoint) for text in arguments))
        return ran.code, ran.stdout, ran.stderr.replace(str(checkpoint), "")

    assert run(gym) == run(ours)


def without(item: Any, *members: str) -> dict[str, Any]:
    """An item without what the layouts cannot have in common."""
    return {name: value for name, value in item.items() if name not in members}


def test_participants_are_the_same_but_for_what_is_stored(gym: Path, ours: Path) -> None:
    for command in ("ls", "info"):
        theirs, own = (inspect(command, place, "--json") for place in (gym, ours))
        assert theirs.code == own.code == 0
        left_out = ("bytes", "blocks", "provenance")
        assert [without(item, *left_out) for item in theirs.items("participant")] == [
            without(item, *left_out) for item in own.items("participant")
        ]
        for item in theirs.document["items"]:
            documented(command, item)
        documented(command, theirs.summary)


def test_info_names_the_layout(gym: Path) -> None:
    (item,) = inspect("info", gym, "--json").items("checkpoint")
    assert item["format_version"] == "nemo-gym 1"
    assert (item["state"], item["sequence"]) == ("complete", None)
    assert "nemo-gym 1" in inspect("info", gym).text


def test_a_run_of_it_is_listed_and_its_latest_found_with_a_notice(gym: Path) -> None:
    ran = inspect("ls", gym.parent, "--json")
    (item,) = ran.items("checkpoint")
    documented("ls", item)
    assert (item["state"], item["latest"], item["records"]) == ("complete", True, 6)
    found = inspect("info", f"{gym.parent}@latest")
    assert found.code == 0
    assert "its layout has no sequence" in found.stderr


@pytest.mark.parametrize("level", ["quick", "full", "deep"])
def test_it_is_valid_at_every_level(gym: Path, level: str) -> None:
    assert inspect("validate", gym, "--level", level, "--fail-on", "warning").code == 0


def test_a_wrong_digest_is_one_finding_and_damage_everywhere(gym: Path) -> None:
    file = records_file(gym)
    file.write_bytes(file.read_bytes().replace(b"hello", b"hellO", 1))
    ran = inspect("validate", gym, "--json")
    (finding,) = ran.items("finding")
    assert (ran.code, finding["rule"], finding["address"]) == (1, "stream", "agent/a1")
    for arguments in (("ls", gym), ("info", gym), ("cat", gym), ("get", gym, "agent/a1/r2")):
        assert inspect(*arguments).code == 3
    assert inspect("get", gym, STATE).code == 0


def test_a_line_that_is_none_is_skipped_and_told_with_its_place(gym: Path) -> None:
    file = records_file(gym)
    start = file.read_bytes().index(b"\n") + 1
    flip(file, start)
    ran = inspect("cat", gym, "--json")
    (lost,) = ran.items("lost")
    documented("cat", lost)
    assert ran.code == 3
    assert (lost["location"]["offset"], lost["location"]["ordinal"]) == (start, 1)
    assert len(ran.items("record")) == 5
    (finding,) = inspect("validate", gym, "--json").items("finding")
    assert finding["location"]["ordinal"] == 1
    ran = inspect("recover", gym, "-o", gym.parent / "new", "--json")
    assert (ran.code, ran.summary["records"], ran.summary["lost"]) == (3, 5, 1)
    assert inspect("validate", gym.parent / "new", "--level", "deep").code == 0


def test_a_torn_file_is_torn(gym: Path) -> None:
    cut(records_file(gym), 10)
    ran = inspect("validate", gym, "--json")
    assert ran.code == 1
    assert {item["rule"] for item in ran.items("finding")} == {"stream"}


def test_gc_says_why_it_leaves_it_alone(gym: Path) -> None:
    before = tree(gym)
    ran = inspect("gc", gym.parent, "--apply", "--json")
    assert ran.code == 0
    (kept,) = ran.items("kept")
    assert "NeMo Gym" in kept["reason"]
    assert ran.items("delete") == []
    assert tree(gym) == before


def test_control_characters_of_its_files_stay_off_the_terminal(tmp_path: Path) -> None:
    gym = write_gym(tmp_path / "x")
    (gym / "gym_checkpoint.json").write_text('{"schema_version": "\x1b[2J"}')
    (gym / "gym" / "agent" / "a1" / "manifest.json").write_text('{"kind": "\x1b[2J"}')
    for command in ("ls", "info", "cat", "validate"):
        ran = inspect(command, gym, terminal=True)
        assert "\x1b[2J" not in ran.text + ran.stderr
