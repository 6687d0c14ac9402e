"""``ledger``: capture ledgers, one rollout's calls as a tree, and what is wrong with them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import typer

from ckptfmt.errors import CkptError, MissingError, RefusedError, TornError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger import (
    Call,
    LedgerReader,
    Rollout,
    RolloutCalls,
    find_rollout,
    list_rollouts,
    rollout_calls,
    verify_directory,
    verify_rollout,
)
from ckptfmt.rules import Finding
from inspector.call_tree import Node, indented, nodes
from inspector.exit_codes import Exit
from inspector.failures import location_members
from inspector.findings import Tally, advice_lines, finding_lines, finding_members, trouble_of
from inspector.options import command
from inspector.output.base import Column, Item, Table, Views
from inspector.places import check_directory
from inspector.quantities import count, number_of, size
from inspector.session import Session

__all__ = ["VIEWS", "app", "ledger"]

_Find: TypeAlias = Callable[[Callable[[str], None]], Iterator[Finding]]
"""Gives findings, and tells the key of each rollout that is done."""

_FLAGS: Final = ("frozen", "retired", "incomplete")
_UNRECORDED: Final = {
    "begun": "begun, and neither recorded nor cancelled",
    "lost": "marked as lost",
}


def _state(item: Item) -> str:
    flags = [name for name in _FLAGS if item[name]]
    if item["problem"] is not None:
        flags.append("DAMAGED")
    return ", ".join(flags) or "open"


def _finding_lines(item: Item) -> Iterator[str]:
    location = item["location"]
    named = "file" if "file" in location else "key"
    return finding_lines(item, location.get(named, ""), leave_out=named)


def _summary_lines(item: Item) -> Iterator[str]:
    if item.get("truncated"):
        yield f"(the last {item['shown']:,} of {number_of(item['total'], 'call')})"
    elif "total" in item:
        yield f"{number_of(item['total'], 'call')}"
    elif "frozen" in item:
        states = ", ".join(f"{item[name]:,} {name}" for name in (*_FLAGS, "damaged"))
        yield f"{number_of(item['rollouts'], 'rollout')}: {states}"
    yield from advice_lines(item)


VIEWS: Final[Views] = {
    "rollout": Table(
        (
            Column("ROLLOUT", lambda item: item["key"]),
            Column("STATE", _state),
            Column("CALLS", lambda item: count(item["calls"]), right=True),
            Column("BYTES", lambda item: size(item["bytes"]), right=True),
            Column("CONTINUED BY", lambda item: item["continued_by"] or "-"),
        )
    ),
    "call": Table(
        (
            Column("CALL", lambda item: indented(item["call_id"], item["column"])),
            Column("PROMPT", lambda item: count(item["prompt_tokens"]), right=True),
            Column("GENERATED", lambda item: count(item["generated_tokens"]), right=True),
            Column("CUMULATIVE", lambda item: count(item["cumulative_tokens"]), right=True),
            Column("NOTE", lambda item: item["note"]),
        )
    ),
    "unrecorded": lambda item: [f"{item['call_id']}: {_UNRECORDED[item['reason']]}"],
    "lost": lambda item: [f"lost: {item['message']} [byte {item['location'].get('offset', '-')}]"],
    "finding": _finding_lines,
    "summary": _summary_lines,
}


def ledger(
    session: Session,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A capture directory.")],
    rollout: Annotated[
        str | None,
        typer.Argument(metavar="ROLLOUT", help="The calls of this rollout: its id, with -aN."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Everything that is wrong, in place of the list.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", min=0, help="The calls recorded last, so many; says if that cut."),
    ] = None,
) -> None:
    """List the rollouts of a capture directory, or show one rollout's calls as a tree.

    A writer may be at work meanwhile: nothing is locked or changed.
    Exit code 1: with --verify, there are errors; or there is no such rollout.
    """
    if tail is not None and (rollout is None or verify):
        raise RefusedError("--tail cuts the calls of one ROLLOUT; it needs one, and no --verify")
    check_directory(directory)
    reader = LedgerReader(directory)
    if rollout is None:
        total = _check_contents(reader, directory)
        if verify:
            _verify(session, partial(verify_directory, reader), total)
        else:
            _list(session, reader, total)
        return
    found = find_rollout(reader, rollout)
    session.summary["found"] = found is not None
    if found is None:
        session.note(Exit.NEGATIVE, _not_found(reader, rollout))
    elif verify:
        _verify(session, lambda _: verify_rollout(reader, rollout, found.continued_by), 1)
    else:
        _show(session, reader, found, tail)


app = command(VIEWS)(ledger)


def _check_contents(reader: LedgerReader, name: str) -> int:
    """The number of rollouts.

    Raises:
        MissingError: there are none, but other things.
    """
    contents = reader.contents()
    if not contents.rollouts and contents.strangers:
        raise MissingError(
            f"{name[:500]!a} holds no capture ledgers",
            advice="name the directory that the model server writes them to",
        )
    return len(contents.rollouts)


def _not_found(reader: LedgerReader, key: str) -> str:
    wanted = EpisodeId.from_capture_key(key).rollout_id
    others = [
        other
        for other in reader.contents().rollouts
        if EpisodeId.from_capture_key(other).rollout_id == wanted
    ]
    hint = f"; there is {', '.join(others[:10])}" if others else ""
    return f"no rollout {key}{hint}"


def _list(session: Session, reader: LedgerReader, total: int) -> None:
    states: Counter[str] = Counter(dict.fromkeys((*_FLAGS, "damaged"), 0))
    listed = read_bytes = 0
    try:
        with session.progress("list", total) as counter:
            for found in list_rollouts(reader):
                item = _rollout(found)
                session.item("rollout", **item)
                states.update(name for name in _FLAGS if item[name])
                if found.fault is not None:
                    states["damaged"] += 1
                    session.damage(found.fault.at(key=found.key))
                listed, read_bytes = listed + 1, read_bytes + found.size_bytes
                counter.update(listed, read_bytes)
    finally:
        session.summary |= {"rollouts": listed, **states}


def _rollout(found: Rollout) -> dict[str, Any]:
    episode = EpisodeId.from_capture_key(found.key)
    fault = found.fault
    return {
        "key": found.key,
        "rollout_id": episode.rollout_id,
        "attempt": episode.attempt,
        "files": sorted(found.kinds),
        "bytes": found.size_bytes,
        "calls": found.calls,
        "frozen": found.is_frozen,
        "retired": found.is_retired,
        "incomplete": found.is_incomplete,
        "continued_by": found.continued_by,
        "problem": None if fault is None else {"code": fault.code, "message": fault.message},
    }


def _show(session: Session, reader: LedgerReader, found: Rollout, tail: int | None) -> None:
    session.item("rollout", **_rollout(found))
    recorded = rollout_calls(reader, found.key)
    total = len(recorded.calls)
    shown = total if tail is None else min(tail, total)
    session.summary |= {"shown": shown, "total": total, "truncated": shown < total}
    for node in _chosen(recorded.calls, shown):
        session.item("call", **_call(node))
    _give_unrecorded(session, recorded)
    session.summary["lost"] = recorded.damaged
    for fault in recorded.faults:
        _give_lost(session, fault)
    if more := recorded.damaged - len(recorded.faults):
        session.talk.notice(f"{number_of(more, 'further damaged line')}")


def _chosen(calls: tuple[Call, ...], shown: int) -> Iterable[Node]:
    """The whole tree; or the nodes of the calls recorded last, in that order."""
    if shown == len(calls):
        return nodes(calls)
    by_call = {node.call.call_id: node for node in nodes(calls)}
    return [by_call[call.call_id] for call in calls[len(calls) - shown :]]


def _call(node: Node) -> dict[str, Any]:
    call = node.call
    notes = [call.note, "its parent is not recorded before it" if node.is_orphan else ""]
    return {
        "call_id": call.call_id,
        "parent_call_id": call.parent_call_id,
        "depth": node.depth,
        "column": node.column,
        "prompt_tokens": call.prompt_len,
        "generated_tokens": call.generated_len,
        "cumulative_tokens": call.cum_len,
        "note": ", ".join(filter(None, notes)),
        "file": call.file,
        "offset": call.offset,
    }


def _give_unrecorded(session: Session, recorded: RolloutCalls) -> None:
    session.summary["unrecorded"] = len(recorded.open_intents) + len(recorded.lost)
    for reason, call_ids in (("begun", recorded.open_intents), ("lost", recorded.lost)):
        for call_id in call_ids:
            session.item("unrecorded", call_id=call_id, reason=reason)


def _give_lost(session: Session, fault: CkptError) -> None:
    # A cut last line was never acknowledged: a writer is at work, or was killed.
    if isinstance(fault, TornError):
        session.talk.notice(str(fault))
    else:
        session.damage(fault)
    session.item(
        "lost",
        code=fault.code,
        message=fault.message,
        location=location_members(fault.location),
    )


def _verify(session: Session, find: _Find, rollouts: int) -> None:
    tally, finished = Tally(), False
    try:
        with session.progress("verify", rollouts) as counter:
            done = itertools.count(1)
            for finding in find(lambda _: counter.update(next(done), 0)):
                _give_finding(session, finding, tally)
        finished = True
    finally:
        words = tally.words() if tally.by_rule else "no findings"
        verdict = f"{number_of(rollouts, 'rollout')}: {words}"
        if not finished:
            verdict = f"not finished; {verdict}"
        if tally.errors:
            session.note(Exit.NEGATIVE, verdict)
        session.summary |= {
            "rollouts": rollouts,
            "finished": finished,
            **tally.summary(),
            "verdict": verdict,
        }


def _give_finding(session: Session, finding: Finding, tally: Tally) -> None:
    place = finding.location
    offset = "" if place.offset is None else f" at byte {place.offset:,}"
    tally.add(finding, (place.file or place.key or "") + offset)
    if (code := trouble_of(finding)) is not None:
        session.note(code, finding.message)
    session.item("finding", **finding_members(finding))
