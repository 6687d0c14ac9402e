"""What a person asks of a capture directory: the list of rollouts, one rollout's calls.

Nothing here raises on bad data: a damaged ledger is listed with its fault, and the calls
around a damaged line are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ckptfmt.errors import CkptError, TornError
from ckptfmt.ledger.limits import MAX_FINDINGS
from ckptfmt.ledger.names import Kind, check_key, file_name
from ckptfmt.ledger.reader import LedgerReader
from ckptfmt.ledger.state import LedgerState

__all__ = [
    "Call",
    "Rollout",
    "RolloutCalls",
    "call_tree",
    "find_rollout",
    "list_rollouts",
    "rollout_calls",
]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One capture key in a list.

    ``size_bytes`` is the sum of its files, ``calls`` the number of its records (None where
    they cannot be counted), ``continued_by`` a later attempt of the same rollout, ``fault``
    what is damaged, as far as a list can tell.
    """

    key: str
    kinds: frozenset[Kind]
    size_bytes: int
    calls: int | None
    is_frozen: bool
    is_retired: bool
    is_incomplete: bool
    continued_by: str | None
    fault: CkptError | None


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call.  Lengths count tokens; None is what the record does not tell.

    ``prompt_len`` is without what a delta takes over from its parent.  ``note`` says why a
    call is no ordinary one: "failed: <reason>", "unresolved", "delta".
    """

    call_id: str
    parent_call_id: str | None
    file: str
    offset: int
    prompt_len: int | None
    generated_len: int | None
    cum_len: int | None
    note: str


@dataclass(frozen=True, slots=True)
class RolloutCalls:
    """A rollout's calls, in the order they were recorded, and those without a record.

    ``open_intents`` were begun and neither recorded nor cancelled; ``lost`` are marked so.
    ``faults`` are the damaged lines, at most ``MAX_FINDINGS`` of them; ``damaged`` is their
    number.
    """

    calls: tuple[Call, ...]
    open_intents: tuple[str, ...]
    lost: tuple[str, ...]
    faults: tuple[CkptError, ...]
    damaged: int


def list_rollouts(reader: LedgerReader) -> Iterator[Rollout]:
    """Every rollout of the directory, in the order of rollout and attempt.

    Only small files and what the index of a ledger lacks are read.

    Raises:
        MissingError: there is no such directory.
    """
    contents = reader.contents()
    continued = contents.continued()
    for key, kinds in contents.rollouts.items():
        yield _rollout(reader, key, kinds, continued.get(key))


def find_rollout(reader: LedgerReader, key: str) -> Rollout | None:
    """One rollout as the list has it; None if the directory holds nothing of it.

    Raises:
        NameRefusedError: the key is malformed.
        MissingError: there is no such directory.
    """
    check_key(key)
    contents = reader.contents()
    kinds = contents.rollouts.get(key)
    return None if kinds is None else _rollout(reader, key, kinds, contents.continued().get(key))


def _rollout(
    reader: LedgerReader, key: str, kinds: frozenset[Kind], continued_by: str | None
) -> Rollout:
    fault: CkptError | None = None
    calls: int | None = None
    frozen = incomplete = False
    retired = Kind.FENCE in kinds
    size_bytes = 0
    try:
        size_bytes = sum(reader.sizes(key, kinds).values())
        if kinds & {Kind.TOKENS, Kind.STATE, Kind.INTENTS, Kind.INCOMPLETE}:
            for sidecars in reader.settled(key):
                state, fault = sidecars.state, sidecars.fault
                incomplete = sidecars.is_marked
                if state is not None:
                    frozen, retired = state.frozen, Kind.FENCE in kinds or state.retired
                    incomplete = incomplete or state.incomplete
                    calls, fault = _indexed(reader, key, state)
        if Kind.LINEAGE in kinds:
            rows, damage = _counted(reader, key, Kind.LINEAGE, 0)
            calls, fault = rows + (calls or 0), fault or damage
    except CkptError as error:
        fault = fault or error
    return Rollout(key, kinds, size_bytes, calls, frozen, retired, incomplete, continued_by, fault)


def _indexed(reader: LedgerReader, key: str, state: LedgerState) -> tuple[int, CkptError | None]:
    """The records of an index and behind it, and what is wrong there."""
    behind, fault = _counted(reader, key, Kind.TOKENS, state.indexed_size)
    size_bytes = reader.sizes(key, frozenset({Kind.TOKENS})).get(Kind.TOKENS, 0)
    if fault is None and (fault := state.beyond(size_bytes)) is not None:
        fault.at(file=file_name(key, Kind.STATE))
    return len(state.entry_digests) + behind, fault


def _counted(
    reader: LedgerReader, key: str, kind: Kind, start: int
) -> tuple[int, CkptError | None]:
    """The records from an offset on, and what is wrong with the first line that is none."""
    records, fault = 0, None
    for parsed in reader.parsed(key, kind, start):
        if parsed.fault is None:
            records += 1
        elif fault is None and not isinstance(parsed.fault, TornError):
            fault = parsed.fault.at(file=file_name(key, kind), offset=parsed.line.offset)
    return records, fault


def rollout_calls(reader: LedgerReader, key: str) -> RolloutCalls:
    """The calls of one rollout, of both families of files; the first record of a call counts.

    Raises:
        NameRefusedError: the key is malformed.
        MissingError: there is no such directory.
    """
    calls: dict[str, Call] = {}
    faults: list[CkptError] = []
    damaged = 0
    for kind, read in ((Kind.TOKENS, _entry_call), (Kind.LINEAGE, _row_call)):
        file = f"{key}.{kind}"
        for parsed in reader.parsed(key, kind):
            if parsed.fault is not None or parsed.members is None:
                damaged += 1
                if parsed.fault is not None and len(faults) < MAX_FINDINGS:
                    faults.append(parsed.fault.at(file=file, offset=parsed.line.offset))
                continue
            call = read(parsed.members, file, parsed.line.offset)
            calls.setdefault(call.call_id, call)
    sidecars = reader.sidecars(key)
    if sidecars.fault is not None:
        damaged += 1
        faults.append(sidecars.fault)
    refused = sidecars.state.refused_call_ids if sidecars.state else frozenset()
    return RolloutCalls(
        tuple(calls.values()),
        tuple(name for name in sidecars.begun if name not in calls and name not in refused),
        sidecars.marked,
        tuple(faults),
        damaged,
    )


def call_tree(calls: Sequence[Call]) -> Iterator[tuple[int, Call]]:
    """The calls with their depth, each after its parent, siblings in the order of record.

    A call whose parent is not among those before it stands at depth 0, so that a cycle or
    a missing parent hides nothing.  Any depth goes: nothing here recurses.
    """
    children: defaultdict[str | None, list[Call]] = defaultdict(list)
    seen: set[str] = set()
    for call in calls:
        known = call.parent_call_id if call.parent_call_id in seen else None
        children[known].append(call)
        seen.add(call.call_id)
    waiting = [(0, call) for call in reversed(children[None])]
    while waiting:
        depth, call = waiting.pop()
        yield depth, call
        waiting.extend((depth + 1, child) for child in reversed(children.get(call.call_id, [])))


def _entry_call(members: dict[str, Any], file: str, offset: int) -> Call:
    notes = [
        str(members["parent_resolution"])
        if members.get("parent_resolution") == "unresolved"
        else "",
        "delta" if members.get("prompt_is_delta") is True else "",
    ]
    prompt, generated = (
        _length(members, "prompt_token_ids"),
        _length(members, "generation_token_ids"),
    )
    cum_len = _count(members, "cum_len")
    if cum_len is None and None not in (prompt, generated) and not notes[1]:
        cum_len = (prompt or 0) + (generated or 0)
    return Call(
        _text(members, "model_call_id") or f"at byte {offset}",
        _text(members, "parent_call_id"),
        file,
        offset,
        prompt,
        generated,
        cum_len,
        ", ".join(filter(None, notes)),
    )


def _row_call(members: dict[str, Any], file: str, offset: int) -> Call:
    reason = members.get("failure_reason")
    return Call(
        _text(members, "model_call_id") or f"at byte {offset}",
        _text(members, "parent_call_id"),
        file,
        offset,
        None,
        None,
        _count(members, "cum_len"),
        "" if reason is None else f"failed: {reason}",
    )


def _text(members: dict[str, Any], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) and value else None


def _count(members: dict[str, Any], name: str) -> int | None:
    value = members.get(name)
    return value if type(value) is int else None


def _length(members: dict[str, Any], name: str) -> int | None:
    value = members.get(name)
    return len(value) if isinstance(value, list) else None
