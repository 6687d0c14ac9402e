"""Judging capture directories: everything that is wrong, rollout by rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckptfmt.errors import CkptError, CorruptError, Location
from ckptfmt.ledger.names import Kind, file_name, is_temporary
from ckptfmt.ledger.reader import Contents, LedgerReader
from ckptfmt.ledger.row_checks import check_rows
from ckptfmt.ledger.rules import found
from ckptfmt.ledger.token_checks import check_tokens
from ckptfmt.rules import Finding

__all__ = ["verify_directory", "verify_rollout"]

_COMPLETE = frozenset({Kind.TOKENS, Kind.STATE, Kind.INTENTS, Kind.INCOMPLETE})
_KINDS = {"file": "another file", "dir": "a directory", "other": "a link or a special file"}
_RECORDS = frozenset({Kind.TOKENS, Kind.INTENTS, Kind.INCOMPLETE})


def verify_directory(
    reader: LedgerReader, verified: Callable[[str], None] = lambda _: None
) -> Iterator[Finding]:
    """Everything that is wrong with a capture directory, in the order of its rollouts.

    Memory holds the names of the directory and one rollout.  ``verified`` is told the key
    of each rollout that is done.

    Raises:
        MissingError: there is no such directory.
        StorageError: it cannot be listed.
    """
    contents = reader.contents()
    continued = contents.continued()
    for key in contents.rollouts:
        yield from verify_rollout(reader, key, continued.get(key))
        verified(key)
    yield from _others(contents)


def verify_rollout(
    reader: LedgerReader, key: str, continued_by: str | None = None
) -> Iterator[Finding]:
    """Everything that is wrong with one rollout; ``continued_by`` is a later attempt of it."""
    try:
        kinds = reader.kinds(key)
        retired = Kind.FENCE in kinds
        if Kind.LINEAGE in kinds and not retired:
            yield from check_rows(reader, key)
        frozen = False
        if kinds & _COMPLETE:
            state = reader.sidecars(key).state
            is_fenced = state is not None and state.retired
            frozen = state is not None and state.frozen
            if not is_fenced:
                yield from check_tokens(reader, key)
            retired = retired or is_fenced
        # Looked at again: a retire may have been under way.
        yield from _rests(key, reader.kinds(key), retired)
    except CkptError as error:
        is_damage = isinstance(error, CorruptError)
        yield found("ledger-line" if is_damage else "ledger-unreadable", error, Location(key=key))
        return
    if continued_by is not None and not (retired or frozen):
        text = f"{continued_by} continues it, and it is neither frozen nor retired"
        yield found("ledger-continued", text, Location(key=key))


def _rests(key: str, kinds: frozenset[Kind], retired: bool) -> Iterator[Finding]:
    if retired:
        families = _RECORDS if Kind.STATE in kinds else frozenset()
        fenced = families | ({Kind.LINEAGE} if Kind.FENCE in kinds else frozenset())
        for kind in sorted(kinds & fenced):
            text = "records of a retired rollout"
            yield found("ledger-retired-rest", text, Location(file=file_name(key, kind), key=key))
    if kinds == {Kind.LOCK}:
        yield found(
            "ledger-leftover", "a lock without a ledger", Location(file=file_name(key, Kind.LOCK))
        )


def _others(contents: Contents) -> Iterator[Finding]:
    strangers = frozenset(contents.strangers)
    for entry in contents.others:
        if entry in strangers:
            text = f"no file of a rollout, but {_KINDS[entry.kind]}"
            yield found("ledger-stranger", text, Location(file=entry.name))
        elif is_temporary(entry.name):
            text = "left by a write that was cut off"
            yield found("ledger-leftover", text, Location(file=entry.name))
