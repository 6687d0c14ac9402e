"""Where a tool may put a checkpoint that it makes of another one."""

from __future__ import annotations

from ckptfmt.errors import ExistsError, MissingError, RefusedError
from ckptfmt.layout import Folder
from ckptfmt.store.base import Store
from ckptfmt.store.local import LocalStore

__all__ = ["check_target"]


def check_target(source: Store, folder: Folder, target: Store) -> None:
    """Refuse a place that holds something, or that lies within the source.

    Raises:
        ExistsError: the target is not empty, or is a local directory that exists.
        RefusedError: the target lies within the source.
        StorageError: the target cannot be listed.
    """
    _check_apart(source, folder, target)
    try:
        taken = bool(target.entries()) or isinstance(target, LocalStore)
    except MissingError:
        return
    # An object store has no empty directories; a local one may be somebody's mount point.
    if taken:
        raise ExistsError(
            f"{target.label} exists already", advice="name a directory that does not exist"
        )


def _check_apart(source: Store, folder: Folder, target: Store) -> None:
    if isinstance(source, LocalStore) and isinstance(target, LocalStore):
        checkpoint = (source.root / folder.prefix).resolve()
        if target.root.resolve().is_relative_to(checkpoint):
            raise RefusedError(
                f"{target.label} is inside the checkpoint, which is never written",
                advice="name a directory outside of it",
            )
