"""A command line that cannot be understood, told in the format that it asked for."""

from __future__ import annotations

import sys
from typing import Any

import typer

from inspector.exit_codes import Exit
from inspector.output.machine import JsonWriter, NdjsonWriter, spelled
from inspector.output.sink import StandardOutput
from inspector.safe_text import safe_text
from inspector.session import schema_of

__all__ = ["tell_usage_error"]


def tell_usage_error(error: typer.TyperException, arguments: list[str]) -> Exit:
    """Say what is wrong on standard error, and end the output as a command would."""
    message = error.format_message()
    context: Any = getattr(error, "ctx", None)
    path = "ckpt-inspect" if context is None else context.command_path
    asked = _format(arguments)
    if asked == "text":
        # Without any argument the message is the help text.
        sys.stderr.write(safe_text(message, keep="\n\t") + "\n")
        if arguments:
            sys.stderr.write(f"Try '{safe_text(path)} --help'.\n")
        return Exit.USAGE
    told: dict[str, Any] = {"type": "error", "code": "usage", "message": message}
    told |= {"location": {}, "advice": None}
    sys.stderr.write(spelled(told).decode() + "\n")
    schema = schema_of(path.rpartition(" ")[2])
    summary = {
        "type": "summary",
        "schema": schema,
        "exit_code": int(Exit.USAGE),
        "reason": message,
    }
    sink = StandardOutput()
    writer = JsonWriter(sink, schema) if asked == "json" else NdjsonWriter(sink)
    writer.end(summary)
    sink.finish()
    return Exit.USAGE


def _format(arguments: list[str]) -> str:
    """The format that an unparsable command line asks for, as far as can be told."""
    if "--json" in arguments:
        return "json"
    for option, value in zip(arguments, [*arguments[1:], ""], strict=False):
        asked = option.partition("=")[2] if option.startswith("--format=") else value
        if option.startswith("--format") and asked in ("json", "ndjson"):
            return asked
    return "text"
