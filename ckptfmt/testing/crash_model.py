"""A disk that may forget whatever was not synced.

:class:`ForgetfulDisk` carries every call of the local store out, and keeps beside it
what a loss of power could leave behind at that moment:

* of a file, the content of its last sync, or nothing if it never was synced;
* of a directory, the names of its last sync, or those that it has now: the disk may
  have written them meanwhile, on its own account and before the files they name.

After every call it hands both states to a judge.  A rule that holds in both holds
whatever the disk chose to write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

from ckptfmt.store.os_calls import OsCalls

__all__ = ["Files", "ForgetfulDisk"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

Files: TypeAlias = dict[str, bytes]


class ForgetfulDisk(OsCalls):
    """Models the tree of directories and files below ``root``, which starts out synced.

    ``judge`` gets the name of the call that has just been made and the files (path
    below ``root`` -> content) that a crash after it leaves, once for each state.
    """

    def __init__(self, root: Path, judge: Callable[[str, Files], None]) -> None:
        self._root = root
        self._judge = judge
        # All by inode number; what the model holds open keeps numbers from being used again.
        self._written: dict[int, bytes] = {}
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: list[int] = []
        for folder, _, files in os.walk(root):
            self._names[Path(folder).stat().st_ino] = _names(folder)
            for path in (Path(folder, name) for name in files):
                self._content[path.stat().st_ino] = path.read_bytes()

    def call(
        self, name: str, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Carry the call out, note what it made durable, and have both states judged."""
        result = function(*args, **kwargs)
        self._note(name, result, args, kwargs)
        for names_now in (False, True):
            self._judge(name, self.after_crash(names_now=names_now))
        return result

    def release(self) -> None:
        """Close what the model holds open."""
        while self._held:
            os.close(self._held.pop())

    def after_crash(self, *, names_now: bool) -> Files:
        """The files that a crash at this moment leaves."""
        return dict(self._files(self._root.stat().st_ino, "", names_now))

    def _files(self, directory: int, prefix: str, names_now: bool) -> Iterator[tuple[str, bytes]]:
        names = _names(self._root / prefix) if names_now else self._names[directory]
        for name, inode in names.items():
            if inode in self._names:
                yield from self._files(inode, f"{prefix}{name}/", names_now)
            else:
                yield prefix + name, self._content.get(inode, b"")

    def _note(
        self, name: str, result: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        match name, args:
            case "open", _ if isinstance(result, int):
                self._held.append(os.dup(result))
            case "write", (int(fd), memoryview() as data) if isinstance(result, int):
                inode = os.fstat(fd).st_ino
                self._written[inode] = self._written.get(inode, b"") + bytes(data[:result])
            case "mkdir", (str(made), *_) if isinstance(dir_fd := kwargs["dir_fd"], int):
                self._held.append(os.open(made, os.O_RDONLY | os.O_CLOEXEC, dir_fd=dir_fd))
                self._names[os.fstat(self._held[-1]).st_ino] = {}
            case "fsync", (int(fd),):
                inode = os.fstat(fd).st_ino
                if inode in self._names:
                    self._names[inode] = _names(fd)
                else:
                    self._content[inode] = self._written.get(inode, b"")


def _names(directory: int | str | Path) -> dict[str, int]:
    with os.scandir(directory) as found:
        return {entry.name: entry.inode() for entry in found}
