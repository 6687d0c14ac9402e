"""``gc``: what failed writes left in a run; the only command that deletes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from ckptfmt.errors import CkptError
from ckptfmt.leftovers import GcPlan, apply_gc, plan_gc
from ckptfmt.store.base import Store
from inspector.exit_codes import Exit
from inspector.failures import code_of_damage
from inspector.options import command
from inspector.output.base import Item, Views
from inspector.places import open_run
from inspector.quantities import number_of
from inspector.session import Session

__all__ = ["VIEWS", "app", "gc"]


def _delete_lines(item: Item) -> Iterator[str]:
    done = "deleted" if item["deleted"] else "delete"
    yield f"{done:<9}{item['name']}" if item["error"] is None else f"FAILED   {item['name']}"


def _summary_lines(item: Item) -> Iterator[str]:
    if item.get("applied"):
        yield f"{number_of(item['deleted'], 'file')} deleted, {item['kept']:,} left alone"
    elif "planned" in item:
        yield (
            f"{number_of(item['planned'], 'file')} to delete, {item['kept']:,} left alone; "
            "--apply deletes"
        )


VIEWS: Final[Views] = {
    "delete": _delete_lines,
    "kept": lambda item: [f"keep     {item['name']} ({item['reason']})"],
    "summary": _summary_lines,
}


def gc(
    session: Session,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The directory of checkpoints.")],
    apply: Annotated[bool, typer.Option("--apply", help="Delete what the plan lists.")] = False,
) -> None:
    """Show what failed writes left in a run; with --apply, delete exactly that.

    Nothing that a manifest names is ever deleted, and nothing at all while a checkpoint of
    the run is damaged.
    """
    store = open_run(run)
    plan = plan_gc(store)
    for kept in plan.kept:
        session.item("kept", name=kept.name, reason=kept.reason)
    session.summary |= {
        "planned": len(plan.delete),
        "kept": len(plan.kept),
        "applied": apply,
        "deleted": 0,
    }
    if plan.refusal is not None:
        session.talk.error(plan.refusal)
        session.note(Exit.NEGATIVE, f"nothing may be deleted in this run: {plan.refusal.message}")
    for name in plan.delete:
        _delete(session, store, name, apply=apply)


app = command(VIEWS)(gc)


def _delete(session: Session, store: Store, name: str, *, apply: bool) -> None:
    failed: list[tuple[str, CkptError]] = apply_gc(store, GcPlan((name,))) if apply else []
    error = failed[0][1] if failed else None
    if error is not None:
        session.talk.error(error)
        session.note(code_of_damage(error), error.message)
    done = apply and error is None
    session.summary["deleted"] += done
    session.item("delete", name=name, deleted=done, error=None if error is None else error.message)
