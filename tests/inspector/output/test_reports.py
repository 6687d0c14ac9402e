"""Reports: text from outside stays text, whatever the form."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ckptfmt.errors import RefusedError, StorageFailedError
from inspector.output.reports import (
    LISTED,
    REPORTS,
    Entry,
    Report,
    ReportFile,
    github,
    junit,
    markdown,
)

HOSTILE = [
    "\x1b[2J",
    "\u202eevil\u2066",
    "a\nb\r\nc\rd\te",
    "]]><x/>",
    "\n::error title=x::y",
    "::add-mask::x",
    "%0A::error::x",
    "a|b\\|c",
    "`code` ``` ~~~",
    "</failure><!-- &amp; \"'>",
    "[x](javascript:1) ![x](y) <img src=x> @all www.x.y https://x.y $x$ #1",
    "\x00\x08\x7f\x9b\ud800\ufffe\uffff\u2028\x85",
]


def entry(text: str = "text", *, fails: bool = True) -> Entry:
    severity = "error" if fails else "warning"
    return Entry("ck", "stream", severity, "agent/a1", text, fails)


def hostile(text: str) -> Report:
    """A report with the text in every place."""
    report = Report(inputs={text: text}, verdict=text)
    report.add(Entry(text, text, "error", text, text, fails=True))
    return report


@pytest.mark.parametrize("kind", REPORTS)
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_acts_on_a_terminal(kind: str, text: str) -> None:
    """I14."""
    spelt = REPORTS[kind](hostile(text))
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", spelt
    )
    harmless = REPORTS[kind](hostile("x"))
    if kind != "junit":
        assert spelt.count("\n") == harmless.count("\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_junit_is_the_same_document_with_other_text(text: str) -> None:
    shapes = []
    for report in (hostile("x"), hostile(text)):
        root = ET.fromstring(junit(report))
        shapes.append([(element.tag, sorted(element.attrib)) for element in root.iter()])
    assert shapes[0] == shapes[1]
    assert not re.search("[\ufffe\uffff]", junit(hostile(text)))
    (failure, _) = root.iter("failure")
    if text.isascii() and text.isprintable():
        assert failure.get("message") == text


@pytest.mark.parametrize("text", HOSTILE)
def test_github_has_one_command_for_each_entry(text: str) -> None:
    for line in github(hostile(text)).splitlines():
        command = re.fullmatch(r"::error title=([^:,]*)::(.*)", line)
        assert command
        for part in command.groups():
            assert not re.search("%(?!25|3A|2C)", part)
    title = github(hostile("a:b,c%\\n")).split("::")[1]
    assert title == "error title=a%3Ab%2Cc%25\\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_rows_have_their_cells_and_no_markup(text: str) -> None:
    tables = [line for line in markdown(hostile(text)).splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in tables] == [2, 2, 2, 5, 5, 5]
    for line in (tables[2], tables[5]):
        for mark in re.finditer(r"[`<>*_\[\]&@:$#.!~]", line):
            before = line[: mark.start()]
            assert (len(before) - len(before.rstrip("\\"))) % 2 == 1


def test_junit_fails_for_what_gates_only_and_counts_that() -> None:
    report = Report(inputs={"ck": "ck: INVALID", "other": "other: valid"}, verdict="1 error")
    report.add(entry("gates"))
    report.add(entry("does not", fails=False))
    root = ET.fromstring(junit(report))
    assert root.attrib == {
        "name": "ckpt-inspect validate",
        "tests": "5",
        "failures": "2",
        "skipped": "0",
        "errors": "0",
    }
    assert [(suite.get("tests"), suite.get("failures")) for suite in root] == [
        ("3", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    assert [found.get("message") for found in root.iter("failure")] == ["gates", "1 error"]
    assert "does not" in [found.text for found in root.iter("system-out")]


@pytest.mark.parametrize(
    ("doubtful", "failed", "outcome", "severity"),
    [
        (False, False, "system-out", "notice"),
        (True, False, "skipped", "warning"),
        (False, True, "failure", "error"),
        (True, True, "failure", "error"),
    ],
)
def test_the_verdict_is_told_last(
    doubtful: bool, failed: bool, outcome: str, severity: str
) -> None:
    """What was not wholly looked at does not pass."""
    report = Report(inputs={"ck": "ck: so so"}, doubtful=doubtful, verdict="as it is")
    if failed:
        report.add(entry())
    (case,) = ET.fromstring(junit(report))[-1]
    assert (case.get("name"), case[0].tag) == ("verdict", outcome)
    last = github(report).splitlines()[-1]
    assert last == f"::{severity} title=ckpt-inspect validate::as it is"
    assert "as it is" in markdown(report)


@pytest.mark.parametrize("kind", REPORTS)
def test_what_is_not_listed_is_counted_and_still_fails(kind: str) -> None:
    report = Report(inputs={"ck": "ck: INVALID"}, verdict="many")
    for number in range(LISTED):
        report.add(entry(f"warning {number}", fails=False))
    assert "not listed" not in REPORTS[kind](report)
    report.add(entry("the one"))
    spelt = REPORTS[kind](report)
    assert "1 more findings are not listed" in spelt
    assert "the one" not in spelt
    assert kind == "md" or ("failure " in spelt or "::error " in spelt)


@pytest.mark.parametrize("asked", ["", "junit", "junit=", "=x", "xml=x", "JUNIT=x", "\x1b=x"])
def test_what_is_no_kind_and_file_is_refused(asked: str) -> None:
    with pytest.raises(RefusedError, match="KIND=FILE") as refused:
        ReportFile(asked)
    assert "\x1b" not in str(refused.value)


def test_a_report_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a=b.xml"
    opened = ReportFile(f"junit={file}")
    assert not file.exists()
    opened.write(Report(verdict="done"))
    opened.abandon()
    assert "done" in file.read_text()
    ReportFile(f"md={file}").abandon()
    assert "done" in file.read_text()
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(StorageFailedError):
        ReportFile(f"md={tmp_path}/nothing/x")
