from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptfmt.errors import CorruptError, TornError
from ckptfmt.stream import BytesSource
from ckptfmt.stream.feed import Feed
from tests.support.streams import WatchedSource, build, records

DATA = bytes(range(256)) * 4


@given(st.lists(st.integers(0, 90)), st.integers(1, 64))
def test_takes_in_any_sizes_give_the_file_and_its_hash(sizes: list[int], chunk: int) -> None:
    feed = Feed(BytesSource(DATA), whole=False, chunk_bytes=chunk)
    taken = b""
    for size in sizes:
        if feed.offset + size <= len(DATA):
            assert feed.peek(size) == DATA[len(taken) : len(taken) + size]
            taken += feed.take(size)
    taken += feed.take(len(DATA) - feed.offset)
    assert taken == DATA
    assert feed.at_end
    assert feed.sha256 == hashlib.sha256(DATA).hexdigest()


def test_a_chunk_is_one_request() -> None:
    source = WatchedSource(DATA)
    feed = Feed(source, whole=False, chunk_bytes=512)
    for _ in range(100):
        feed.take(10)
    assert source.requests == [(0, 512), (512, 512)]


def test_past_the_end_is_torn_unless_the_file_is_known_to_be_whole() -> None:
    for whole, error in ((False, TornError), (True, CorruptError)):
        feed = Feed(BytesSource(DATA, "x"), whole=whole)
        feed.take(1000)
        with pytest.raises(error, match="1024 bytes") as caught:
            feed.take(25)
        assert caught.value.location.offset == 1000
        assert caught.value.location.file == "x"


def test_an_intact_end_makes_a_file_whole() -> None:
    data, _ = build(records(3))
    with pytest.raises(CorruptError):
        Feed(BytesSource(data), whole=False).take(len(data) + 1)
    with pytest.raises(TornError):
        Feed(BytesSource(data[:-1]), whole=False).take(len(data))
