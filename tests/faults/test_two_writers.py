"""Two processes commit one checkpoint at once; a slow commit is abandoned at every point."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from ckptfmt.commit import Committed, NotCommitted, Publication, PublicationState
from ckptfmt.errors import FencedError, StateError
from ckptfmt.layout import Folder
from ckptfmt.participant_writer import ParticipantWriter
from ckptfmt.store.base import BytesLike
from ckptfmt.store.local import LocalStore
from ckptfmt.store.memory import MemoryStore
from ckptfmt.verify import Level, verify
from tests.support.checkpoints import AGENT, agent_record, write_small

ROUNDS = 200


def _race(
    root: str, barrier: Barrier, states: list[object], results: multiprocessing.Queue[str]
) -> None:
    for number in range(ROUNDS):
        barrier.wait()
        outcome = write_small(LocalStore(root), f"ck-{number}", state=states[number % len(states)])
        match outcome:
            case Committed(stored=stored):
                results.put(f"{number} {stored.body.token}")
            case NotCommitted(reason=FencedError() as reason):
                results.put(f"{number} fenced {reason}")
            case _:
                results.put(f"{number} other {outcome}")


def race(root: Path, *states: list[object]) -> dict[int, list[str]]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    results = context.Queue()
    processes = [
        context.Process(target=_race, args=(str(root), barrier, mine, results)) for mine in states
    ]
    for process in processes:
        process.start()
    lines = [results.get(timeout=120) for _ in range(2 * ROUNDS)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    told: dict[int, list[str]] = {}
    for line in lines:
        number, _, rest = line.partition(" ")
        told.setdefault(int(number), []).append(rest)
    return told


def test_of_two_that_write_other_content_exactly_one_wins_and_the_loser_names_it(
    tmp_path: Path,
) -> None:
    """S15, S16."""
    for number, told in race(tmp_path, ["mine"], ["yours"]).items():
        lost = [text for text in told if text.startswith("fenced")]
        won = [text for text in told if not text.startswith(("fenced", "other"))]
        assert (len(won), len(lost)) == (1, 1), told
        folder = Folder(f"ck-{number}")
        assert list(verify(LocalStore(tmp_path), folder, level=Level.DEEP)) == []


def test_two_that_write_the_same_content_both_succeed(tmp_path: Path) -> None:
    for told in race(tmp_path, ["same"], ["same"]).values():
        first, second = told
        assert first == second


class Slow(MemoryStore):
    """Abandons a publication at the nth write, finish or create, before it takes place."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.left = nth
        self.publication = Publication()
        self.abandoned: bool | None = None

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.abandoned = self.publication.abandon()

    def create(self, name: str, data: BytesLike) -> None:
        self.tick()
        super().create(name, data)


@pytest.mark.parametrize("nth", range(1, 12))
def test_nothing_appears_after_an_abandonment_at_any_point(nth: int) -> None:
    store = Slow(nth)
    try:
        with ParticipantWriter(
            store, Folder("ck-1"), "ck-1", AGENT, publication=store.publication
        ) as writer:
            for number in range(8):
                store.tick()
                writer.add(agent_record(f"r{number}"))
                if number % 3 == 0:
                    writer.flush()
            store.tick()
            outcome = writer.finish()
    except StateError:
        outcome = None
    if store.abandoned is True:
        assert not isinstance(outcome, Committed)
        assert store.publication.state is PublicationState.ABANDONED
        assert [entry.name for entry in store.entries("ck-1/agent/a1")] == []
    elif store.abandoned is False:
        # It was claimed before: whoever abandoned it knows that it may appear.
        assert isinstance(outcome, Committed)
        assert store.publication.state is PublicationState.PUBLISHED
    else:
        assert isinstance(outcome, Committed)
