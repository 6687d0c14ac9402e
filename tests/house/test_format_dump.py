"""The hex dump in docs/format.md is a stream, and the one that the writer makes."""

from __future__ import annotations

import re

from tests.support.streams import build, lines_of
from tests.support.tools import ROOT

_ROW = re.compile(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+) *  ", re.MULTILINE)


def test_the_hex_dump_of_format_md_is_what_the_writer_makes() -> None:
    text = (ROOT / "docs/format.md").read_text(encoding="utf-8")
    dump = text.split("```hexdump")[1].split("```")[0]
    stated = bytes.fromhex("".join(_ROW.findall(dump)))
    line = b'{"episode_id":{"rollout_id":"4-2","attempt":0}}'
    data, _ = build({"4-2": line}, kind="agent", instance="a-0", checkpoint_id="s1")
    assert stated.hex(" ") == data.hex(" ")
    assert lines_of(stated) == [line]
