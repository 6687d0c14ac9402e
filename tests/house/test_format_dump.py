"""The hex dump in docs/format.md is a stream, and the one that the writer makes."""

from __future__ import annotations

import re

from tests.support.streams import build, lines_of
from tests.support.tools import ROOT

_ROW = re.compile(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+) *  ", re.MULTILINE)
_FIELD = re.compile(
    r"^\| ([0-9a-f]{4}) \| (\d+) \| ((?:[0-9a-f]{2} )+)(?:… ([0-9a-f]{2}) )?\| ", re.MULTILINE
)


def test_the_hex_dump_of_format_md_is_what_the_writer_makes() -> None:
    text = (ROOT / "docs/format.md").read_text(encoding="utf-8")
    dump = text.split("```hexdump")[1].split("```")[0]
    stated = bytes.fromhex("".join(_ROW.findall(dump)))
    line = b'{"episode_id":{"rollout_id":"4-2","attempt":0}}'
    data, _ = build({"4-2": line}, kind="agent", instance="a-0", checkpoint_id="s1")
    assert stated.hex(" ") == data.hex(" ")
    assert lines_of(stated) == [line]


def test_the_table_below_explains_every_byte_of_the_dump() -> None:
    text = (ROOT / "docs/format.md").read_text(encoding="utf-8")
    stated = bytes.fromhex("".join(_ROW.findall(text.split("```hexdump")[1].split("```")[0])))
    at = 0
    for offset, size, begin, end in _FIELD.findall(text):
        assert int(offset, 16) == at
        field = stated[at : at + int(size)]
        assert field.startswith(bytes.fromhex(begin))
        assert field.endswith(bytes.fromhex(end))
        assert end or field.hex(" ") == begin.strip()
        at += len(field)
    assert at == len(stated)
