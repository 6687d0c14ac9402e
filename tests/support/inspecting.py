"""Running ``ckpt-inspect`` in this process and in one of its own, and judging its output."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspector import cli
from inspector.schemas import SCHEMAS, Schema
from inspector.session import schema_of

__all__ = ["PROGRAM", "Ran", "documented", "inspect", "spawn", "strict"]

PROGRAM = Path(sys.executable).with_name("ckpt-inspect")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode()

    @property
    def lines(self) -> list[Any]:
        """Standard output as NDJSON."""
        return [strict(line) for line in self.text.splitlines()]

    @property
    def document(self) -> Any:
        """Standard output as one JSON document."""
        return strict(self.text)

    def items(self, kind: str) -> list[Any]:
        """The items of one type of a JSON document."""
        return [item for item in self.document["items"] if item["type"] == kind]

    @property
    def summary(self) -> Any:
        """The summary of a JSON document."""
        return self.document["summary"]

    @property
    def told(self) -> list[Any]:
        """Standard error as NDJSON."""
        return [strict(line) for line in self.stderr.splitlines()]


class _Output(io.BytesIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def inspect(*arguments: str | Path, terminal: bool = False) -> Ran:
    """Run a command line here; ``terminal`` says what standard output claims to be."""
    out, err = _Output(is_terminal=terminal), _Output(is_terminal=False)
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8")) as stdout,
        contextlib.redirect_stderr(io.TextIOWrapper(err, "utf-8")) as stderr,
    ):
        code = cli.run([str(argument) for argument in arguments])
        stdout.flush()
        stderr.flush()
        return Ran(code, out.getvalue(), err.getvalue().decode())


def spawn(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run the installed program."""
    done = subprocess.run(
        [PROGRAM, *arguments], capture_output=True, env=env, check=False, timeout=120
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not RFC 8259 JSON")


def strict(text: str | bytes) -> Any:
    """Parse JSON as RFC 8259 has it: no NaN, no Infinity; and without duplicate names."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    # JSON has no limit for integers; int() has one.
    return json.loads(
        text,
        parse_constant=_refuse_constant,
        parse_int=lambda digits: int(digits) if len(digits) < 4000 else digits,
        object_pairs_hook=members,
    )


def documented(command: str, item: Any) -> None:
    """Assert that an item is as its schema says, and has no member that it does not name."""
    _check(SCHEMAS[command][item["type"]], item, f"{schema_of(command)} {item['type']}")


def _check(schema: Schema, value: Any, where: str) -> None:
    if not schema:
        return
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        allowed = tuple(kind for name in names for kind in _TYPES[name])
        assert type(value) in allowed, f"{where}: {value!r} is not {names}"
    if "minimum" in schema and value is not None:
        assert value >= schema["minimum"], where
    if "pattern" in schema and value is not None:
        assert re.search(schema["pattern"], value), where
    if "items" in schema and value is not None:
        for member in value:
            _check(schema["items"], member, f"{where}[]")
    if "properties" in schema and value is not None:
        missing = set(schema["required"]) - value.keys()
        assert not missing, f"{where} lacks {missing}"
        unknown = value.keys() - schema["properties"].keys()
        assert not unknown, f"{where} does not document {unknown}"
        for name, member in value.items():
            _check(schema["properties"][name], member, f"{where}.{name}")
