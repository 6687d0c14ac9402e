"""The ``Store`` protocol: what the format asks of the place where a checkpoint lies.

A store maps names (relative POSIX paths, see :mod:`ckptfmt.store.names`) to
immutable objects.  It is synchronous, and it is used from several threads at
once.  There is no overwrite, no rename and no copy: the commit needs none, and
object stores do each of them differently.

Two kinds of object differ in how they come to be:

* a *data object* has a name that carries a fresh token, so nobody else writes
  it.  It is streamed, and counts from :meth:`DataWriter.finish` on;
* a *small object* (a manifest) has a name that others may want as well.  It is
  created whole or not at all, and only if the name is free: :meth:`Store.create`.

Nothing here takes a deadline.  A store whose requests can hang is told its
limits when it is built, and raises :class:`~ckptfmt.errors.DeadlineError`, or
:class:`~ckptfmt.errors.CommitUnknownError` where the request may still land.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from ckptfmt.errors import CorruptError, TornError

__all__ = [
    "BytesLike",
    "Capabilities",
    "DataWriter",
    "Entry",
    "Source",
    "SourceReads",
    "Store",
    "check_range",
]

BytesLike: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can really do, found out by trying where it cannot be known.

    ``create_if_absent``: of several that create one name at once, one succeeds.
    ``atomic_publish``: a reader sees a small object whole or not at all, even if
    its writer dies.  ``durable``: what was acknowledged survives a loss of power.
    ``how`` says by which means, for people.
    """

    create_if_absent: bool
    atomic_publish: bool
    durable: bool
    how: str


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """An immediate child of a directory: its last segment, and what it is.

    ``name`` is as the store holds it.  Names of others are listed too, also those
    that :func:`~ckptfmt.store.names.split_name` refuses, which therefore cannot be
    opened or deleted here.  ``other``: a symbolic link, a pipe, a device.
    """

    name: str
    kind: Literal["file", "dir", "other"]


class Source(Protocol):
    """One object, open for reads of ranges from any thread; closed by its context manager.

    It is what :class:`ckptfmt.stream.source.RangeSource` asks for, and can be closed.
    """

    @property
    def name(self) -> str:
        """The object's name in its store."""

    @property
    def size_bytes(self) -> int:
        """The size when it was opened."""

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Exactly ``size_bytes`` bytes from ``offset``.

        Raises:
            TornError: the object ends before; nothing of the size asked for was allocated.
            StorageError: the store failed.
            StateError: the source is closed.
        """

    def close(self) -> None:
        """Release what reading needs; may be repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class DataWriter(Protocol):
    """A data object that is being written; usable as the sink of a stream writer.

    As a context manager it aborts at the end of the block unless :meth:`finish`
    was called: an exception never publishes, and neither does a forgotten call.
    """

    @property
    def size_bytes(self) -> int:
        """How much was written so far."""

    def write(self, data: BytesLike) -> None:
        """Append ``data``, all of it.

        Raises:
            StorageError: it could not be written.  The object is gone, as after
                :meth:`abort`; the same data may be written under a new name.
            StateError: the object was finished or aborted before.
        """

    def flush(self) -> None:
        """Hand what was written to the store, without a promise of durability.

        On a local disk another process can read it from here on, even if this one
        dies.  An object store shows nothing before :meth:`finish`.
        """

    def finish(self) -> None:
        """Make the object complete and durable.  Only now may a manifest name it.

        Raises:
            StorageError: as for :meth:`write`.
            StateError: the object was finished or aborted before.
        """

    def abort(self) -> None:
        """Remove the object.  Never raises; does nothing after :meth:`finish` or itself.

        Where removing fails the object stays behind as a leftover that no manifest names.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Store(Protocol):
    """A place for checkpoints.

    Every method checks its name before any I/O (:class:`NameRefusedError`), and
    raises only classes of :mod:`ckptfmt.errors`, with the cause kept and
    ``location.file`` set:

    * :class:`MissingError`: the object, or the whole store, is not there (reads, delete);
    * :class:`CorruptError`: something that no writer of this format puts there stands
      in the way: a symbolic link (none is followed), a pipe, a file where a directory
      belongs;
    * :class:`TornError`: an object ends before the range that was asked for;
    * :class:`StorageFailedError`, :class:`TransientError`, :class:`DeadlineError`: the
      store failed; the same call may be repeated once the cause is gone.
    """

    @property
    def label(self) -> str:
        """The store's name in messages; never holds a secret."""

    def capabilities(self) -> Capabilities:
        """What the store can do.  The first call may have to try it out, by writing.

        Raises:
            StorageError: it could not be tried.
        """

    def open_source(self, name: str) -> Source:
        """Open the object for reads of ranges; its size is that at this moment."""

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """Exactly ``size_bytes`` bytes from ``offset``.

        Raises:
            TornError: the object ends before.
        """

    def read_small(self, name: str, max_bytes: int) -> bytes:
        """The whole object, which is read afresh: no cache of this store decides.

        Raises:
            CorruptError: it has more than ``max_bytes`` bytes; none of them was read.
        """

    def size(self, name: str) -> int:
        """The object's size in bytes."""

    def entries(self, prefix: str = "") -> list[Entry]:
        """The immediate children of a directory, sorted by name.

        A directory that does not exist has none, since object stores know no
        directories.

        Raises:
            MissingError: the store itself (the root directory, the bucket) is not there.
        """

    def open_data(self, name: str) -> DataWriter:
        """Start a data object.  ``name`` must carry a token that nobody else has.

        The object may be visible under its name before it is finished (on a local
        disk it is, so that what a killed writer left can be salvaged), or not.

        Raises:
            ExistsError: the name exists; its content was not touched.
            CapabilityError: the store lacks what :meth:`create` needs.  Nothing was written.
        """

    def create(self, name: str, data: BytesLike) -> None:
        """Create a small object, if the name is free.

        A caller can tell four outcomes apart:

        * it returns: the object exists with this content, and durably;
        * :class:`ExistsError`: the name exists and was not made by this call; its
          content was not touched.  A store that repeats requests cannot always know,
          so read it back and look whose it is;
        * :class:`CommitUnknownError`: it may exist, now or later, or exist without
          being durable.  Nothing may be cleaned up.  Read it back; if it is there and
          yours, :meth:`sync` makes it durable;
        * any other :class:`CkptError`: this call created nothing and nothing will
          appear later.  Leftovers never stop a repeat of the same call.

        An exception that is not ours (``KeyboardInterrupt``, say) is in doubt as well.

        Raises:
            ExistsError, CommitUnknownError: see above.
            CapabilityError: the store cannot create only.  Nothing was written.
        """

    def sync(self, name: str) -> None:
        """Make an object that was found here durable, whoever created it.

        To be called before anything relies on an object that :meth:`create` left in
        doubt, or that a writer created who may have died since.
        """

    def delete(self, name: str) -> None:
        """Remove one object, durably: later deletions never survive without this one.

        After a :class:`StorageError` it may be gone or not; repeat.

        Raises:
            MissingError: it was not there, and that is durable too.
        """


class SourceReads(ABC):
    """The reads that follow from :meth:`open_source`, for stores that have no shorter way."""

    @abstractmethod
    def open_source(self, name: str) -> Source:
        """As :meth:`Store.open_source`."""

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """As :meth:`Store.read_range`."""
        with self.open_source(name) as source:
            return source.read_at(offset, size_bytes)

    def read_small(self, name: str, max_bytes: int) -> bytes:
        """As :meth:`Store.read_small`."""
        with self.open_source(name) as source:
            if source.size_bytes > max_bytes:
                raise CorruptError(
                    f"the object has {source.size_bytes:,} bytes, at most {max_bytes:,} are "
                    "permitted for one of its kind"
                ).at(file=name)
            return source.read_at(0, source.size_bytes)


def check_range(name: str, stored_bytes: int, offset: int, size_bytes: int) -> None:
    """Return if an object of ``stored_bytes`` holds the range.

    Raises:
        TornError: it ends before.
        ValueError: the range is negative.
    """
    if offset < 0 or size_bytes < 0:
        raise ValueError(f"offset {offset} or size {size_bytes} is negative")
    if offset + size_bytes > stored_bytes:
        raise TornError(
            f"the object has {stored_bytes:,} bytes, and {size_bytes:,} from {offset:,} were "
            "to be read"
        ).at(file=name, offset=offset)
