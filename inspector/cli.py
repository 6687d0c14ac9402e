"""The entry point of ``ckpt-inspect``.

Exit codes are ours: the library below returns 1 for a closed pipe and for an uncaught
exception, which here are 141 and 70.  Nothing that takes time is imported before signals
are taken care of.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from inspector.exit_codes import Exit
from inspector.signals import Terminated, raise_on_sigterm, stop_raising

__all__ = ["main", "run"]


def run(arguments: Sequence[str]) -> Exit:
    """Run a command line and give its exit code; whatever happens, it is told here.

    A closed pipe must have no more bytes to flush into when the process ends, so standard
    output goes nowhere from then on.
    """
    try:
        from inspector.app import invoke

        code = invoke(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Terminated:
        return Exit.TERMINATED
    except Exception as error:  # noqa: BLE001 - whatever it is, it must end as 70 and be told
        from inspector.output.talk import TextTalk

        TextTalk("", quiet=False, verbose=False, bar=False).bug(error)
        return Exit.BUG
    return code


def _closed_pipe() -> Exit:
    from inspector.output.sink import close_quietly

    close_quietly(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    return Exit.CLOSED_PIPE


def main() -> NoReturn:
    """The console script."""
    try:
        raise_on_sigterm()
        code = run(sys.argv[1:])
        # All was said and written: a signal could only spoil the end.
        stop_raising()
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except Terminated:
        code = Exit.TERMINATED
    sys.exit(int(code))
