"""Publishing a manifest: create-only, three outcomes, and closing a name for good.

Everything before the manifest is invisible; the manifest is one small object, created
whole or not at all, and only if its name is free.  What cannot be told from the store's
answer is read back: a writer knows its own manifest by the token in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NoReturn, TypeVar

from ckptfmt.errors import (
    AbortedError,
    CkptError,
    CommitUnknownError,
    DataError,
    ExistsError,
    FencedError,
    StateError,
    UnsupportedError,
    ValueRefusedError,
)
from ckptfmt.manifest import (
    CheckpointManifest,
    ParticipantManifest,
    Sealed,
    Tombstone,
    decode_manifest,
    encode_manifest,
)
from ckptfmt.store.base import Store
from ckptfmt.wire import MAX_MANIFEST_BYTES

__all__ = [
    "Committed",
    "NotCommitted",
    "Outcome",
    "Publication",
    "PublicationState",
    "Unknown",
    "bury",
    "publish",
    "same_aggregate",
    "same_participant",
]

_Body = TypeVar("_Body", ParticipantManifest, CheckpointManifest)


class PublicationState(StrEnum):
    """How far a commit got."""

    OPEN = "open"
    CLAIMED = "claimed"
    PUBLISHED = "published"
    UNKNOWN = "unknown"
    NOT_PUBLISHED = "not_published"
    ABANDONED = "abandoned"


_SETTLED: Final = {
    PublicationState.CLAIMED: {
        PublicationState.PUBLISHED,
        PublicationState.UNKNOWN,
        PublicationState.NOT_PUBLISHED,
    },
    PublicationState.UNKNOWN: {PublicationState.PUBLISHED, PublicationState.NOT_PUBLISHED},
}


class Publication:
    """The right to publish one manifest; claimed by its writer or abandoned by its owner.

    Both happen under one lock, so that after :meth:`abandon` returned true nothing will be
    published.  Once claimed, a publication cannot be called back: it is unknown until its
    writer has settled it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = PublicationState.OPEN

    @property
    def state(self) -> PublicationState:
        """How far it got."""
        with self._lock:
            return self._state

    def check_open(self) -> None:
        """To be called once a block while data is written.

        Raises:
            StateError: the owner has abandoned the commit.
        """
        if self.state is PublicationState.ABANDONED:
            raise StateError("the commit was abandoned; nothing of it is published")

    def claim(self, check: Callable[[], None] | None = None) -> None:
        """Take the right to publish.  ``check`` raises where fence, deadline or phase forbid.

        Raises:
            StateError: it was abandoned or claimed before.
        """
        with self._lock:
            if self._state is not PublicationState.OPEN:
                raise StateError(f"the commit is {self._state}; it cannot be published")
            if check is not None:
                check()
            self._state = PublicationState.CLAIMED

    def abandon(self) -> bool:
        """Give up; true if nothing was or will be published."""
        with self._lock:
            if self._state is PublicationState.OPEN:
                self._state = PublicationState.ABANDONED
            return self._state in (PublicationState.ABANDONED, PublicationState.NOT_PUBLISHED)

    def settle(self, state: PublicationState) -> None:
        """Note how a claimed publication ended.

        Raises:
            StateError: it is not claimed or unknown.
        """
        with self._lock:
            if state not in _SETTLED.get(self._state, ()):
                raise StateError(f"a commit that is {self._state} cannot become {state}")
            self._state = state


@dataclass(frozen=True, slots=True)
class Committed(Generic[_Body]):
    """The manifest is stored and durable; ``ours`` is false where an equal one was there."""

    stored: Sealed[_Body]
    ours: bool = True

    def require(self) -> Sealed[_Body]:
        """The stored manifest."""
        return self.stored


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """Nothing was published, and nothing of this attempt will be.

    Own data objects may be removed.  ``reason`` says why, and what to do.
    """

    reason: CkptError

    def require(self) -> NoReturn:
        """Raise the reason."""
        raise self.reason


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be told; clean up nothing.  Repeat the commit or close the name (:func:`bury`)."""

    reason: CommitUnknownError

    def require(self) -> NoReturn:
        """Raise the reason."""
        raise self.reason


Outcome = Committed[_Body] | NotCommitted | Unknown


def publish(
    store: Store,
    name: str,
    sealed: Sealed[_Body],
    same: Callable[[_Body, _Body], bool],
) -> Outcome[_Body]:
    """Create the manifest ``name``, or find out who did.

    ``same`` tells whether two manifests commit the same content; then the stored one is
    the outcome, whoever wrote it.  A manifest that could not be read again is not created.
    """
    try:
        _check_readable(sealed)
        store.create(name, sealed.data)
    except (ExistsError, CommitUnknownError) as error:
        return _read_back(store, name, sealed, same, error)
    except CkptError as error:
        return NotCommitted(error)
    return Committed(sealed)


def _check_readable(sealed: Sealed[_Body]) -> None:
    try:
        if decode_manifest(sealed.data, type(sealed.body)).body == sealed.body:
            return
        why = "it would say something else"
    except DataError as error:
        why = error.message
    raise ValueRefusedError(
        f"the manifest could not be read again: {why}",
        advice="give texts (provenance, run id, config digest) as str without lone surrogates",
    )


def _read_back(
    store: Store,
    name: str,
    sealed: Sealed[_Body],
    same: Callable[[_Body, _Body], bool],
    doubt: CkptError,
) -> Outcome[_Body]:
    try:
        stored = _stored(store, name, type(sealed.body))
    except UnsupportedError as error:
        return NotCommitted(_fenced(name, f"a manifest that this release cannot read: {error}"))
    except CkptError as error:
        return _unknown(name, doubt, error)
    if isinstance(stored.body, Tombstone):
        return NotCommitted(_aborted(name))
    winner: Sealed[_Body] = stored
    if winner.body.token == sealed.body.token:
        return Committed(winner)
    if same(winner.body, sealed.body):
        return Committed(winner, ours=False)
    return NotCommitted(
        _fenced(
            name,
            f"the commit with token {winner.body.token}, by {winner.body.provenance.host!a} "
            f"at {winner.body.provenance.created_at!a}",
        )
    )


def _stored(store: Store, name: str, expected: type[_Body]) -> Sealed[_Body] | Sealed[Tombstone]:
    stored = decode_manifest(store.read_small(name, MAX_MANIFEST_BYTES), expected)
    store.sync(name)
    return stored


def _fenced(name: str, winner: str) -> FencedError:
    return FencedError(
        f"other content was published here first: {winner}",
        advice="nothing of it was touched; use a new checkpoint id",
    ).at(file=name)


def _aborted(name: str) -> AbortedError:
    return AbortedError("this commit was given up for good", advice="use a new checkpoint id").at(
        file=name
    )


def _unknown(name: str, doubt: CkptError, error: CkptError) -> Unknown:
    unknown = CommitUnknownError(
        f"the commit is in doubt ({doubt.message}), and so is what stands there: {error}",
        advice="remove nothing; repeat the commit, or close the name by a tombstone",
    )
    unknown.__cause__ = doubt
    return Unknown(unknown.at(file=name))


def bury(store: Store, name: str, tombstone: Tombstone, expected: type[_Body]) -> Outcome[_Body]:
    """Close ``name`` for good, so that a commit whose outcome is unknown cannot appear later.

    ``NotCommitted`` with an :class:`AbortedError`: a tombstone stands.  ``Committed``: a
    manifest had won.  ``Unknown``: neither could be made sure of; repeat.
    """
    try:
        store.create(name, encode_manifest(tombstone).data)
    except (ExistsError, CommitUnknownError) as doubt:
        try:
            stored = _stored(store, name, expected)
        except CkptError as error:
            return _unknown(name, doubt, error)
        if not isinstance(stored.body, Tombstone):
            return Committed(stored, ours=False)
    except CkptError as error:
        return _unknown(name, error, error)
    return NotCommitted(_aborted(name))


def same_participant(one: ParticipantManifest, other: ParticipantManifest) -> bool:
    """Whether two manifests commit the same records, at whatever compression or time."""
    return _participant_content(one) == _participant_content(other)


def _participant_content(body: ParticipantManifest) -> tuple[object, ...]:
    return (
        body.major,
        body.checkpoint_id,
        body.kind,
        body.instance,
        body.schema,
        body.schema_version,
        body.record_count,
        body.content_digest,
        body.episode_ids,
        bytes(body.role),
        body.ledger_pins,
    )


def same_aggregate(one: CheckpointManifest, other: CheckpointManifest) -> bool:
    """Whether two aggregates publish the same participants, scope and metadata."""
    return _aggregate_content(one) == _aggregate_content(other)


def _aggregate_content(body: CheckpointManifest) -> tuple[object, ...]:
    return (
        body.major,
        body.checkpoint_id,
        body.run_id,
        body.config_digest,
        sorted((item.kind, item.instance, item.manifest_sha256) for item in body.participants),
        body.scope,
        bytes(body.recovered),
        bytes(body.user_metadata),
    )
