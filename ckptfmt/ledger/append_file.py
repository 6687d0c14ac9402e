"""Append-only files that several processes share: what is there, and one line more.

Whoever calls holds the rollout's lock.  Between calls the file may have grown, shrunk or
been replaced by another process; :meth:`AppendFile.look` finds out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from ckptfmt.errors import CorruptError
from ckptfmt.ledger.entry import parse_object
from ckptfmt.ledger.folder import Folder, read_range
from ckptfmt.ledger.lines import Line, lines
from ckptfmt.store.os_calls import sync, write_all

__all__ = ["AppendFile", "LineFile"]

_CHUNK_BYTES: Final = 1 << 20


class AppendFile:
    """One file, which need not exist; a descriptor of it is held from its first use."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self._folder = folder
        self._fd: int | None = None
        self._inode: int | None = None
        self._was_looked_at = False
        self._name_is_durable = False

    def look(self) -> bool:
        """Find out the size; whether the file is the one that was looked at before."""
        status = self._folder.stat(self.name)
        inode = None if status is None else status.st_ino
        self.size_bytes = 0 if status is None else status.st_size
        is_same = inode == self._inode or not self._was_looked_at
        self._was_looked_at = True
        if inode != self._inode:
            self.close()
            self._inode = inode
        return is_same

    def read(self, size: int, offset: int) -> bytes:
        """As :func:`~ckptfmt.ledger.folder.read_range`."""
        return read_range(self._folder.calls, self._descriptor(), size, offset)

    def prefix(self, size_bytes: int) -> Iterator[bytes]:
        """The first bytes, in pieces."""
        for offset in range(0, size_bytes, _CHUNK_BYTES):
            yield self.read(min(_CHUNK_BYTES, size_bytes - offset), offset)

    def append(self, data: bytes, position: int) -> None:
        """Write durably at ``position``, cutting off what lies behind it.

        Where that fails the file is cut back to ``position``, as far as that is possible:
        what the kernel could not write must not be found and taken for durable later.
        """
        fd = self._descriptor()
        if self.size_bytes > position:
            self._folder.truncate(fd, position)
        try:
            write_all(self._folder.calls, fd, data)
            sync(self._folder.calls, fd)
            self._sync_name()
        except BaseException:
            with contextlib.suppress(OSError):
                self._folder.truncate(fd, position)
            raise
        self.size_bytes = position + len(data)

    def make_durable(self) -> None:
        """Sync what is there, whoever wrote it: its writer may have died before it could."""
        if self._inode is not None:
            sync(self._folder.calls, self._descriptor())
            self._sync_name()

    def close(self) -> None:
        """Close the descriptor; the next use opens the file again."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                self._folder.calls.close(self._fd)
        self._fd = self._inode = None
        self._name_is_durable = False

    def _descriptor(self) -> int:
        if self._fd is None:
            self._fd = self._folder.open_append(self.name)
            self._inode = self._folder.calls.fstat(self._fd).st_ino
        return self._fd

    def _sync_name(self) -> None:
        # Once for each file and process: the one that made it may have died before its sync.
        if not self._name_is_durable:
            self._folder.sync()
            self._name_is_durable = True


class LineFile:
    """An :class:`AppendFile` of JSON lines, of which only the tail is read anew.

    ``position`` is the end of the last line that counts.  A last line without a newline
    counts if it is whole, and is cut off by the next :meth:`append` if it is not.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.file = AppendFile(folder, name)
        self.position = 0
        self._lacks_newline: bool | None = False

    def look(self) -> bool:
        """Find out the size; False where what was read before is not there any more."""
        return self.file.look() and self.file.size_bytes >= self.position

    def rewind(self, position: int) -> None:
        """Go on reading from ``position``, the end of a line, with or without its newline."""
        self.position = position
        self._lacks_newline = None if position else False

    def fresh(self) -> Iterator[Line]:
        """The lines behind ``position``, which moves with them.

        Raises:
            CorruptError: a line is longer than the format permits.
        """
        if self.file.size_bytes == self.position:
            return
        for line in lines(self.file.read, self.position, self.file.size_bytes):
            if line.text is None:
                raise CorruptError(f"a line of {line.end - line.offset:,} bytes").at(
                    file=self.file.name, offset=line.offset
                )
            if not line.is_ended and not _is_whole(line.text):
                return
            if not line.is_blank:
                yield line
            self.position = line.end
            self._lacks_newline = not line.is_ended

    def append(self, line: bytes) -> None:
        """Write one line durably; ``line`` has no newline."""
        if self._lacks_newline is None:
            self._lacks_newline = self.file.read(1, self.position - 1) != b"\n"
        data = b"\n%b\n" % line if self._lacks_newline else b"%b\n" % line
        self.file.append(data, self.position)
        self.position = self.file.size_bytes
        self._lacks_newline = False


def _is_whole(text: bytes) -> bool:
    try:
        parse_object(text)
    except CorruptError:
        return False
    return True
