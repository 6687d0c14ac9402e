"""Publication: claim or abandon, three outcomes, tombstones."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ckptfmt.commit import (
    Committed,
    NotCommitted,
    Publication,
    PublicationState,
    Unknown,
    bury,
    publish,
    same_participant,
)
from ckptfmt.errors import (
    AbortedError,
    CommitUnknownError,
    DeadlineError,
    FencedError,
    StateError,
    StorageFailedError,
)
from ckptfmt.manifest import ParticipantManifest, Sealed, Tombstone, encode_manifest
from ckptfmt.store.base import BytesLike
from ckptfmt.store.memory import MemoryStore
from tests.ckptfmt.test_manifest import participant

NAME = "ck-1/agent/a/manifest.json"


def sealed(token: str, **changes: Any) -> Sealed[ParticipantManifest]:
    return encode_manifest(participant(token=token * 24, objects=[], record_count=0, **changes))


class Doubtful(MemoryStore):
    """A store whose create fails with ``error``, before or after it took place."""

    def __init__(self, error: Exception, *, takes_place: bool) -> None:
        super().__init__()
        self._error = error
        self._takes_place = takes_place

    def create(self, name: str, data: BytesLike) -> None:
        if self._takes_place:
            super().create(name, data)
        raise self._error


def test_a_free_name_is_committed() -> None:
    store = MemoryStore()
    outcome = publish(store, NAME, sealed("a"), same_participant)
    assert isinstance(outcome, Committed)
    assert outcome.ours
    assert store.read_small(NAME, 10_000) == sealed("a").data


def test_the_same_content_again_is_committed_with_the_stored_manifest() -> None:
    """S14."""
    store = MemoryStore()
    first = publish(store, NAME, sealed("a"), same_participant).require()
    second = publish(store, NAME, sealed("b"), same_participant)
    assert isinstance(second, Committed)
    assert not second.ours
    assert second.stored.data == first.data


@pytest.mark.parametrize(
    "change",
    [
        {"content_digest": "b" * 64},
        {"schema_version": 2},
        {"checkpoint_id": "ck-2"},
        {"episode_ids": []},
    ],
)
def test_other_content_is_fenced_and_the_winner_is_named(change: dict[str, Any]) -> None:
    """S15, S16: the published bytes do not change."""
    store = MemoryStore()
    publish(store, NAME, sealed("a"), same_participant).require()
    outcome = publish(store, NAME, sealed("b", **change), same_participant)
    assert isinstance(outcome, NotCommitted)
    assert isinstance(outcome.reason, FencedError)
    assert "a" * 24 in str(outcome.reason)
    assert store.read_small(NAME, 10_000) == sealed("a").data


def test_a_lost_reply_is_recognized_by_the_token() -> None:
    """S18."""
    store = Doubtful(CommitUnknownError("lost reply"), takes_place=True)
    outcome = publish(store, NAME, sealed("a"), same_participant)
    assert isinstance(outcome, Committed)
    assert outcome.ours


def test_a_doubt_that_cannot_be_settled_is_unknown() -> None:
    """S13, S19."""
    store = Doubtful(CommitUnknownError("lost reply"), takes_place=False)
    outcome = publish(store, NAME, sealed("a"), same_participant)
    assert isinstance(outcome, Unknown)
    with pytest.raises(CommitUnknownError):
        outcome.require()


def test_something_unreadable_at_the_name_is_unknown() -> None:
    store = MemoryStore()
    store.create(NAME, b"garbage")
    outcome = publish(store, NAME, sealed("a"), same_participant)
    assert isinstance(outcome, Unknown)


def test_a_plain_failure_is_not_committed() -> None:
    store = Doubtful(StorageFailedError("no space"), takes_place=False)
    outcome = publish(store, NAME, sealed("a"), same_participant)
    assert isinstance(outcome, NotCommitted)
    with pytest.raises(StorageFailedError):
        outcome.require()


STONE = Tombstone(checkpoint_id="ck-1", kind="agent", instance="a", token="f" * 24)


def test_a_tombstone_closes_the_name_for_good() -> None:
    store = MemoryStore()
    buried = bury(store, NAME, STONE, ParticipantManifest)
    assert isinstance(buried, NotCommitted)
    assert isinstance(buried.reason, AbortedError)
    late = publish(store, NAME, sealed("a"), same_participant)
    assert isinstance(late, NotCommitted)
    assert isinstance(late.reason, AbortedError)
    assert isinstance(bury(store, NAME, STONE, ParticipantManifest), NotCommitted)


def test_a_tombstone_that_comes_too_late_tells_who_won() -> None:
    store = MemoryStore()
    publish(store, NAME, sealed("a"), same_participant).require()
    outcome = bury(store, NAME, STONE, ParticipantManifest)
    assert isinstance(outcome, Committed)
    assert outcome.stored.body.token == "a" * 24


def test_a_tombstone_whose_creation_failed_leaves_the_doubt() -> None:
    store = Doubtful(StorageFailedError("no space"), takes_place=False)
    assert isinstance(bury(store, NAME, STONE, ParticipantManifest), Unknown)


def test_nothing_is_claimed_after_abandonment() -> None:
    publication = Publication()
    assert publication.abandon()
    with pytest.raises(StateError):
        publication.check_open()
    with pytest.raises(StateError):
        publication.claim()
    assert publication.state is PublicationState.ABANDONED


def test_a_claimed_publication_cannot_be_called_back() -> None:
    publication = Publication()
    publication.claim()
    assert not publication.abandon()
    publication.settle(PublicationState.UNKNOWN)
    assert not publication.abandon()
    publication.settle(PublicationState.NOT_PUBLISHED)
    assert publication.abandon()


def test_a_refused_claim_leaves_it_open() -> None:
    publication = Publication()

    def refuse() -> None:
        raise DeadlineError("too late")

    with pytest.raises(DeadlineError):
        publication.claim(refuse)
    assert publication.state is PublicationState.OPEN


@pytest.mark.parametrize("state", list(PublicationState))
def test_only_a_claimed_publication_is_settled(state: PublicationState) -> None:
    with pytest.raises(StateError):
        Publication().settle(state)


def test_of_a_claim_and_an_abandonment_at_once_exactly_one_wins() -> None:
    for _ in range(200):
        publication = Publication()
        barrier = threading.Barrier(2)
        won: list[str] = []

        def claim(
            publication: Publication = publication,
            barrier: threading.Barrier = barrier,
            won: list[str] = won,
        ) -> None:
            barrier.wait()
            try:
                publication.claim()
            except StateError:
                return
            won.append("claim")

        thread = threading.Thread(target=claim)
        thread.start()
        barrier.wait()
        if publication.abandon():
            won.append("abandon")
        thread.join()
        assert len(won) == 1
