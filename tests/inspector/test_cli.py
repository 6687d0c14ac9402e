"""The installed program: exit codes, streams, signals."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ckptfmt.publish import write_checkpoint
from ckptfmt.store.local import LocalStore
from inspector.app import COMMANDS
from tests.support.checkpoints import AGENT, agent_record
from tests.support.damage import flip
from tests.support.inspecting import PROGRAM, inspect, spawn, strict

PLAIN = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}


def test_help_names_every_command_and_exit_code() -> None:
    ran = spawn("--help")
    assert ran.code == 0
    assert all(name in ran.text for name in COMMANDS)
    assert "143" in ran.text
    assert spawn("-h").stdout == ran.stdout


def test_help_imports_nothing_that_it_does_not_need() -> None:
    program = (
        "import sys; from inspector.cli import run; run(['--help']); "
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stderr
    unwanted = {"textual", "s3fs", "aiohttp", "fsspec", "rich", "msgspec", "orjson", "zstandard"}
    assert [name for name in unwanted if f"'{name}'".encode() in told] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_says_what_it_does(command: str) -> None:
    ran = inspect(command, "--help")
    assert ran.code == 0
    assert "--format" in ran.text
    assert "\x1b" not in ran.text


def test_no_command_and_an_unknown_one_are_usage_errors() -> None:
    assert spawn().code == 2
    ran = spawn("frobnicate")
    assert (ran.code, ran.stdout) == (2, b"")
    assert "frobnicate" in ran.stderr


def test_version() -> None:
    ran = spawn("--version")
    assert ran.code == 0
    assert ran.text.startswith("ckpt-inspect ")


@pytest.mark.parametrize("asked", [["--json"], ["--format", "json"], ["--format=ndjson"]])
def test_usage_errors_are_json_where_json_was_asked_for(asked: list[str]) -> None:
    """I33."""
    ran = inspect("ls", "--no-such-option", *asked)
    assert ran.code == 2
    (told,) = ran.told
    assert (told["type"], told["code"]) == ("error", "usage")
    summary = strict(ran.text) if asked[-1].endswith("ndjson") else ran.summary
    assert (summary["schema"], summary["exit_code"]) == ("ckpt-inspect/ls/1", 2)


def test_json_and_another_format_contradict_each_other(run: Path) -> None:
    assert inspect("ls", run, "--json", "--format", "text").code == 2
    assert inspect("ls", run, "--json", "--format", "json").code == 0


def test_what_a_usage_error_quotes_cannot_act_on_the_terminal() -> None:
    """I14."""
    ran = inspect("ls", "--x\x1b[2J\u202e")
    assert ran.code == 2
    assert not {"\x1b", "\u202e"} & set(ran.stderr)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A checkpoint that fills a pipe."""
    records = [agent_record(f"r{n:02}", text="x" * 100_000) for n in range(20)]
    write_checkpoint(LocalStore(tmp_path), "ck", {AGENT: records}).require()
    return tmp_path / "ck"


@pytest.mark.parametrize("options", [["--json"], ["--bare"], ["--format", "text"], []])
def test_a_reader_that_goes_away_ends_it_with_141(large: Path, options: list[str]) -> None:
    """I27."""
    with subprocess.Popen(
        [PROGRAM, "cat", large, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as cat:
        assert cat.stdout is not None
        assert cat.stderr is not None
        assert cat.stdout.read(10)
        cat.stdout.close()
        assert cat.wait(60) == 141
        assert cat.stderr.read() == b""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ls", "--help"]])
def test_a_pipe_that_is_closed_before_anything_is_written(arguments: list[str]) -> None:
    """I27."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [PROGRAM, *arguments], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


SLOW = """
    import sys, time
    import inspector.commands.validate as module

    def slow(*_, **__):
        print("working", file=sys.stderr, flush=True)
        time.sleep(60)
        yield from ()

    module.verify = slow
    from inspector.cli import main
    main()
"""


def test_a_usage_error_of_several_lines_is_shown_as_it_is_laid_out() -> None:
    ran = inspect("convert", "here", "-o", "there")
    assert ran.code == 2
    assert "\n\tckptfmt" in ran.stderr
    assert "\\t" not in ran.stderr
    assert "\\x1b" in inspect("ls", "--format", "\x1b[2J").stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_still_starts_is_no_traceback(number: signal.Signals, code: int) -> None:
    """I27: imports take most of a short run's time."""
    program = f"""
        import os, sys
        from inspector.cli import main

        assert "typer" not in sys.modules

        class Late:
            def find_spec(self, name, *_):
                if name == "typer":
                    os.kill(os.getpid(), {number:d})

        sys.meta_path.insert(0, Late())
        main()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), "ls"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_its_code_and_the_summary(
    checkpoint: Path, number: signal.Signals, code: int
) -> None:
    """I27."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW), "validate", checkpoint, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stderr.readline() == b"working\n"
        running.send_signal(number)
        assert running.wait(60) == code
        document = strict(running.stdout.read())
    assert document["summary"]["exit_code"] == code
    assert document["summary"]["finished"] is False


def test_an_uncaught_exception_is_70_and_never_1(run: Path) -> None:
    """I27: with the summary, and the traceback on standard error."""
    program = textwrap.dedent(
        """
        import inspector.commands.ls as module

        def broken(*_):
            secret = "token-1234"
            raise ValueError("boom \\x1b[2J")

        module.list_checkpoints = broken
        from inspector.cli import main
        main()
        """
    )
    for options in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-c", program, "ls", run, *options], capture_output=True, check=False
        )
        assert done.returncode == 70
        assert b"ValueError" in done.stderr
        assert b"boom" in done.stderr
        assert b"\x1b" not in done.stderr
        if options:
            assert strict(done.stdout)["summary"]["exit_code"] == 70


def test_a_bug_outside_of_any_command_is_70_too(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    """I27: a module that cannot be imported, say."""

    def broken() -> None:
        raise ImportError("no such module")

    monkeypatch.setitem(COMMANDS, "ls", ("List.", broken))  # type: ignore[arg-type]
    ran = inspect("ls", run)
    assert (ran.code, ran.stdout) == (70, b"")
    assert "ImportError" in ran.stderr


def test_closed_standard_output_is_told(run: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" ls "$1" >&-', PROGRAM, run], capture_output=True, check=False
    )
    assert done.returncode == 4
    assert b"standard output" in done.stderr


def test_a_full_disk_is_told(large: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, "cat", large], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 4
    assert b"No space left" in done.stderr


def test_a_closed_standard_error_changes_nothing(run: Path) -> None:
    flip(run / "ck-1" / "agent/a1/manifest.json", 10)
    done = subprocess.run(
        ["sh", "-c", '"$0" info "$1" 2>&-', PROGRAM, run / "ck-1"], capture_output=True, check=False
    )
    assert done.returncode == 3
    assert b"resources/r1" in done.stdout


@pytest.mark.parametrize(("command", "code"), [("info", 3), ("validate", 1), ("cat", 3), ("ls", 3)])
def test_format_file_and_quiet_never_change_the_code(
    checkpoint: Path, tmp_path: Path, command: str, code: int
) -> None:
    """I26."""
    flip(checkpoint / "agent/a1/manifest.json", 10)
    for format_options in ([], ["--json"], ["--format", "ndjson"], ["--format", "text"]):
        for options in ([], ["-q"], ["-v"], ["-o", str(tmp_path / "out")]):
            ran = inspect(command, checkpoint, *format_options, *options)
            assert ran.code == code, (format_options, options)
            if "-o" in options:
                assert ran.stdout == b""
                assert (tmp_path / "out").read_bytes()


def test_a_pipe_gets_no_escape_sequences_and_the_environment_can_ask_for_them(run: Path) -> None:
    """I30."""
    assert b"\x1b" not in spawn("ls", run, env=PLAIN).stdout
    assert b"\x1b" in spawn("ls", run, env={**PLAIN, "FORCE_COLOR": "1"}).stdout
    both = {**PLAIN, "FORCE_COLOR": "1", "NO_COLOR": "1"}
    assert b"\x1b" not in spawn("ls", run, env=both).stdout
    assert b"\x1b" in spawn("ls", run, "--color", "always", env=both).stdout
    assert (
        b"\x1b"
        not in spawn("ls", run, "--color", "never", env={**PLAIN, "FORCE_COLOR": "1"}).stdout
    )


def test_columns_shape_help_and_never_cut_data(run: Path) -> None:
    narrow = {**PLAIN, "COLUMNS": "60"}
    assert max(map(len, spawn("--help", env=narrow).text.splitlines())) <= 60
    assert spawn("ls", run, env=narrow).stdout == spawn("ls", run, env=PLAIN).stdout


def test_data_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    write_checkpoint(LocalStore(tmp_path), "ck", {AGENT: [agent_record("r", text="é日")]}).require()
    ran = spawn("get", tmp_path / "ck", "agent/a1/r#/session", env={"LC_ALL": "C", **PLAIN})
    assert "é日" in ran.text


def on_terminal(*arguments: str | Path) -> tuple[int, bytes]:
    """Run the program with both streams on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, *arguments], stdout=theirs, stderr=theirs, env={**PLAIN, "TERM": "xterm"}
    ) as running:
        os.close(theirs)
        shown = b""
        # Linux ends a terminal whose other side is gone with an error.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        return running.wait(60), shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "CK"),
        ("cat", "CK", "--bare"),
        ("cat", "CK", "--format", "text"),
        ("cat", "CK", "--json"),
        ("get", "CK", "agent/a1/r#/session"),
        ("get", "CK", "agent/a1/r", "--raw"),
        ("get", "CK", "agent/a1/r#/session/messages/0/content", "--string"),
        ("validate", "CK"),
        ("ls", "CK", "agent"),
        ("info", "CK"),
        ("info", "\x1b]0;x\x07\u202e"),
    ],
)
def test_on_a_real_terminal_only_colours_of_our_own_appear(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """I13, I14: also in errors that quote what was given."""
    text = "\x1b[2J\x1b]52;c;aGk=\x07\x9b31m\u202e\u200b"
    write_checkpoint(LocalStore(tmp_path), "ck", {AGENT: [agent_record("r", text=text)]}).require()
    checkpoint = str(tmp_path / "ck")
    code, shown = on_terminal(*(checkpoint if word == "CK" else word for word in arguments))
    assert code == (4 if arguments[1] != "CK" else 0)
    left = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b"} & set(left)
    assert left
