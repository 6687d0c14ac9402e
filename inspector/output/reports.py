"""What ``validate`` found, in the forms that build servers and reviewers read.

A report shows the first findings only (:data:`LISTED`) and says how many there are; its
verdict counts all.  Every text from outside is made harmless, and then spelt by the rules
of the form.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ckptfmt.errors import RefusedError
from inspector.output.sink import FileSink
from inspector.safe_text import safe_text

__all__ = ["LISTED", "REPORTS", "Entry", "Report", "ReportFile", "github", "junit", "markdown"]

LISTED: Final = 1000
"""So many findings a report lists; more nobody reads, and they would have to be held."""

_TITLE: Final = "ckpt-inspect validate"
# What XML 1.0 forbids besides the controls and surrogates that are escapes already.
_NOT_IN_XML: Final = {0xFFFE: r"\ufffe", 0xFFFF: r"\uffff"}
# What means something within a line of GitHub's Markdown; links and mentions included.
_MARKUP: Final = re.compile(r"[!#$&()*.:<>@\[\\\]^_`{|}~]")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that is wrong at a place; ``fails`` if it makes the verdict negative."""

    input: str
    rule: str
    severity: str
    where: str
    message: str
    fails: bool


@dataclass(slots=True)
class Report:
    """All that a report tells.

    ``inputs`` has a line on each input.  If it is ``doubtful``, not everything was looked at,
    and having no entries does not mean that all is well.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    total: int = 0
    failed: bool = False
    doubtful: bool = False
    verdict: str = ""

    def add(self, entry: Entry) -> None:
        """Take an entry in, and list it if there is room."""
        self.total += 1
        self.failed = self.failed or entry.fails
        if len(self.entries) < LISTED:
            self.entries.append(entry)

    @property
    def unlisted(self) -> str | None:
        """How many findings are left out, in words, if some are."""
        more = self.total - len(self.entries)
        return f"{more:,} more findings are not listed" if more else None


def junit(report: Report) -> str:
    """JUnit's XML: a suite of each input, a case of each finding, and one of the verdict.

    What does not make the verdict negative passes, with its text as output.
    """
    root = ET.Element("testsuites", name=_TITLE)
    for name, line in report.inputs.items():
        suite = ET.SubElement(root, "testsuite", name=_xml(name))
        _case(suite, name, "input", "system-out", line)
        for entry in report.entries:
            if entry.input == name:
                outcome = "failure" if entry.fails else "system-out"
                _case(suite, name, f"{entry.rule} {entry.where}", outcome, entry.message)
    suite = ET.SubElement(root, "testsuite", name=_TITLE)
    outcome = "failure" if report.failed else "skipped" if report.doubtful else "system-out"
    _case(suite, _TITLE, "verdict", outcome, "; ".join(_conclusion(report)))
    for counted in (*root, root):
        counted.set("tests", str(len(counted.findall(".//testcase"))))
        counted.set("failures", str(len(counted.findall(".//failure"))))
        counted.set("skipped", str(len(counted.findall(".//skipped"))))
        counted.set("errors", "0")
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return f"{document.decode()}\n"


def _case(suite: ET.Element, group: str, name: str, outcome: str, text: str) -> None:
    case = ET.SubElement(suite, "testcase", classname=_xml(group), name=_xml(name))
    told = ET.SubElement(case, outcome)
    if outcome == "system-out":
        told.text = _xml(text)
    else:
        told.set("message", _xml(text))


def _xml(text: str) -> str:
    return safe_text(text).translate(_NOT_IN_XML)


def github(report: Report) -> str:
    """Workflow commands of GitHub Actions, to be printed by a step; the verdict is last."""
    lines = [
        _command(entry.severity, entry.rule, f"{entry.where}: {entry.message}")
        for entry in report.entries
    ]
    severity = "error" if report.failed else "warning" if report.doubtful else "notice"
    lines.append(_command(severity, _TITLE, "; ".join(_conclusion(report))))
    return "".join(f"{line}\n" for line in lines)


def _command(name: str, title: str, message: str) -> str:
    # The escapes are those of the runner's own toolkit.
    value = _data(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{name} title={value}::{_data(message)}"


def _data(text: str) -> str:
    return safe_text(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown(report: Report) -> str:
    """Tables for a review or a job's summary."""
    lines = [f"## {_TITLE}", "", "; ".join(map(_markdown, _conclusion(report))), ""]
    lines += _table(("Input",), ((line,) for line in report.inputs.values()))
    if report.entries:
        rows = (
            (entry.severity, entry.rule, entry.where, entry.message) for entry in report.entries
        )
        lines += ["", *_table(("Severity", "Rule", "Where", "What"), rows)]
    return "".join(f"{line}\n" for line in lines)


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(_markdown, row))} |"


def _markdown(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", safe_text(text))


def _conclusion(report: Report) -> list[str]:
    return [part for part in (report.verdict, report.unlisted) if part]


REPORTS: Final[Mapping[str, Callable[[Report], str]]] = {
    "junit": junit,
    "github": github,
    "md": markdown,
}
"""Kind -> how a report of that kind is spelt."""


class ReportFile:
    """A file that a report will be written into; it appears once it is whole."""

    def __init__(self, asked: str) -> None:
        """Open what ``KIND=FILE`` asks for.

        Raises:
            RefusedError: it is no such pair.
            StorageFailedError: the file cannot be written.
        """
        kind, _, name = asked.partition("=")
        if kind not in REPORTS or not name:
            raise RefusedError(
                f"--report {asked[:80]!a} is not KIND=FILE",
                advice=f"the kinds are {', '.join(REPORTS)}",
            )
        self._spell = REPORTS[kind]
        self._sink = FileSink(Path(name))

    def write(self, report: Report) -> None:
        """Write the report.

        Raises:
            StorageFailedError: it cannot be written.
        """
        self._sink.write(self._spell(report).encode())
        self._sink.finish()

    def abandon(self) -> None:
        """Leave nothing behind of a report that was not written."""
        self._sink.abandon()
