"""What a command is pointed at: a run, a checkpoint, the latest of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptfmt.checkpoint import is_remote
from ckptfmt.errors import (
    CapabilityError,
    CkptError,
    ExistsError,
    MissingError,
    StorageFailedError,
)
from ckptfmt.layout import CHECKPOINT_NAME, Folder
from ckptfmt.layouts import participants_in
from ckptfmt.run import latest
from ckptfmt.store.base import Store
from ckptfmt.store.local import LocalStore

__all__ = [
    "Place",
    "check_directory",
    "check_new",
    "is_checkpoint",
    "open_checkpoint",
    "open_directory",
    "open_run",
]

_LATEST: Final = "@latest"


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint's folder in a store, and how the caller named it.

    ``notices`` tell what was passed over on the way to the latest.
    """

    store: Store
    folder: Folder
    name: str
    notices: tuple[str, ...] = ()


def open_directory(name: str) -> Store:
    """The store in a local directory that is there and can be listed.

    Raises:
        MissingError, StorageFailedError, CapabilityError: as :func:`check_directory`.
    """
    check_directory(name)
    return LocalStore(name)


def open_run(name: str) -> Store:
    """The store in a directory of checkpoints; an empty one will be.

    Raises:
        MissingError: it is a checkpoint, or holds other things only.
        StorageFailedError, CapabilityError: as :func:`check_directory`.
    """
    store = open_directory(name)
    if is_checkpoint(store):
        raise MissingError(
            f"{name[:500]!a} is a checkpoint, not a run", advice="name the directory that holds it"
        )
    if store.entries() and not _holds_checkpoints(store):
        raise MissingError(f"{name[:500]!a} holds no checkpoints")
    return store


def check_directory(name: str) -> None:
    """Make sure of a local directory that is there and can be listed.

    Raises:
        MissingError: no such path, or no directory.
        StorageFailedError: no permission.
        CapabilityError: the path is of a remote store.
    """
    if is_remote(name):
        raise CapabilityError(
            f"{name[:200]!a} is in a remote store, which this release cannot read",
            advice="copy it to a local directory",
        )
    try:
        with os.scandir(name):
            pass
    except (FileNotFoundError, ValueError) as error:
        raise MissingError(f"there is no such path: {name[:500]!a}") from error
    except NotADirectoryError as error:
        raise MissingError(
            f"{name[:500]!a} is not a directory", advice="name the checkpoint's directory"
        ) from error
    except PermissionError as error:
        raise StorageFailedError(f"no permission to read {name[:500]!a}") from error
    except OSError as error:
        raise StorageFailedError(f"cannot read {name[:500]!a}: {error.strerror}") from error


def check_new(output: Path) -> None:
    """Make sure that nothing is there yet.

    Raises:
        ExistsError: something is.
    """
    # A dangling link exists as well: what it names is somebody else's decision.
    if output.exists() or output.is_symlink():
        raise ExistsError(
            f"{str(output)[:500]!a} exists already", advice="name a directory that does not exist"
        )


def is_checkpoint(store: Store, folder: Folder = Folder()) -> bool:
    """Whether something of a checkpoint lies there, published or not."""
    files = [entry.name for entry in store.entries(folder.prefix) if entry.kind == "file"]
    return CHECKPOINT_NAME in files or bool(participants_in(store, folder))


def open_checkpoint(name: str) -> Place:
    """The checkpoint that ``name`` says: its directory, or ``RUN@latest``.

    Raises:
        MissingError: there is nothing of a checkpoint.
        AmbiguousLatestError: two could be the latest.
        StorageError: as :func:`open_directory`.
    """
    if name.endswith(_LATEST) and not Path(name).exists():
        run = name.removesuffix(_LATEST)
        store = open_directory(run or ".")
        found = latest(store)
        passed = tuple(
            f"passed over {entry.folder.prefix}, which is {entry.state}" for entry in found.skipped
        )
        return Place(store, found.entry.folder, name, passed + found.notices)
    store = open_directory(name)
    if is_checkpoint(store):
        return Place(store, Folder(), name)
    if _holds_checkpoints(store):
        raise MissingError(
            f"{name[:500]!a} is a run, not a checkpoint",
            advice="name one of its checkpoints, or the run with @latest appended",
        )
    raise MissingError(
        f"{name[:500]!a} is not a checkpoint: it has no {CHECKPOINT_NAME} and no participants"
    )


def _holds_checkpoints(store: Store) -> bool:
    for entry in store.entries():
        try:
            if entry.kind == "dir" and is_checkpoint(store, Folder(entry.name)):
                return True
        except CkptError:
            continue
    return False
