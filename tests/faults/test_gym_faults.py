"""Every call to the operating system of a save in NeMo Gym's layout fails, or the process dies."""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptfmt.commit import Publication, PublicationState
from ckptfmt.errors import CommitUnknownError, DataError, StorageError
from ckptfmt.layout import Folder
from ckptfmt.layouts import open_checkpoint
from ckptfmt.nemo_gym.writer import write_gym_participant
from ckptfmt.store.local import LocalStore
from ckptfmt.testing.os_faults import DEATH, FaultyOs, die, failing, forked
from tests.support.checkpoints import AGENT, agent_record

GYM = Folder("gym")


def save(store: LocalStore, publication: Publication | None = None) -> bytes:
    """Save one record."""
    records = [agent_record("r1")]
    return write_gym_participant(store, GYM, "ck-1", AGENT, records, publication=publication)


def is_published(root: Path) -> bool:
    """Whether an untroubled process reads the whole checkpoint; otherwise it reads nothing."""
    try:
        found = open_checkpoint(LocalStore(root)).participant(AGENT).load()
    except DataError:
        return False
    assert found == [agent_record("r1")]
    return True


def roots(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A new folder for each call that may be struck."""
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        root.mkdir()
        yield nth, root
        shutil.rmtree(root)


def test_death_at_every_call_leaves_all_or_nothing_and_the_next_save_works(tmp_path: Path) -> None:
    seen = set()
    for nth, root in roots(tmp_path):
        status = forked(lambda: save(LocalStore(root, calls=FaultyOs(nth, die))))  # noqa: B023
        seen.add(is_published(root))
        save(LocalStore(root))
        assert is_published(root)
        if status == 0:
            break
        assert status == DEATH
    assert seen == {True, False}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_at_every_call_has_the_right_outcome(tmp_path: Path, number: int) -> None:
    for nth, root in roots(tmp_path):
        calls, publication = FaultyOs(nth, failing(number)), Publication()
        try:
            save(LocalStore(root, calls=calls), publication)
            assert is_published(root)
        except CommitUnknownError:
            assert publication.state is not PublicationState.PUBLISHED
        except StorageError:
            assert publication.state in (PublicationState.OPEN, PublicationState.NOT_PUBLISHED)
            assert not is_published(root)
        save(LocalStore(root))
        assert is_published(root)
        if not calls.struck:
            return
