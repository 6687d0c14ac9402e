"""The contract of a model server's hooks passes ours, and finds what is wrong with bad ones."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ckptfmt.errors import RetiredError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.staging_ledger import StagingLedger
from participant.hooks import Export, Scope
from participant.roles.ledger_cut import LedgerCut
from participant.roles.model import ModelHooks
from participant.testing.model_contract import ModelContract
from tests.support.ledgers import row


class Model(ModelHooks):
    """Hooks with a directory of their own."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.ledger = StagingLedger(self.folder.name)
        self.numbers = itertools.count(1)
        super().__init__(self.ledger)


class Driver(ModelContract[Model]):
    """How the contract drives hooks over a ledger."""

    made: list[Model]
    kind: type[Model] = Model

    @pytest.fixture(autouse=True)
    def _folders(self) -> Iterator[None]:
        self.made = []
        yield
        self.clear()

    def clear(self) -> None:
        """Remove every directory."""
        for model in self.made:
            model.ledger.close()
            model.folder.cleanup()

    def make(self) -> Model:
        """Hooks over an empty directory."""
        self.made.append(self.kind())
        return self.made[-1]

    def put(self, hooks: Model, episode: EpisodeId, value: int) -> None:
        """One call more."""
        number = next(hooks.numbers)
        key = episode.capture_key
        unique = f"{key}/{number}/{value}"
        hooks.ledger.record(key, row(number, staging_key=unique, weight_version=value))

    def look(self, hooks: Model, episode: EpisodeId) -> object:
        """Call ids and versions."""
        try:
            rows = hooks.ledger.export_rows(episode.capture_key)
        except RetiredError:
            return None
        return [(r["model_call_id"], r["weight_version"]) for r in rows] or None


class TestModelHooks(Driver):
    """Passes."""


class NullScope(Model):
    """Lets a commit without a scope through."""

    needs_scope = False


class Forgetful(Model):
    """Does not retire what it continues, and deletes what it frees."""

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """The import alone."""
        rows = {e.capture_key: () for e in episodes}
        rows |= {r.episode_id.continuation.capture_key: r.rows.value() for r in records}
        self.ledger.import_rows_many(rows)

    async def free(self, episode: EpisodeId) -> None:
        """Without a fence."""
        self.ledger.delete([episode.capture_key])


class Fencing(Model):
    """Retires what it should delete."""

    async def release(self, episodes: frozenset[EpisodeId]) -> None:
        """With a fence."""
        self.ledger.retire([episode.capture_key for episode in episodes])


class Barren(Model):
    """Does not give episodes without a record a ledger."""

    async def install(self, records: Sequence[Any], episodes: frozenset[EpisodeId]) -> None:
        """Retires everything instead."""
        self.ledger.retire([e.capture_key for e in episodes])


class Restaging(Model):
    """Says that rows were staged under the key that they have now."""

    async def export(self, scope: Scope) -> Export:
        """With another capture key."""
        rows = {e: self.ledger.export_rows(e.capture_key) for e in scope.episodes or ()}
        renamed = {e: [{**r, "capture_key": e.capture_key} for r in own] for e, own in rows.items()}
        return Export(LedgerCut(renamed, {}).records({}))


class Everything(Model):
    """Writes a record for whoever is named."""

    async def export(self, scope: Scope) -> Export:
        """One for an empty ledger too."""
        records = (await super().export(scope)).records
        if records or not scope.episodes:
            return Export(records)
        other = Model()
        with other.folder, other.ledger:
            (episode,) = scope.episodes
            other.ledger.record(episode.capture_key, row())
            return await ModelHooks(other.ledger).export(scope)


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (NullScope, "test_without_a_scope_everything_is_exported"),
        (Forgetful, "test_a_continued_attempt_takes_no_calls_any_more"),
        (Forgetful, "test_freeing_covers_earlier_attempts_and_no_look_alike"),
        (Fencing, "test_releasing_frees_exactly_what_it_names"),
        (Barren, "test_an_episode_without_calls_has_no_record"),
        (Barren, "test_what_was_exported_is_what_is_installed_under_the_next_attempt"),
        (Restaging, "test_rows_say_under_which_key_they_were_staged"),
        (Everything, "test_an_episode_without_calls_has_no_record"),
    ],
)
def test_broken_hooks_are_found(kind: type[Model], test: str) -> None:
    driver = Driver()
    driver.made, driver.kind = [], kind
    try:
        with pytest.raises(AssertionError):
            getattr(driver, test)()
    finally:
        driver.clear()
