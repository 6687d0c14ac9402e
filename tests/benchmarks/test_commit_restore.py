"""The benchmark on tiny sets: what it prints, and that its ways store the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks import commit_restore, sets, ways
from benchmarks.layers import LAYERS, longest_line, restore_full, restore_lazy

_RESULT = {
    "layer", "set", "op", "reference_s", "ours_s", "bare_s", "ratio", "vs_bare",
    "peak_extra_mib", "gc",
}  # fmt: skip
_SESSIONS = 10


@pytest.fixture(params=sets.NAMES)
def sessions(request: pytest.FixtureRequest) -> list[sets.Session]:
    return sets.build(request.param, _SESSIONS)


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    commit_restore.main(["--sessions", "2", "--repeat", "1", *arguments])
    return capsys.readouterr().out


def test_json_has_one_result_for_each_set_operation_and_collector_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = json.loads(_printed(capsys, "--json", "--dir", str(tmp_path)))
    assert printed.keys() == {"schema", "results"}
    assert printed["schema"] == "bench/commit_restore/1"
    restores = [(op, gc) for gc in ("on", "off") for op in ("restore_lazy", "restore_full")]
    assert [(r["set"], r["layer"], r["op"], r["gc"]) for r in printed["results"]] == [
        (name, layer, op, gc)
        for name in sets.NAMES
        for layer in LAYERS
        for op, gc in [("commit", "on"), *restores]
    ]
    for result in printed["results"]:
        _check_result(result)
    assert list(tmp_path.iterdir()) == []


def _check_result(result: dict[str, Any]) -> None:
    assert result.keys() == _RESULT
    assert result["reference_s"] > 0 < result["ours_s"]
    assert result["ratio"] == pytest.approx(result["reference_s"] / result["ours_s"], rel=0.01)
    is_commit = result["op"] == "commit"
    assert (result["bare_s"] is not None, result["vs_bare"] is not None) == (is_commit, is_commit)
    is_measured = is_commit or (result["op"], result["gc"]) == ("restore_lazy", "on")
    # Where the kernel cannot tell, a peak is null as well.
    assert is_measured or result["peak_extra_mib"] is None


def test_the_table_has_a_row_for_each_result(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(capsys, "--set", "numeric", "--layer", "stream").splitlines()
    rows = [line.split("|")[2:5] for line in lines if line.startswith("| stream")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["numeric", "commit", "on"],
        ["numeric", "restore_lazy", "on"],
        ["numeric", "restore_full", "on"],
        ["numeric", "restore_lazy", "off"],
        ["numeric", "restore_full", "off"],
    ]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_ways_store_the_same_content(
    layer: str, sessions: list[sets.Session], tmp_path: Path
) -> None:
    plain, bare = tmp_path / "plain", tmp_path / "bare"
    sha256 = ways.commit_reference(sessions, plain)
    ways.commit_bare(sessions, bare)
    ours = LAYERS[layer].commit(sessions, tmp_path)

    reference = ways.restore_reference(plain, sha256)
    assert _same(reference, [ways.plain_record(session) for session in sessions])
    states = [record["state"] for record in reference]
    assert _same(restore_full(ours), states)
    lazy = restore_lazy(ours)
    assert [record.session_id for record in lazy] == [r["session_id"] for r in reference]
    assert _same([record.state and record.state.value() for record in lazy], states)

    lines = [record.stored_line or b"" for record in lazy]
    assert longest_line(ours) == max(map(len, lines))
    # The bare way loses NaN, and has nothing to say about it.
    annotated = [b'"$exact"' in line for line in lines]
    assert [orjson.loads(line) for line in bare.read_bytes().splitlines()] == [
        {name: value for name, value in orjson.loads(line).items() if name != "$exact"}
        for line in lines
    ]
    assert annotated == [not math.isfinite(_sum_of_floats(state)) for state in states]


def _same(one: Any, other: Any) -> bool:
    # As text, so that NaN equals NaN, and types and order count.
    return json.dumps(one) == json.dumps(other)


def _sum_of_floats(value: Any) -> float:
    if isinstance(value, dict):
        return sum(map(_sum_of_floats, value.values()))
    if isinstance(value, list):
        return sum(map(_sum_of_floats, value))
    return value if isinstance(value, float) else 0.0


def test_a_reference_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    sha256 = ways.commit_reference(sets.build("real", 2), path)
    path.write_bytes(path.read_bytes().replace(b"null", b"true", 1))
    with pytest.raises(ValueError, match="not the one"):
        ways.restore_reference(path, sha256)


@pytest.mark.parametrize("name", sets.NAMES)
def test_a_set_is_the_same_every_time_and_about_350_kb_a_session(name: str) -> None:
    texts = list(sets.texts(name, 40))
    assert texts == list(sets.texts(name, 40))
    sizes = [len(text) for text in texts]
    assert 330_000 < sum(sizes) / len(sizes) < 370_000
    assert b"NaN" not in b"".join(texts if name == "real" else texts[:9])


def test_one_numeric_session_in_ten_holds_nan() -> None:
    assert [b"NaN" in text for text in sets.texts("numeric", 40)] == ([False] * 9 + [True]) * 4


def test_no_two_sessions_share_an_object(sessions: list[sets.Session]) -> None:
    seen: list[dict[int, Any]] = [_containers(session.state, {}) for session in sessions]
    assert len(set().union(*seen)) == sum(map(len, seen))


def _containers(value: Any, found: dict[int, Any]) -> dict[int, Any]:
    if isinstance(value, dict | list):
        found[id(value)] = value
        for child in value.values() if isinstance(value, dict) else value:
            _containers(child, found)
    return found


def test_made_rollouts_have_what_real_ones_have() -> None:
    made = sets.generated_rollouts()
    assert made == sets.generated_rollouts()
    whole = b"".join(made)
    assert all(isinstance(orjson.loads(rollout), dict) for rollout in made)
    assert 30_000 < min(map(len, made)) < max(map(len, made)) < 280_000
    for mark in (b"null", b"\\n", b'\\"', b"\\\\", b"\\u", "検索".encode(), b'": ', b'":"'):
        assert mark in whole


def test_without_the_shared_data_sessions_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPTFMT_SHARED", str(tmp_path))
    assert sets.rollouts() == sets.generated_rollouts()
    (text,) = sets.texts("real", 1)
    assert 250_000 < len(text) < 500_000
