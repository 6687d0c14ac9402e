"""Reads a stream: all of it in order, or single records through the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from ckptfmt.errors import CkptError, StateError
from ckptfmt.stream.diagnosis import check_size
from ckptfmt.stream.feed import Feed
from ckptfmt.stream.framing import Head
from ckptfmt.stream.index import Entry, Index
from ckptfmt.stream.lookup import Lookup
from ckptfmt.stream.records import StoredLine, StreamFacts
from ckptfmt.stream.scan import Scan, read_head
from ckptfmt.stream.source import RangeSource

__all__ = ["StreamReader"]
