"""Judging the complete records of one rollout.  Bad data is a finding, never an error.

One line is held at a time, and what must be remembered of each call.  Digests of calls
whose prompt continues their parent's need the parent's tokens: these are held from the
call until its last such child, in a second reading that only such ledgers get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ckptfmt.errors import CkptError, CorruptError, Location, TornError, UnsupportedError
from ckptfmt.ledger.digest import TokenDigest
from ckptfmt.ledger.entry import TokenEntry, line_digest
from ckptfmt.ledger.held_findings import HeldFindings
from ckptfmt.ledger.names import Kind, file_name
from ckptfmt.ledger.reader import LedgerReader, Parsed, Sidecars
from ckptfmt.ledger.rules import found
from ckptfmt.rules import Finding

__all__ = ["check_tokens", "line_fault"]


def line_fault(parsed: Parsed, name: str) -> Finding | None:
    """The finding about a line as such; None where it is an object that ends in a newline."""
    place = Location(file=name, offset=parsed.line.offset)
    if isinstance(parsed.fault, TornError):
        return found("ledger-torn", parsed.fault, place)
    if parsed.fault is not None:
        return found("ledger-line", parsed.fault, place)
    if not parsed.line.is_ended:
        return found("ledger-newline", "the last line has no newline", place)
    return None


@dataclass(slots=True)
class _Call:
    """What is remembered of a call: digest of its line, tokens, place."""

    digest: str
    cum_len: int | None
    tokens_digest: str | None
    offset: int


@dataclass(slots=True)
class _Ledger:
    """What one reading of the lines gathers."""

    reader: LedgerReader
    key: str
    sidecars: Sidecars
    findings: HeldFindings
    calls: dict[str, _Call] = field(default_factory=dict)
    delta_children: Counter[str] = field(default_factory=Counter)
    indexed: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0

    @property
    def name(self) -> str:
        return file_name(self.key, Kind.TOKENS)


def check_tokens(reader: LedgerReader, key: str) -> Iterator[Finding]:
    """Everything that is wrong with a rollout's complete records."""
    ledger: _Ledger | None = None
    for sidecars in reader.settled(key):
        ledger = _Ledger(reader, key, sidecars, HeldFindings(file_name(key, Kind.TOKENS)))
        _read(ledger)
    assert ledger is not None
    yield from ledger.findings
    if ledger.delta_children:
        yield from _check_deltas(ledger)
    yield from _check_index(ledger)
    yield from _check_losses(ledger)


def _read(ledger: _Ledger) -> None:
    for parsed in ledger.reader.parsed(ledger.key, Kind.TOKENS):
        ledger.size_bytes = parsed.line.end
        if fault := line_fault(parsed, ledger.name):
            ledger.findings.add(fault)
        entry = _entry(ledger, parsed)
        if entry is not None and parsed.line.text is not None:
            _take(ledger, entry, parsed.line.text, parsed.line.offset)


def _entry(ledger: _Ledger, parsed: Parsed) -> TokenEntry | None:
    if parsed.members is None:
        return None
    place = Location(file=ledger.name, offset=parsed.line.offset)
    try:
        entry = TokenEntry.from_parsed(parsed.members)
    except UnsupportedError as error:
        ledger.findings.add(found("ledger-version", error, place))
    except CkptError as error:
        ledger.findings.add(found("ledger-entry", error, place))
    else:
        if entry.rollout_id == ledger.key:
            return entry
        fault = CorruptError(f"an entry of another rollout, {entry.rollout_id[:200]!a}")
        ledger.findings.add(found("ledger-owner", fault, place))
    return None


def _take(ledger: _Ledger, entry: TokenEntry, line: bytes, offset: int) -> None:
    place = Location(file=ledger.name, offset=offset, key=entry.model_call_id)
    digest = line_digest(line)
    state = ledger.sidecars.state
    if state is not None and offset < state.indexed_size:
        ledger.indexed.setdefault(entry.model_call_id, digest)
    known = ledger.calls.get(entry.model_call_id)
    if known is not None:
        rule = "ledger-repeated" if known.digest == digest else "ledger-conflict"
        text = f"recorded before at byte {known.offset:,}"
        ledger.findings.add(found(rule, text, place))
        return
    call = _Call(digest, entry.cum_len, entry.digest, offset)
    parent = None
    if entry.parent_call_id is not None:
        parent = ledger.calls.get(entry.parent_call_id)
        if parent is None:
            text = f"its parent {entry.parent_call_id[:200]!a} is not recorded before it"
            ledger.findings.add(found("ledger-parent", text, place))
        elif entry.prompt_is_delta:
            ledger.delta_children[entry.parent_call_id] += 1
    if not entry.prompt_is_delta:
        tokens = TokenDigest(entry.prompt_token_ids).extended(entry.generation_token_ids)
        for finding in _check_sums(entry, tokens, place):
            ledger.findings.add(finding)
        call.cum_len, call.tokens_digest = len(tokens), tokens.hexdigest()
        if parent is not None and not _begins_with(entry, parent):
            text = f"its prompt does not begin with the tokens of {entry.parent_call_id!a}"
            ledger.findings.add(found("ledger-gap", text, place))
    ledger.calls[entry.model_call_id] = call


def _begins_with(entry: TokenEntry, parent: _Call) -> bool:
    if parent.cum_len is None or parent.tokens_digest is None:
        return True
    if len(entry.prompt_token_ids) < parent.cum_len:
        return False
    prefix = TokenDigest(entry.prompt_token_ids[: parent.cum_len])
    return prefix.hexdigest() == parent.tokens_digest


def _check_sums(entry: TokenEntry, tokens: TokenDigest, place: Location) -> Iterator[Finding]:
    if entry.cum_len not in (None, len(tokens)):
        text = f"cum_len is {entry.cum_len}, but it has {len(tokens)} tokens"
        yield found("ledger-digest", CorruptError(text), place)
    elif entry.digest not in (None, tokens.hexdigest()):
        yield found("ledger-digest", CorruptError("its digest is another one"), place)


def _check_deltas(ledger: _Ledger) -> Iterator[Finding]:
    """Digests of calls whose prompt is only what follows their parent's tokens."""
    held: dict[str, TokenDigest] = {}
    waiting = ledger.delta_children.copy()
    for parsed in ledger.reader.parsed(ledger.key, Kind.TOKENS):
        members = parsed.members or {}
        call = ledger.calls.get(str(members.get("model_call_id")))
        if call is None or call.offset != parsed.line.offset:
            continue
        try:
            entry = TokenEntry.from_parsed(members)
        except CkptError:
            # The file was replaced meanwhile; another verification will tell.
            return
        before: TokenDigest | None = TokenDigest()
        if entry.prompt_is_delta and entry.parent_call_id is not None:
            before = held.get(entry.parent_call_id)
            waiting[entry.parent_call_id] -= 1
            if waiting[entry.parent_call_id] <= 0:
                held.pop(entry.parent_call_id, None)
        if before is None:
            continue
        tokens = before.extended(entry.prompt_token_ids).extended(entry.generation_token_ids)
        if entry.prompt_is_delta:
            place = Location(file=ledger.name, offset=call.offset, key=entry.model_call_id)
            yield from _check_sums(entry, tokens, place)
        if waiting[entry.model_call_id] > 0:
            held[entry.model_call_id] = tokens


def _check_index(ledger: _Ledger) -> Iterator[Finding]:
    state, fault = ledger.sidecars.state, ledger.sidecars.fault
    name = file_name(ledger.key, Kind.STATE)
    if state is None:
        if fault is not None:
            yield found("ledger-state", fault, Location(file=name))
        return
    if state.retired:
        return
    if (beyond := state.beyond(ledger.size_bytes)) is not None:
        yield found("ledger-state", beyond, Location(file=name))
        return
    for call_id in sorted(state.entry_digests.keys() | ledger.indexed.keys()):
        stored, actual = state.entry_digests.get(call_id), ledger.indexed.get(call_id)
        if stored != actual:
            text = f"it has the digest {stored}, the line {actual}"
            yield found("ledger-index", CorruptError(text), Location(file=name, key=call_id))


def _check_losses(ledger: _Ledger) -> Iterator[Finding]:
    sidecars, state = ledger.sidecars, ledger.sidecars.state
    if state is not None and state.retired:
        return
    if sidecars.is_marked or (state is not None and state.incomplete):
        named = ", ".join(sidecars.marked[:10]) or "no call is named"
        place = Location(file=file_name(ledger.key, Kind.INCOMPLETE))
        yield found("ledger-incomplete", f"marked as incomplete: {named}", place)
    refused = state.refused_call_ids if state is not None else frozenset()
    for call_id in sidecars.begun:
        if call_id not in ledger.calls and call_id not in refused:
            place = Location(file=file_name(ledger.key, Kind.INTENTS), key=call_id)
            yield found("ledger-intent", "begun, but neither recorded nor cancelled", place)
