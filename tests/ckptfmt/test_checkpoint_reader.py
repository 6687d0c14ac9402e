"""Opening a checkpoint: what is missing, and what only cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.errors import StorageFailedError
from ckptfmt.layout import Folder
from ckptfmt.layouts import open_checkpoint
from ckptfmt.recover import recover_checkpoint
from ckptfmt.store import Entry, LocalStore
from ckptfmt.verify import verify
from tests.support.checkpoints import write_tiny


class Unlistable(LocalStore):
    """A store whose folders below one name cannot be listed."""

    def entries(self, prefix: str = "") -> list[Entry]:
        if prefix.startswith("ck-1"):
            raise StorageFailedError("Permission denied (EACCES)").at(file=prefix)
        return super().entries(prefix)


def test_what_cannot_be_listed_is_not_taken_for_missing(tmp_path: Path) -> None:
    """F53: neither by a reader, nor by salvage, nor by verification, which tells it."""
    write_tiny(LocalStore(tmp_path), "ck-1").require()
    (tmp_path / "ck-1/checkpoint.json").unlink()
    store = Unlistable(tmp_path)
    with pytest.raises(StorageFailedError):
        open_checkpoint(store, Folder("ck-1"))
    with pytest.raises(StorageFailedError):
        recover_checkpoint(store, Folder("ck-1"), LocalStore(tmp_path / "new"))
    assert {finding.rule.rule_id for finding in verify(store, Folder("ck-1"))} == {"unreadable"}
