"""What the records of a participant must agree in with its indexes and its manifest.

A data object can be intact byte by byte and still say one thing in its records and
another in its index, or in the manifest that names it.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from ckptfmt.errors import CkptError, CorruptError
from ckptfmt.identity import EpisodeId
from ckptfmt.record import Record, episode_of
from ckptfmt.schema import TypedRecord
from ckptfmt.stream import Entry, LongLine, RecordStream, StoredLine
from ckptfmt.stream.tally import sum_of

__all__ = ["Agreement"]


class Agreement:
    """Takes in all records of a participant, and tells what they do not agree in.

    Constant in size, however many records there are, but for their episodes, which the
    manifest lists as well.  ``scope`` are the episodes whose records the caller reads,
    None for all; of the others nothing is looked at but the episode.
    """

    def __init__(self, scope: Collection[EpisodeId] | None = None) -> None:
        self._scope = None if scope is None else {item.capture_key for item in scope}
        self._content = hashlib.sha256()
        self._episodes: set[str] = set()
        self._keys = 0

    def lines(self, stream: RecordStream, *, digests: bool = True) -> Iterator[StoredLine]:
        """The lines of the next data object, whose stored digests are taken in.

        Raises:
            DataError, StorageError: as :meth:`RecordStream.lines`.
        """
        stored_digests = stream.digests()
        for stored in stream.lines(digests=digests):
            self._take(len(stored.line), stored_digests)
            yield stored
        _check_exhausted(stored_digests)

    def lines_or_long(self, stream: RecordStream) -> Iterator[StoredLine | LongLine]:
        """As :meth:`lines`; what is large is not held.

        Raises:
            DataError, StorageError: as :meth:`RecordStream.lines_or_long`.
        """
        stored_digests = stream.digests()
        for stored in stream.lines_or_long():
            self._take(stored.size_bytes, stored_digests)
            yield stored
        _check_exhausted(stored_digests)

    def _take(self, size_bytes: int, digests: Iterator[bytes]) -> None:
        digest = next(digests, None)
        if digest is None:
            raise _unequal()
        self._content.update(size_bytes.to_bytes(8, "little") + digest)

    def concerns(self, line: bytes) -> bool:
        """Whether the record is in scope.

        Raises:
            CorruptError: its episode cannot be read.
        """
        if self._scope is None:
            return True
        episode = episode_of(line).capture_key
        self._episodes.add(episode)
        return episode in self._scope

    def add(self, ordinal: int, record: TypedRecord | Record) -> None:
        """Take in a record that is in scope; ``ordinal`` is the one within its object."""
        self._episodes.add(record.episode_id.capture_key)
        self._keys += sum_of([(ordinal, record.key)])

    def check_index(self, stream: RecordStream) -> None:
        """To be called after the last record of each object.

        Raises:
            CorruptError: the index leads to other records than those that have its keys.
        """
        entries = filter(self._is_in, stream.entries())
        listed = sum_of((entry.ordinal, entry.key) for entry in entries)
        found, self._keys = self._keys, 0
        if listed != found:
            raise CorruptError("the index does not list the keys that the records have")

    def _is_in(self, entry: Entry) -> bool:
        return self._scope is None or entry.key.partition("/")[0] in self._scope

    def faults(
        self, content_digest: str, episode_ids: list[str], keys: Sequence[Iterator[str]]
    ) -> Iterator[tuple[str, CkptError]]:
        """What only all objects together show: the rule that is broken, and how.

        The first two are what the manifest states; ``keys`` are those of each data object,
        ascending.

        Raises:
            DataError, StorageError: while iterating: an index cannot be read.
        """
        if self._content.hexdigest() != content_digest:
            yield "digest", CorruptError("the records are not those of the content_digest")
        if sorted(self._episodes) != episode_ids:
            odd = sorted(self._episodes.symmetric_difference(episode_ids))[:3]
            yield (
                "episodes",
                CorruptError(f"episode_ids do not agree with the records: {', '.join(odd)}"),
            )
        if len(keys) > 1:  # Within one object a stream refuses them itself.
            for key, following in pairwise(heapq.merge(*keys)):
                if key == following:
                    yield "key", CorruptError("two records have the same key").at(key=key)


def _check_exhausted(digests: Iterator[bytes]) -> None:
    if next(digests, None) is not None:
        raise _unequal()


def _unequal() -> CorruptError:
    return CorruptError("the index has not one digest for each record")
