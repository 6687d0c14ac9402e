"""The JSON parsing suite, offered as payload bytes (F24)."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from ckptfmt.errors import DepthError, JsonSyntaxError
from ckptfmt.payload import JsonPayload
from ckptfmt.testing.same import assert_same


def _cases(shared_data: Path, folder: str, opening: str = "") -> dict[str, bytes]:
    files = sorted((shared_data / "json-test-suite" / folder).glob(f"{opening}*.json"))
    return {file.name: file.read_bytes() for file in files}


def test_the_suite_is_whole(shared_data: Path) -> None:
    names = [*_cases(shared_data, "test_parsing")]
    assert len(names) == 318
    assert {name[:2] for name in names} == {"y_", "n_", "i_"}
    assert len(_cases(shared_data, "test_transform")) == 22


def test_valid_text_comes_back_byte_for_byte(shared_data: Path) -> None:
    cases = _cases(shared_data, "test_parsing", "y_")
    payloads = {name: JsonPayload.from_json(data) for name, data in cases.items()}
    assert {name: payload.json_bytes() for name, payload in payloads.items()} == cases
    for name, payload in payloads.items():
        assert_same(payload.value(), json.loads(cases[name]))


def test_invalid_text_is_refused_with_the_offset(shared_data: Path) -> None:
    for name, data in _cases(shared_data, "test_parsing", "n_").items():
        offset = _refused_at(data)
        assert offset is not None, name
        assert 0 <= offset <= len(data), name


def _refused_at(data: bytes) -> int | None:
    with pytest.raises((JsonSyntaxError, DepthError)) as caught:
        JsonPayload.from_json(data)
    return caught.value.location.offset


def _accepted(data: bytes) -> bool:
    with contextlib.suppress(JsonSyntaxError, DepthError):
        payload = JsonPayload.from_json(data)
        assert payload.json_bytes() == data
        assert_same(payload.value(), json.loads(data))
        return True
    return False


def test_text_that_may_be_either_is_kept_whole_or_refused(shared_data: Path) -> None:
    """docs/json-suite.md says which; a test of the house compares it."""
    cases = _cases(shared_data, "test_parsing", "i_")
    accepted = {name for name, data in cases.items() if _accepted(data)}
    assert 0 < len(accepted) < len(cases)
    for name in cases.keys() - accepted:
        assert _refused_at(cases[name]) is not None, name


def test_text_that_parsers_transform_is_not_transformed(shared_data: Path) -> None:
    """Raw surrogates are no UTF-8, though Python's own decoder lets them pass."""
    cases = _cases(shared_data, "test_transform")
    refused = {name for name, data in cases.items() if not _accepted(data)}
    assert refused == {
        "string_1_invalid_codepoint.json",
        "string_2_invalid_codepoints.json",
        "string_3_invalid_codepoints.json",
    }
    assert {_refused_at(cases[name]) for name in refused} == {2}
