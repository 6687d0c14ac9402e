"""The commands, and how a command line becomes the call of one.

A command's module is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from inspector.exit_codes import MEANINGS, Exit

__all__ = ["COMMANDS", "invoke"]

_PROGRAM: Final = "ckpt-inspect"

COMMANDS: Final[dict[str, tuple[str, Callable[[], ModuleType]]]] = {
    "ls": (
        "List checkpoints, participants or records.",
        lambda: import_module("inspector.commands.ls"),
    ),
    "info": (
        "Summarise a checkpoint from its manifests.",
        lambda: import_module("inspector.commands.info"),
    ),
    "cat": (
        "Give records as NDJSON, the readable ones of damaged data too.",
        lambda: import_module("inspector.commands.cat"),
    ),
    "get": ("Give one value, for scripts.", lambda: import_module("inspector.commands.get")),
    "validate": (
        "Find everything that is wrong with checkpoints.",
        lambda: import_module("inspector.commands.validate"),
    ),
    "ledger": (
        "List capture ledgers, show one rollout's calls, or find what is wrong.",
        lambda: import_module("inspector.commands.ledger"),
    ),
    "recover": (
        "Copy what can be read of a damaged checkpoint into a new one.",
        lambda: import_module("inspector.commands.recover"),
    ),
    "convert": (
        "Write a checkpoint of NeMo Gym's layout in this format, or the other way round.",
        lambda: import_module("inspector.commands.convert"),
    ),
    "gc": (
        "Show what failed writes left in a run, and delete it.",
        lambda: import_module("inspector.commands.gc"),
    ),
}
"""Name -> what it does, and the module that holds it."""


class _Commands(TyperGroup):
    """Loads a command only when it is called; help needs none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        _, load = COMMANDS[cmd_name]
        return typer.main.get_command(load().app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in COMMANDS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"{_PROGRAM} {version('ckptfmt')}")
        raise typer.Exit


_APP: Final = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@_APP.callback(no_args_is_help=True)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Look into checkpoints of RL rollouts: list, read, validate, recover.

    Inputs are never written; `gc --apply` is the one exception.
    """


def invoke(arguments: Sequence[str]) -> Exit:
    """Carry out a command line.

    Whatever a command does not settle itself is raised: a closed pipe, a signal, a bug.
    """
    group = typer.main.get_command(_APP)
    try:
        with group.make_context(_PROGRAM, list(arguments)) as context:
            return Exit(group.invoke(context))
    except typer.Exit as ended:
        return Exit(ended.exit_code)
    except typer.TyperException as error:
        from inspector.usage import tell_usage_error

        return tell_usage_error(error, list(arguments))
