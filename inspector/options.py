"""The options of every command, and how a function becomes a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from inspector.output.base import Color, Format, Views
from inspector.session import Settings, execute

__all__ = ["command"]

_Function = Callable[..., None]

_FORMAT: Final = Annotated[
    Format | None, typer.Option("--format", help="What goes to standard output.")
]
_JSON: Final = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
_OUTPUT: Final = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output."),
]
_QUIET: Final = Annotated[
    bool, typer.Option("--quiet", "-q", help="On standard error errors only.")
]
_VERBOSE: Final = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell the causes of errors.")
]
_COLOR: Final = Annotated[Color, typer.Option("--color", help="When to colour text.")]


def command(
    views: Views, *, default: Format = Format.TEXT, output: bool = True
) -> Callable[[_Function], typer.Typer]:
    """Make a command of a function that takes a session and the command's own parameters.

    ``default`` is the format where the call names none; without ``output`` the command has
    no ``-o FILE``.
    """

    def made(function: _Function) -> typer.Typer:
        name = function.__name__

        def run(**given: Any) -> int:
            settings = _settings(given, default)
            return execute(name, settings, views, lambda session: function(session, **given))

        run.__name__ = name
        run.__doc__ = function.__doc__
        run.__annotations__ = {}
        run.__signature__ = _signature(function, output=output)  # type: ignore[attr-defined]
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        app.command(name)(run)
        return app

    return made


def _signature(function: Callable[..., None], *, output: bool) -> inspect.Signature:
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    shared = [
        _option("output_format", _FORMAT, None),
        _option("as_json", _JSON, False),
        *([_option("output_file", _OUTPUT, None)] if output else []),
        _option("quiet", _QUIET, False),
        _option("verbose", _VERBOSE, False),
        _option("color", _COLOR, Color.AUTO),
    ]
    return inspect.Signature([*(p.replace(kind=Parameter.KEYWORD_ONLY) for p in own), *shared])


def _option(name: str, annotation: object, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _settings(given: dict[str, Any], default: Format) -> Settings:
    """Take the shared options out of what was given."""
    asked = given.pop("output_format")
    if given.pop("as_json"):
        if asked not in (None, Format.JSON):
            raise typer.BadParameter(f"--json and --format {asked} contradict each other")
        asked = Format.JSON
    return Settings(
        format=asked or default,
        output=given.pop("output_file", None),
        quiet=given.pop("quiet"),
        verbose=given.pop("verbose"),
        color=given.pop("color"),
    )
