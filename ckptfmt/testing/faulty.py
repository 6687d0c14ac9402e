"""A store that fails on purpose: :class:`FaultyStore` wraps another and follows a plan.

A plan is a list of rules: which operation, which time, what goes wrong.  The same
plan gives the same run.  Every error that a plan causes says so, and names the seed
where the plan was drawn at random.

Operations are the methods of :class:`~ckptfmt.store.base.Store`, of its sources
(``read_at``) and of its data writers (``write``, ``flush``, ``finish``).
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NoReturn, Self, TypeAlias, TypeVar

from ckptfmt.errors import CkptError, CommitUnknownError, TransientError
from ckptfmt.store.base import (
    BytesLike,
    Capabilities,
    DataWriter,
    Entry,
    Source,
    Store,
)

__all__ = [
    "OPERATIONS",
    "Crash",
    "Delay",
    "Fail",
    "Fault",
    "FaultyStore",
    "LandLate",
    "LoseReply",
    "Plan",
    "Rule",
    "SimulatedCrash",
    "Tear",
]

_R = TypeVar("_R")

OPERATIONS: Final = (
    "capabilities",
    "create",
    "delete",
    "entries",
    "finish",
    "flush",
    "open_data",
    "open_source",
    "read_at",
    "read_range",
    "read_small",
    "size",
    "sync",
    "write",
)


class SimulatedCrash(BaseException):
    """The process is to be taken for dead.  No ``except Exception`` may survive it."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The operation takes this much longer."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Fail:
    """The operation is not carried out, and raises an error of this class."""

    error: type[CkptError] = TransientError


@dataclass(frozen=True, slots=True)
class LoseReply:
    """The operation is carried out, and then fails as if no reply had come."""


@dataclass(frozen=True, slots=True)
class LandLate:
    """The operation fails as if no reply had come, and is carried out later.

    Namely before the operation that comes ``after_operations`` later, or by
    :meth:`FaultyStore.land`.
    """

    after_operations: int


@dataclass(frozen=True, slots=True)
class Tear:
    """``create`` or ``write`` stores only the first bytes, and the process dies."""

    keep_bytes: int


@dataclass(frozen=True, slots=True)
class Crash:
    """The process dies, before the operation or after it."""

    after: bool = False


Fault: TypeAlias = Delay | Fail | LoseReply | LandLate | Tear | Crash

# Faults that mean something for these operations only; the others can strike any.
_ONLY_FOR: Final[dict[type[Fault], tuple[str, ...]]] = {
    LandLate: ("create", "delete"),
    Tear: ("create", "write"),
}


def _targets(fault: Fault) -> tuple[str, ...]:
    return _ONLY_FOR.get(type(fault), OPERATIONS)


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to an operation of this name when it is called for the ``nth`` time (from 1)."""

    operation: str
    nth: int
    fault: Fault

    def __post_init__(self) -> None:
        if self.operation not in _targets(self.fault) or self.nth < 1:
            raise ValueError(f"{self.fault} cannot strike {self.operation!r} number {self.nth}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The rules of one run, and the seed that they were drawn from, if any."""

    rules: tuple[Rule, ...] = ()
    seed: int | None = None

    @classmethod
    def drawn(cls, seed: int, faults: tuple[Fault, ...], *, rules: int, calls: int) -> Plan:
        """A plan of ``rules`` rules, each for one of the first ``calls`` calls of an operation."""
        draw = random.Random(seed)
        drawn = (draw.choice(faults) for _ in range(rules))
        return cls(
            tuple(Rule(draw.choice(_targets(f)), draw.randint(1, calls), f) for f in drawn), seed
        )

    def fault(self, operation: str, nth: int) -> Fault | None:
        """What the first rule for this call says."""
        for rule in self.rules:
            if (rule.operation, rule.nth) == (operation, nth):
                return rule.fault
        return None


class FaultyStore:
    """A store that does what ``inner`` does, except where its plan says otherwise.

    After a :class:`Crash` or :class:`Tear` every operation raises
    :class:`SimulatedCrash`, and nothing is cleaned up: what a new process would find
    is in ``inner``.
    """

    def __init__(
        self, inner: Store, plan: Plan, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._inner = inner
        self._plan = plan
        self._sleep = sleep
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._late: list[tuple[int, Callable[[], object]]] = []
        self.crashed = False

    @property
    def label(self) -> str:
        """The name of the store within."""
        return self._inner.label

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r}, {self._plan!r})"

    def capabilities(self) -> Capabilities:
        """As :meth:`ckptfmt.store.base.Store.capabilities`."""
        return self.carry_out("capabilities", self._inner.capabilities)

    def open_source(self, name: str) -> Source:
        """As :meth:`ckptfmt.store.base.Store.open_source`."""
        source = self.carry_out("open_source", lambda: self._inner.open_source(name))
        return _FaultySource(self, source)

    def read_range(self, name: str, offset: int, size_bytes: int) -> bytes:
        """As :meth:`ckptfmt.store.base.Store.read_range`."""
        return self.carry_out(
            "read_range", lambda: self._inner.read_range(name, offset, size_bytes)
        )

    def read_small(self, name: str, max_bytes: int) -> bytes:
        """As :meth:`ckptfmt.store.base.Store.read_small`."""
        return self.carry_out("read_small", lambda: self._inner.read_small(name, max_bytes))

    def size(self, name: str) -> int:
        """As :meth:`ckptfmt.store.base.Store.size`."""
        return self.carry_out("size", lambda: self._inner.size(name))

    def entries(self, prefix: str = "") -> list[Entry]:
        """As :meth:`ckptfmt.store.base.Store.entries`."""
        return self.carry_out("entries", lambda: self._inner.entries(prefix))

    def open_data(self, name: str) -> DataWriter:
        """As :meth:`ckptfmt.store.base.Store.open_data`."""
        writer = self.carry_out("open_data", lambda: self._inner.open_data(name))
        return _FaultyWriter(self, writer)

    def create(self, name: str, data: BytesLike) -> None:
        """As :meth:`ckptfmt.store.base.Store.create`."""
        content = bytes(data)
        self.carry_out(
            "create",
            lambda: self._inner.create(name, content),
            lambda keep_bytes: self._inner.create(name, content[:keep_bytes]),
        )

    def sync(self, name: str) -> None:
        """As :meth:`ckptfmt.store.base.Store.sync`."""
        self.carry_out("sync", lambda: self._inner.sync(name))

    def delete(self, name: str) -> None:
        """As :meth:`ckptfmt.store.base.Store.delete`."""
        self.carry_out("delete", lambda: self._inner.delete(name))

    def land(self) -> None:
        """Carry out now whatever is to land late."""
        with self._lock:
            late, self._late = self._late, []
        for _, act in late:
            _land(act)

    def carry_out(
        self,
        operation: str,
        act: Callable[[], _R],
        tear: Callable[[int], object] | None = None,
    ) -> _R:
        """Do ``act`` as the plan has it.  ``tear`` does it for the first bytes only."""
        self._expect_alive()
        fault = self._begin(operation)
        match fault:
            case Delay(delay_s):
                self._sleep(delay_s)
            case Fail(error):
                raise error(self._says(operation, "was not carried out"))
            case LoseReply():
                _land(act)
                raise self._without_reply(operation)
            case LandLate(after_operations):
                with self._lock:
                    self._late.append((self._counts.total() + after_operations, act))
                raise self._without_reply(operation)
            case Tear(keep_bytes):
                if tear is not None:
                    tear(keep_bytes)
                self._crash(operation)
            case Crash(after):
                if after:
                    _land(act)
                self._crash(operation)
        return act()

    def _expect_alive(self) -> None:
        if self.crashed:
            raise SimulatedCrash(f"the process is dead, as {self._plan} has it")

    def _begin(self, operation: str) -> Fault | None:
        """Count the operation, land what is due before it, and look up its fault."""
        with self._lock:
            self._counts[operation] += 1
            begun = self._counts.total()
            due = [act for when, act in self._late if when <= begun]
            self._late = [(when, act) for when, act in self._late if when > begun]
            fault = self._plan.fault(operation, self._counts[operation])
        for act in due:
            _land(act)
        return fault

    def _crash(self, operation: str) -> NoReturn:
        self.crashed = True
        raise SimulatedCrash(self._says(operation, "was the last one"))

    def _without_reply(self, operation: str) -> CkptError:
        error = CommitUnknownError if operation == "create" else TransientError
        return error(self._says(operation, "got no reply"))

    def _says(self, operation: str, what: str) -> str:
        seed = "" if self._plan.seed is None else f" of seed {self._plan.seed}"
        return f"planned fault{seed}: {operation} number {self._counts[operation]} {what}"


def _land(act: Callable[[], object]) -> None:
    """Carry out what nobody waits for: how it ends is lost as well."""
    with contextlib.suppress(CkptError):
        act()


class _FaultySource:
    def __init__(self, store: FaultyStore, inner: Source) -> None:
        self._store = store
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self._store.carry_out("read_at", lambda: self._inner.read_at(offset, size_bytes))

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _FaultyWriter:
    def __init__(self, store: FaultyStore, inner: DataWriter) -> None:
        self._store = store
        self._inner = inner

    @property
    def size_bytes(self) -> int:
        return self._inner.size_bytes

    def write(self, data: BytesLike) -> None:
        content = bytes(data)
        self._carry_out(
            "write",
            lambda: self._inner.write(content),
            lambda keep_bytes: self._inner.write(content[:keep_bytes]),
        )

    def flush(self) -> None:
        self._carry_out("flush", self._inner.flush)

    def finish(self) -> None:
        self._carry_out("finish", self._inner.finish)

    def abort(self) -> None:
        # The dead clean nothing up.
        if not self._store.crashed:
            self._inner.abort()

    def _carry_out(
        self,
        operation: str,
        act: Callable[[], None],
        tear: Callable[[int], None] | None = None,
    ) -> None:
        try:
            self._store.carry_out(operation, act, tear)
        except CkptError:
            self._inner.abort()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()
