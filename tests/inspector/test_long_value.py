from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError
from ckptfmt.identity import EpisodeId
from ckptfmt.payload import JsonPayload
from ckptfmt.record import Record, join_line
from inspector.long_value import long_value
from inspector.value import find_value
from tests.support.streams import long_line

TEXT = (
    b'{ "a": [10, {"b": "\\ud83d\\ude00 \\\\ \\u00e9 \xc3\xa9\\"", "a~/": null}], "": 1e400,\n'
    b' "twice": {"x": 1}, "twice": {"y": "\\ud800"}, "twice2": [1], "twice2": 7 }'
)
MEMBERS = {
    "s": JsonPayload.from_value(
        {"a": [1, float("nan"), {"ü/~": "x"}], "01": {"0": []}, "": {"": 2}}
    ),
    "own": JsonPayload.from_json(b" " + TEXT + b" "),
    "flat": JsonPayload.from_json(TEXT.replace(b"\n", b"").replace(b"\\ud800", b"").strip()),
}
BARE = JsonPayload.stored(b"[1]", b'[["","text"]]')
LINE = join_line(Record(episode_id=EpisodeId("r"), members=MEMBERS).line())
TOKENS = st.sampled_from([
    "s", "own", "flat", "a", "0", "1", "2", "01", "", "ü/~", "b", "a~/", "twice", "twice2", "x",
    "y",    "$exact", "episode_id", "-",
])  # fmt: skip


@given(st.lists(TOKENS, max_size=4), st.integers(1, 30))
def test_it_is_the_value_that_is_found_in_a_line_that_is_held(
    tokens: list[str], piece_chars: int
) -> None:
    found = find_value(LINE, tokens)
    pieces = long_value(long_line(LINE, piece_chars), tokens)
    assert (None if pieces is None else b"".join(pieces)) == (found and bytes(found.text))


@pytest.mark.parametrize("tokens", [["own"], ["own", "a", "1", "b"], ["own", "twice", "y"]])
def test_a_text_that_is_kept_whole_comes_unescaped_at_any_cut(tokens: list[str]) -> None:
    found = find_value(LINE, tokens)
    assert found is not None
    for piece_chars in range(1, len(LINE)):
        pieces = long_value(long_line(LINE, piece_chars), tokens)
        assert pieces is not None
        assert b"".join(pieces) == found.text


def test_a_text_annotation_on_something_else_is_damage() -> None:
    text = join_line(Record(episode_id=EpisodeId("r"), members={"own": BARE}).line())
    with pytest.raises(CorruptError, match="text annotation"):
        list(long_value(long_line(text, 5), ["own"]) or ())
