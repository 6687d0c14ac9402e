"""What a command's run ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckptfmt.errors import CorruptError, MissingError, TransientError
from inspector.exit_codes import Exit
from inspector.output.base import Format
from inspector.session import Session, Settings, execute
from inspector.signals import Terminated
from tests.support.inspecting import strict


def run(body: Callable[[Session], None], file: Path) -> tuple[int, list[dict[str, object]]]:
    code = execute("ls", Settings(format=Format.NDJSON, output=file), {}, body)
    return code, [strict(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (MissingError("gone"), Exit.UNAVAILABLE),
        (CorruptError("bad"), Exit.INCOMPLETE),
        (TransientError("busy"), Exit.TRANSIENT),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (Terminated(), Exit.TERMINATED),
        (ZeroDivisionError("oops"), Exit.BUG),
        (MemoryError(), Exit.BUG),
    ],
)
def test_the_summary_is_last_whatever_happens(
    raised: BaseException, code: Exit, tmp_path: Path
) -> None:
    """I37, I27."""

    def body(session: Session) -> None:
        session.item("record", n=1)
        raise raised

    got, (item, summary) = run(body, tmp_path / "out")
    assert got == code
    assert item == {"type": "record", "n": 1}
    assert (summary["type"], summary["exit_code"]) == ("summary", code)
    assert summary["reason"]


def test_the_weightiest_outcome_decides_and_both_facts_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I23."""

    def body(session: Session) -> None:
        session.note(Exit.NEGATIVE, "different")
        session.damage(CorruptError("first").at(participant="agent/a0"))
        session.damage(CorruptError("second"))

    code, (summary,) = run(body, tmp_path / "out")
    assert code == Exit.INCOMPLETE
    assert summary["reason"] == "agent/a0: first (and 1 more)"
    told = [strict(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert told == ["first", "second"]


def test_nothing_noted_is_done(tmp_path: Path) -> None:
    code, (summary,) = run(lambda session: None, tmp_path / "out")
    assert (code, summary["reason"]) == (0, None)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """I37."""
    target = tmp_path / "out"
    target.write_text("before")

    def body(session: Session) -> None:
        session.item("record", n=1)
        assert target.read_text() == "before"
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        execute("ls", Settings(format=Format.NDJSON, output=target), {}, body)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    settings = Settings(format=Format.NDJSON, output=tmp_path / "no" / "such" / "folder")
    assert execute("ls", settings, {}, lambda session: None) == Exit.UNAVAILABLE
