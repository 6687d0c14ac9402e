"""The store in memory: for tests, and as the smallest statement of what a store does."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from ckptfmt.errors import CorruptError, ExistsError, MissingError, StateError
from ckptfmt.store.base import BytesLike, Capabilities, Entry, SourceReads, check_range
from ckptfmt.store.names import split_name, split_prefix

__all__ = ["MemoryDataWriter", "MemorySource", "MemoryStore"]


class MemoryStore(SourceReads):
    """A :class:`~ckptfmt.store.base.Store` that lasts as long as the process.

    Like an object store it shows a data object only once it is finished, and has a
    directory as long as something lies in it.
    """

    def __init__(self, label: str = "memory") -> None:
        self._label = label
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def label(self) -> str:
        """The name it was given."""
        return self._label

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._label!r})"

    def capabilities(self) -> Capabilities:
        """Everything but durability."""
        return Capabilities(
            create_if_absent=True, atomic_publish=True, durable=False, how="a dict under a lock"
        )

    def open_source(self, name: str) -> MemorySource:
        """As :meth:`ckptfmt.store.base.Store.open_source`."""
        return MemorySource(name, self._content(name))

    def size(self, name: str) -> int:
        """As :meth:`ckptfmt.store.base.Store.size`."""
        return len(self._content(name))

    def entries(self, prefix: str = "") -> list[Entry]:
        """As :meth:`ckptfmt.store.base.Store.entries`."""
        segments = split_prefix(prefix)
        with self._lock:
            self._refuse_blocked((*segments, "any"), prefix)
            paths = [tuple(name.split("/")) for name in self._objects]
        depth = len(segments)
        found = {
            Entry(path[depth], "file" if len(path) == depth + 1 else "dir")
            for path in paths
            if path[:depth] == segments
        }
        return sorted(found)

    def open_data(self, name: str) -> MemoryDataWriter:
        """As :meth:`ckptfmt.store.base.Store.open_data`."""
        split_name(name)
        with self._lock:
            self._refuse_taken(name)
        return MemoryDataWriter(self, name)

    def create(self, name: str, data: BytesLike) -> None:
        """As :meth:`ckptfmt.store.base.Store.create`."""
        split_name(name)
        content = bytes(data)
        with self._lock:
            self._refuse_taken(name)
            self._objects[name] = content

    def sync(self, name: str) -> None:
        """As :meth:`ckptfmt.store.base.Store.sync`, as far as memory goes."""
        self._content(name)

    def delete(self, name: str) -> None:
        """As :meth:`ckptfmt.store.base.Store.delete`."""
        self._content(name)
        with self._lock:
            if self._objects.pop(name, None) is None:
                raise MissingError("another was first to delete it").at(file=name)

    def _content(self, name: str) -> bytes:
        segments = split_name(name)
        with self._lock:
            content = self._objects.get(name)
            if content is not None:
                return content
            self._refuse_blocked(segments, name)
            if self._is_directory(name):
                raise CorruptError("a directory stands where a file belongs").at(file=name)
        raise MissingError(f"there is no such object in {self._label}").at(file=name)

    def _refuse_taken(self, name: str) -> None:
        if name in self._objects or self._is_directory(name):
            raise ExistsError("the name exists already; its content was not touched").at(file=name)
        self._refuse_blocked(tuple(name.split("/")), name)

    def _refuse_blocked(self, segments: tuple[str, ...], name: str) -> None:
        """A file is never a directory as well: not every store can hold both."""
        for depth in range(1, len(segments)):
            if "/".join(segments[:depth]) in self._objects:
                raise CorruptError("a file stands where a directory belongs").at(file=name)

    def _is_directory(self, name: str) -> bool:
        return any(other.startswith(name + "/") for other in self._objects)


class MemorySource:
    """The content that an object had when it was opened."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name = name
        self.size_bytes = len(content)
        self._content: bytes | None = content

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """As :meth:`ckptfmt.store.base.Source.read_at`."""
        check_range(self.name, self.size_bytes, offset, size_bytes)
        if self._content is None:
            raise StateError("a read after close").at(file=self.name)
        return self._content[offset : offset + size_bytes]

    def close(self) -> None:
        """Let go of the content."""
        self._content = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class MemoryDataWriter:
    """A data object whose pieces are kept until it is finished."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._name = name
        self._content: bytearray | None = bytearray()
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """How much was written so far."""
        return self._size_bytes

    def write(self, data: BytesLike) -> None:
        """As :meth:`ckptfmt.store.base.DataWriter.write`."""
        content = self._unfinished()
        content += data
        self._size_bytes = len(content)

    def flush(self) -> None:
        """Nothing: the object shows when it is finished."""
        self._unfinished()

    def finish(self) -> None:
        """As :meth:`ckptfmt.store.base.DataWriter.finish`."""
        content = self._unfinished()
        self._content = None
        self._store.create(self._name, content)

    def abort(self) -> None:
        """As :meth:`ckptfmt.store.base.DataWriter.abort`."""
        self._content = None

    def _unfinished(self) -> bytearray:
        if self._content is None:
            raise StateError("the object was finished or aborted before").at(file=self._name)
        return self._content

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()
