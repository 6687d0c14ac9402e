"""``convert``: NeMo Gym's layout into this format, and back."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from ckptfmt.errors import CkptError
from ckptfmt.layouts import open_checkpoint as open_any
from ckptfmt.nemo_gym.convert import Conversion, convert_to_ckptfmt, convert_to_gym
from ckptfmt.run import RunScan
from ckptfmt.store.local import LocalStore
from inspector.exit_codes import Exit
from inspector.options import command
from inspector.output.base import Item, Views
from inspector.places import check_new, open_checkpoint
from inspector.quantities import number_of
from inspector.session import Session

__all__ = ["VIEWS", "Layout", "app", "convert"]


class Layout(StrEnum):
    """What a checkpoint can be converted to."""

    CKPTFMT = "ckptfmt"
    NEMO_GYM = "nemo-gym"


def _beyond_lines(item: Item) -> Iterator[str]:
    done = "changed" if item["changed"] else "cannot be spelt"
    yield f"{done}: {item['address']} ({', '.join(item['tags'])})"


def _summary_lines(item: Item) -> Iterator[str]:
    if item.get("written"):
        yield (
            f"{number_of(item['records'], 'record')} of "
            f"{number_of(item['participants'], 'participant')} written to {item['output']}, "
            "and held against the source"
        )


VIEWS: Final[Views] = {"beyond": _beyond_lines, "summary": _summary_lines}


def convert(
    session: Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A checkpoint's directory, or RUN@latest.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NEW", help="A directory that does not exist.")
    ],
    to: Annotated[Layout, typer.Option("--to", help="The layout of NEW.")],
    lossy: Annotated[
        bool,
        typer.Option("--lossy", help="To nemo-gym: also records that it cannot spell whole."),
    ] = False,
) -> None:
    """Write a checkpoint of NeMo Gym's layout in this format, or one of this format in Gym's.

    Values, key order and record order stay exactly what they are, and what was written is
    held against the source.  Records with values that Gym's lines cannot spell (tuples,
    keys that are no strings) are listed, and the exit code is 1, unless --lossy.
    """
    place = open_checkpoint(checkpoint)
    for notice in place.notices:
        session.talk.notice(notice)
    check_new(output)
    source, target = open_any(place.store, place.folder), LocalStore(output)
    with session.progress("convert") as counter:
        if to is Layout.CKPTFMT:
            done = convert_to_ckptfmt(
                source, target, sequence=_sequence(output), told=counter.update
            )
        else:
            done = convert_to_gym(source, target, lossy=lossy, told=counter.update)
    _conclude(session, done, output)


app = command(VIEWS, output=False)(convert)


def _sequence(output: Path) -> int:
    """The place after all checkpoints beside ``output``."""
    try:
        return RunScan(LocalStore(output.absolute().parent)).highest_sequence + 1
    except CkptError:
        return 1


def _conclude(session: Session, done: Conversion, output: Path) -> None:
    for found in done.beyond:
        session.item(
            "beyond",
            address=f"{found.participant}/{found.key}",
            tags=list(found.tags),
            changed=done.is_written,
        )
    for participant in done.respelt:
        session.talk.notice(
            f"{participant} was not spelt as json.dumps does: equal values, other bytes"
        )
    session.summary |= {
        "checkpoint_id": done.checkpoint_id,
        "participants": done.participants,
        "records": done.records,
        "beyond": len(done.beyond),
        "output": str(output),
        "written": done.is_written,
    }
    if not done.is_written:
        session.note(
            Exit.NEGATIVE,
            f"{number_of(len(done.beyond), 'record')} cannot be spelt in NeMo Gym's layout; "
            "nothing was written",
        )
