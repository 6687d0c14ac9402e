"""``recover``: what can be read of a damaged checkpoint, in a new one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from ckptfmt.commit import Committed, NotCommitted
from ckptfmt.recover import recover_checkpoint
from ckptfmt.recovery import Recovery
from ckptfmt.store.local import LocalStore
from inspector.exit_codes import Exit
from inspector.failures import exit_code_of, location_members
from inspector.options import command
from inspector.output.base import Item, Views
from inspector.places import check_new, open_checkpoint
from inspector.quantities import number_of
from inspector.session import Session

__all__ = ["VIEWS", "app", "recover"]


def _lost_lines(item: Item) -> Iterator[str]:
    where = ", ".join(f"{name} {value}" for name, value in item["location"].items())
    yield f"lost: {item['message']}" + (f" [{where}]" if where else "")


def _summary_lines(item: Item) -> Iterator[str]:
    if not item.get("published"):
        return
    yield f"{number_of(item['records'], 'record')} recovered into {item['output']}, which is valid"
    if item["unlisted"]:
        yield f"({item['unlisted']:,} more losses are not listed)"


VIEWS: Final[Views] = {"lost": _lost_lines, "summary": _summary_lines}


def recover(
    session: Session,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CKPT", help="A checkpoint's directory, or RUN@latest.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NEW", help="A directory that does not exist.")
    ],
) -> None:
    """Copy every readable record into a new checkpoint, marked as recovered.

    The input is never modified, and NEW must not exist.  What was written is verified,
    record by record, before it is published.  Exit code 3: something was lost.
    """
    place = open_checkpoint(checkpoint)
    for notice in place.notices:
        session.talk.notice(notice)
    check_new(output)
    recovery = recover_checkpoint(place.store, place.folder, LocalStore(output))
    for lost in recovery.lost:
        session.item("lost", message=lost.message, location=location_members(lost.location))
    session.summary |= {
        "records": recovery.records,
        "lost": recovery.lost_count,
        "unlisted": recovery.lost_count - len(recovery.lost),
        "output": str(output),
        "published": isinstance(recovery.outcome, Committed),
    }
    _conclude(session, recovery)


app = command(VIEWS, output=False)(recover)


def _conclude(session: Session, recovery: Recovery) -> None:
    if recovery.lost_count:
        session.note(Exit.INCOMPLETE, f"{number_of(recovery.lost_count, 'part')} lost")
    match recovery.outcome:
        case Committed():
            return
        case None:
            session.note(Exit.NEGATIVE, "no record could be read; nothing was written")
        case NotCommitted(reason=reason):
            session.talk.error(reason)
            session.note(exit_code_of(reason), f"not published: {reason.message}")
        case unknown:
            session.talk.error(unknown.reason)
            session.note(Exit.TRANSIENT, f"perhaps not published: {unknown.reason.message}")
