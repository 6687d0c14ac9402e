"""The façade: what a place may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptfmt.checkpoint import is_remote, list_checkpoints, open_checkpoint, store_at
from ckptfmt.errors import CapabilityError
from ckptfmt.store import LocalStore, MemoryStore


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket", "https://host/x", "file:///x"])
def test_a_url_is_no_directory_of_that_name(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be created where the process happens to stand, and looked for elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert is_remote(url)
    for use in (store_at, open_checkpoint, list_checkpoints):
        with pytest.raises(CapabilityError, match="remote"):
            use(url)  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["run", "/a/b", "C://x", "a:b", "./s3://x"])
def test_any_other_text_is_a_path(path: str) -> None:
    assert not is_remote(path)
    assert isinstance(store_at(path), LocalStore)


def test_a_store_is_its_own_place() -> None:
    store = MemoryStore()
    assert store_at(store) is store
