"""Reading a capture directory without changing anything in it: no byte, time, lock or index.

Nothing is locked, so a writer may be at work meanwhile.  What grows only (lines) is read
up to the size it had when it was opened; the state is read before the lines it indexes,
and both again where the state was replaced meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ckptfmt.errors import CkptError, CorruptError, MissingError, SizeError, TornError
from ckptfmt.identity import EpisodeId
from ckptfmt.ledger.entry import parse_object
from ckptfmt.ledger.folder import capture_directory, open_regular, read_range
from ckptfmt.ledger.intents import listed_ids, open_intents
from ckptfmt.ledger.limits import MAX_STATE_BYTES
from ckptfmt.ledger.lines import Line, lines
from ckptfmt.ledger.names import (
    Kind,
    check_key,
    file_name,
    is_stripe,
    is_temporary,
    parse_name,
)
from ckptfmt.ledger.state import LedgerState
from ckptfmt.store.base import Entry
from ckptfmt.store.os_calls import OsCalls
from ckptfmt.store.os_errors import mapped

__all__ = ["Contents", "LedgerReader", "Parsed", "Sidecars"]

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Contents:
    """What a directory holds: the files of each rollout, by capture key, and the others.

    Keys are in the order of rollout and attempt.
    """

    rollouts: dict[str, frozenset[Kind]]
    others: tuple[Entry, ...]

    @property
    def strangers(self) -> tuple[Entry, ...]:
        """What no writer of ledgers leaves."""
        return tuple(
            entry
            for entry in self.others
            if entry.kind != "file" or not (is_stripe(entry.name) or is_temporary(entry.name))
        )

    def continued(self) -> dict[str, str]:
        """Each attempt that has a later one here, and the next of these."""
        episodes = map(EpisodeId.from_capture_key, self.rollouts)
        return {
            earlier.capture_key: later.capture_key
            for earlier, later in itertools.pairwise(episodes)
            if earlier.rollout_id == later.rollout_id
        }


@dataclass(frozen=True, slots=True)
class Parsed:
    """A line and the JSON object that it is; ``fault`` says why it is none.

    A :class:`~ckptfmt.errors.TornError` is a last line that was cut; it ends the file.
    """

    line: Line
    members: dict[str, Any] | None
    fault: CkptError | None = None


@dataclass(frozen=True, slots=True)
class Sidecars:
    """What the small files beside the lines of complete records say.

    ``state`` is None where the file is damaged, and ``fault`` says how; ``marked`` and
    ``begun`` are the ids of lost calls and of calls that were begun and not cancelled.
    """

    state: LedgerState | None
    fault: CkptError | None
    is_marked: bool
    marked: tuple[str, ...]
    begun: tuple[str, ...]


class LedgerReader:
    """The capture directory ``root``, read only.

    All methods raise ``MissingError`` where there is no such directory or file, and
    ``StorageError`` where the file system fails.
    """

    def __init__(self, root: str | os.PathLike[str], *, calls: OsCalls | None = None) -> None:
        self._root = str(capture_directory(root))
        self._calls = calls or OsCalls()

    def contents(self) -> Contents:
        """List the directory once."""
        with self._mapped("list", "."), self._directory() as dir_fd:
            entries = self._calls.scandir(dir_fd)
        files: defaultdict[str, set[Kind]] = defaultdict(set)
        others: list[Entry] = []
        for entry in entries:
            parsed = parse_name(entry.name) if entry.kind == "file" else None
            if parsed is None:
                others.append(entry)
            else:
                files[parsed[0]].add(parsed[1])
        return Contents(
            {key: frozenset(files[key]) for key in sorted(files, key=EpisodeId.from_capture_key)},
            tuple(sorted(others)),
        )

    def kinds(self, key: str) -> frozenset[Kind]:
        """Which files a rollout has."""
        check_key(key)
        with self._mapped("look at", key), self._directory() as dir_fd:
            return frozenset(
                kind for kind in Kind if self._size(dir_fd, file_name(key, kind)) is not None
            )

    def sizes(self, key: str, kinds: frozenset[Kind]) -> dict[Kind, int]:
        """The sizes of a rollout's files, in bytes; those that are gone meanwhile are left out."""
        with self._mapped("look at", key), self._directory() as dir_fd:
            sizes = {kind: self._size(dir_fd, file_name(key, kind)) for kind in kinds}
        return {kind: size for kind, size in sizes.items() if size is not None}

    def parsed(self, key: str, kind: Kind, start: int = 0) -> Generator[Parsed, None, None]:
        """The lines of a rollout's file from an offset on, damaged ones included.

        Blank lines are left out.  Nothing comes where there is no such file.
        """
        with contextlib.closing(self.lines(key, kind, start)) as found:
            for line in found:
                yield _parse(line)

    def lines(self, key: str, kind: Kind, start: int = 0) -> Generator[Line, None, None]:
        """The lines of a rollout's file from an offset on, as they are, without blank ones."""
        name = file_name(check_key(key), kind)
        with self._mapped("read", name), self._directory() as dir_fd:
            try:
                fd = open_regular(self._calls, name, _READ, dir_fd)
            except FileNotFoundError:
                return
            try:
                size_bytes = self._calls.fstat(fd).st_size
                read = partial(read_range, self._calls, fd)
                for line in lines(read, start, size_bytes):
                    if not line.is_blank:
                        yield line
            finally:
                with contextlib.suppress(OSError):
                    self._calls.close(fd)

    def sidecars(self, key: str) -> Sidecars:
        """Read the small files of a rollout's complete records."""
        state, fault = self._state(check_key(key))
        marked = self._small(key, Kind.INCOMPLETE)
        return Sidecars(
            state,
            fault,
            marked is not None,
            tuple(listed_ids(marked or b"")),
            tuple(open_intents(self._small(key, Kind.INTENTS) or b"")),
        )

    def settled(self, key: str) -> Iterator[Sidecars]:
        """Give the sidecars, and again as long as the state is replaced while they are used.

        For reading lines that must agree with the state; the last ones given are to be used.
        """
        for _ in range(_TRIES):
            before = self._state_identity(key)
            yield self.sidecars(key)
            if self._state_identity(key) == before:
                return

    def prefix(self, name: str, size_bytes: int) -> Generator[bytes, None, None]:
        """The first bytes of a file by its name, in pieces; fewer if it is shorter.

        Raises:
            MissingError: there is no such file.
        """
        with self._mapped("read", name), self._directory() as dir_fd:
            fd = open_regular(self._calls, name, _READ, dir_fd)
            try:
                offset = 0
                while offset < size_bytes:
                    piece = self._calls.pread(fd, min(1 << 20, size_bytes - offset), offset)
                    if not piece:
                        return
                    offset += len(piece)
                    yield piece
            finally:
                with contextlib.suppress(OSError):
                    self._calls.close(fd)

    def _state(self, key: str) -> tuple[LedgerState | None, CkptError | None]:
        name = file_name(key, Kind.STATE)
        try:
            data = self._small(key, Kind.STATE)
            return (LedgerState() if data is None else LedgerState.decode(data)), None
        except (CorruptError, SizeError) as error:
            return None, error.at(file=name)

    def _state_identity(self, key: str) -> tuple[int, int, int] | None:
        name = file_name(key, Kind.STATE)
        with self._mapped("look at", name), self._directory() as dir_fd:
            try:
                status = self._calls.stat(name, dir_fd=dir_fd)
            except FileNotFoundError:
                return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _small(self, key: str, kind: Kind) -> bytes | None:
        name = file_name(key, kind)
        try:
            with contextlib.closing(self.prefix(name, MAX_STATE_BYTES + 1)) as pieces:
                data = b"".join(pieces)
        except MissingError:
            return None
        if len(data) > MAX_STATE_BYTES:
            raise SizeError(f"more than {MAX_STATE_BYTES:,} bytes").at(file=name)
        return data

    def _size(self, dir_fd: int, name: str) -> int | None:
        try:
            status = self._calls.stat(name, dir_fd=dir_fd)
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _mapped(self, action: str, name: str) -> contextlib.AbstractContextManager[None]:
        return mapped(action, f"{self._root}/{name}", name, reading=True)

    @contextlib.contextmanager
    def _directory(self) -> Iterator[int]:
        fd = self._calls.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield fd
        finally:
            with contextlib.suppress(OSError):
                self._calls.close(fd)


def _parse(line: Line) -> Parsed:
    if line.text is None:
        return Parsed(line, None, CorruptError(f"a line of {line.end - line.offset:,} bytes"))
    try:
        return Parsed(line, parse_object(line.text))
    except CorruptError as error:
        if line.is_ended:
            return Parsed(line, None, error)
        size_bytes = line.end - line.offset
        return Parsed(line, None, TornError(f"the last line is cut after {size_bytes:,} bytes"))
