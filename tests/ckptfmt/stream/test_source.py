from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptfmt.errors import MissingError, StateError, StorageFailedError, TornError
from ckptfmt.stream import BytesSource, FileSource, RangeSource

DATA = bytes(range(200))


@pytest.fixture(params=["file", "bytes"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RangeSource]:
    if request.param == "bytes":
        yield BytesSource(DATA, "data")
        return
    (tmp_path / "data").write_bytes(DATA)
    with FileSource.open(tmp_path / "data") as opened:
        yield opened


def test_a_range_is_read_exactly(source: RangeSource) -> None:
    assert source.size_bytes == 200
    assert source.name.endswith("data")
    assert source.read_at(0, 200) == DATA
    assert source.read_at(20, 5) == DATA[20:25]
    assert source.read_at(200, 0) == b""


def test_a_short_range_is_torn(source: RangeSource) -> None:
    with pytest.raises(TornError, match="only 10 of 11 bytes") as caught:
        source.read_at(190, 11)
    assert caught.value.location.offset == 190


def test_a_file_that_shrinks_under_the_reader_is_torn(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    with FileSource.open(tmp_path / "data") as source:
        (tmp_path / "data").write_bytes(DATA[:50])
        with pytest.raises(TornError, match="the file had 200 bytes"):
            source.read_at(40, 20)


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        FileSource.open(tmp_path / "nothing")


def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    with FileSource.open(tmp_path) as source, pytest.raises(StorageFailedError):
        source.read_at(0, 1)


def test_a_closed_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    source = FileSource.open(tmp_path / "data")
    source.close()
    source.close()
    with pytest.raises(StateError):
        source.read_at(0, 1)
